//! Everything that can go wrong on the wire and in resolution, one variant a cause, worded for the person who
//! typed the command.

use crate::{Asked, AskedBase};
use ply_manifest::{
    Arch, Bytes, Diagnostics, Digest, ImageName, NounError, PackageName, Range, Reference, Version,
};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a package could not be found, fetched or resolved. `Display` is one sentence (a conflict adds a line for each
/// that asks); [`SourceError::hint`] is what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A setting holds something that is not a source.
    #[error("{said_in}: {error}")]
    BadSource {
        /// The setting: a variable or a file.
        said_in: String,
        /// What is wrong with it.
        error: NounError,
    },
    /// `config.toml` can't be understood.
    #[error("{0}")]
    Config(Diagnostics),
    /// A dependency names an alias that its manifest does not define.
    #[error("{asker} takes {name} from the source {alias:?}, which its [build.sources] does not have")]
    UnknownAlias {
        /// The package whose manifest says it.
        asker: String,
        /// The dependency.
        name: PackageName,
        /// The alias.
        alias: String,
    },
    /// A reference with an owner, and a source without a place for one.
    #[error("{reference} names an owner, and the source has no {{owner}} in it: {template}")]
    NoOwner {
        /// The reference.
        reference: Reference,
        /// The source's template.
        template: String,
    },
    /// Plain http to a host that is not on this machine or in its private network.
    #[error("plain http is only for this machine and private networks: {url}")]
    PlainHttp {
        /// The URL.
        url: String,
    },
    /// A redirect from https to http.
    #[error("{from} redirects to plain http, which is refused: {to}")]
    Downgrade {
        /// The https URL.
        from: String,
        /// Where it points.
        to: String,
    },
    /// More redirects than anyone needs.
    #[error("more than {limit} redirects, the last to {last}: {url}")]
    Redirects {
        /// The limit.
        limit: usize,
        /// The last target.
        last: String,
        /// The URL that was asked first.
        url: String,
    },
    /// A redirect that names no usable place.
    #[error("a redirect points at no http address: {url} → {location:?}")]
    BadRedirect {
        /// The URL that redirects.
        url: String,
        /// What it says.
        location: String,
    },
    /// Not a URL that can be fetched.
    #[error("this is not a URL that can be fetched: {url}")]
    BadUrl {
        /// The text.
        url: String,
    },
    /// 404 or 410 for an image, or no such file in a folder.
    #[error("{what} is not there: {place} (source {origin}){}", asked_by(.asks))]
    NotThere {
        /// The file or the package.
        what: String,
        /// The URL or path that was tried.
        place: String,
        /// The source's template.
        origin: String,
        /// Who asks for it, where a manifest does.
        asks: Vec<Asked>,
    },
    /// Any other status.
    #[error("the server answers {status}: {url}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The URL.
        url: String,
    },
    /// 429 to the last attempt.
    #[error("the server wants fewer requests (429) and asks to wait {}: {url}", seconds(.wait))]
    TooMany {
        /// What `Retry-After` says, or none.
        wait: Option<Duration>,
        /// The URL.
        url: String,
    },
    /// The host's name has no address.
    #[error("the name {host} has no address ({why}): {url}")]
    NoAddress {
        /// The host.
        host: String,
        /// What the name servers said.
        why: String,
        /// The URL.
        url: String,
    },
    /// Nobody answers.
    #[error("no connection ({why}): {url}")]
    Connection {
        /// The reason from the system.
        why: String,
        /// Whether it may pass by itself: an answer that was late, not one that refused.
        passes: bool,
        /// The URL.
        url: String,
    },
    /// No byte for too long.
    #[error("no byte came for {} s: {url}", .after.as_secs_f32())]
    Stalled {
        /// The limit.
        after: Duration,
        /// The URL.
        url: String,
    },
    /// TLS could not be agreed on, or the certificate does not hold.
    #[error("no safe connection ({why}): {url}")]
    Tls {
        /// The reason.
        why: String,
        /// The URL.
        url: String,
    },
    /// What came is not HTTP.
    #[error("the server does not speak HTTP as it should ({why}): {url}")]
    Protocol {
        /// The reason.
        why: String,
        /// The URL.
        url: String,
    },
    /// The connection ended early, and again on every attempt.
    #[error("the transfer broke off after {got} of {} bytes, {attempts} times: {url}", .of.map_or("unknown".to_owned(), |n| n.to_string()))]
    BrokenOff {
        /// The bytes that came.
        got: u64,
        /// The bytes that were announced.
        of: Option<u64>,
        /// The attempts.
        attempts: u32,
        /// The URL.
        url: String,
    },
    /// More bytes than may come.
    #[error("{url} is larger than {limit}")]
    TooLarge {
        /// The limit.
        limit: Bytes,
        /// The URL.
        url: String,
    },
    /// The bytes are not what the lock or the catalog says.
    #[error("wrong bytes from {url}: expected {expected}, got {got}; they were deleted")]
    WrongDigest {
        /// What the lock or the catalog says.
        expected: Digest,
        /// What came.
        got: Digest,
        /// Where from.
        url: String,
    },
    /// An image that says to be another.
    #[error("{place} is named {claimed} and says inside to be {embedded}; it was not taken")]
    WrongName {
        /// Where it came from.
        place: String,
        /// `name version` of its file name.
        claimed: String,
        /// `name version` of its manifest.
        embedded: String,
    },
    /// An `index.json` or `state.json` that can't be understood.
    #[error("{url} is not {what}: {why}")]
    BadDocument {
        /// Where it is.
        url: String,
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A range, and a source that can't list.
    #[error("{origin} can't list versions, and {name} is asked for by a range")]
    CantList {
        /// The source.
        origin: String,
        /// The package.
        name: PackageName,
        /// The range.
        range: Range,
    },
    /// A range, and a server that has no `index.json`.
    #[error("no index.json that lists the versions of {name}: {url}{}", asked_by(.asks))]
    NoIndex {
        /// The package.
        name: PackageName,
        /// Where it would be.
        url: String,
        /// The nearest name that the catalog has.
        nearest: Option<String>,
        /// Who asks.
        asks: Vec<Asked>,
    },
    /// A package of which the source has nothing.
    #[error("no package {name} in {origin}{}", asked_by(.asks))]
    NoSuchPackage {
        /// The package.
        name: PackageName,
        /// The source.
        origin: String,
        /// The nearest name that it has.
        nearest: Option<String>,
        /// Who asks.
        asks: Vec<Asked>,
    },
    /// A package that exists, in no version of the range.
    #[error("no version of {name} is in the range {range} in {origin}{}", asked_by(.asks))]
    NotInRange {
        /// The package.
        name: PackageName,
        /// The range.
        range: Box<Range>,
        /// The source.
        origin: String,
        /// Who asks.
        asks: Vec<Asked>,
        /// What there is for this arch, lowest first.
        versions: Vec<Version>,
    },
    /// A package that exists only for another arch.
    #[error("{name} {range} is there, but not for {arch}: {origin}")]
    OtherArch {
        /// The package.
        name: PackageName,
        /// The range.
        range: Range,
        /// What is asked for.
        arch: Arch,
        /// The source.
        origin: String,
    },
    /// No version suits all that ask.
    #[error("no version of {name} suits all that ask for it{}", lines(.asks))]
    Conflict {
        /// The package.
        name: PackageName,
        /// Everyone who asks.
        asks: Vec<Asked>,
        /// What there is, lowest first; empty where only exact versions are asked for.
        versions: Vec<Version>,
    },
    /// Several sources are named for one package, and the root does not say which.
    #[error("{name} is taken from two places: {first} ({first_asker}) and {second} ({second_asker})")]
    TwoSources {
        /// The package.
        name: PackageName,
        /// One source.
        first: Box<str>,
        /// Who names it.
        first_asker: Box<str>,
        /// Another.
        second: Box<str>,
        /// Who names it.
        second_asker: Box<str>,
    },
    /// An app with dependencies or a shell entrypoint, and no base.
    #[error("{root} declares no base{}", lines(.asks))]
    NoBase {
        /// The root.
        root: String,
        /// What its packages say of a base.
        asks: Vec<AskedBase>,
        /// The base that they name, or the usual one.
        suggestion: String,
    },
    /// Packages that want different bases.
    #[error("two bases: {first} ({first_asker}) and {second} ({second_asker})")]
    TwoBases {
        /// The root's base.
        first: PackageName,
        /// Who names it.
        first_asker: String,
        /// The other.
        second: PackageName,
        /// Who names it.
        second_asker: String,
    },
    /// A base where a dependency should be, or the other way round.
    #[error("{asker} takes {name} as {}", if *.is_base { "a dependency, and it is a base" } else { "its base, and it is none" })]
    BaseMismatch {
        /// The package.
        name: PackageName,
        /// Whether it is a base.
        is_base: bool,
        /// Who asks.
        asker: String,
    },
    /// Two packages built for different ABIs.
    #[error("two ABIs: {first} is {first_abi}, {second} is {second_abi}")]
    Abi {
        /// One package, with the chain that leads to it.
        first: String,
        /// Its ABI.
        first_abi: String,
        /// The other, with its chain.
        second: String,
        /// Its ABI.
        second_abi: String,
    },
    /// Packages that need each other.
    #[error("a cycle of dependencies: {}", .chain.join(" → "))]
    Cycle {
        /// The packages, the first again at the end.
        chain: Vec<String>,
    },
    /// `--locked`, and the lock would change.
    #[error("ply.lock would change and --locked forbids it: {}", .changes.join(", "))]
    LockWouldChange {
        /// Each change in words.
        changes: Vec<String>,
    },
    /// A lock that was made for another manifest.
    #[error("ply.lock is older than ply.toml: it has no {name}")]
    StaleLock {
        /// What it lacks.
        name: PackageName,
    },
    /// `ply update NAME` of something that is not in the graph.
    #[error("{name} is not a dependency of {root}, direct or through others")]
    NotADependency {
        /// The name.
        name: PackageName,
        /// The root.
        root: String,
        /// The nearest name in the graph.
        nearest: Option<String>,
    },
    /// The lock has no digest for this arch, and nothing may change it.
    #[error("ply.lock has no digest of {name} {version} for {arch}")]
    NoDigest {
        /// The package.
        name: PackageName,
        /// The version.
        version: Version,
        /// The arch.
        arch: Arch,
    },
    /// A locked image that nobody has any more.
    #[error("nobody has {image} with the digest that is locked, {digest}; asked: {}", .tried.join("; "))]
    Missing {
        /// The image.
        image: Box<ImageName>,
        /// Its digest.
        digest: Digest,
        /// Each place, and what it said.
        tried: Vec<String>,
    },
    /// A manifest or a lock inside an image that can't be understood.
    #[error("{0}")]
    Inside(Diagnostics),
    /// A source in a folder that is not there.
    #[error("the folder of the source {origin} is not there: {}", .path.display())]
    NoFolder {
        /// The source's template.
        origin: String,
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder of a source can't be read.
    #[error("{} can't be read: {error}", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// What came is no image of ply.
    #[error("{place} gives no image: {why}")]
    NoImage {
        /// Where it came from.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// The bytes can't be kept.
    #[error("{what} can't be written: {error}")]
    Write {
        /// The file.
        what: String,
        /// The reason.
        error: io::Error,
    },
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] ply_image::ImageError),
}

/// A second line of a hint, for a source that has one place for all packages.
fn folder_a_package(origin: &str) -> String {
    if origin.contains("{package}") || !(origin.starts_with('/') || origin.contains("://")) {
        return String::new();
    }
    let origin = origin.trim_end_matches('/');
    format!("\nwhere it has a folder for each package, write it as {origin}/{{package}}")
}

/// The lines of a conflict, each who asks for what.
fn lines(asks: &[impl std::fmt::Display]) -> String {
    asks.iter().map(|ask| format!("\n  {ask}")).collect()
}

/// Who asks, in brackets, where anyone but the root does.
fn asked_by(asks: &[Asked]) -> String {
    match asks {
        [] => String::new(),
        [one] => format!(" ({one})"),
        many => lines(many),
    }
}

fn seconds(wait: &Option<Duration>) -> String {
    wait.map_or("without saying how long".to_owned(), |w| format!("{} s", w.as_secs()))
}

impl SourceError {
    /// What to do next, where one can tell.
    pub fn hint(&self) -> Option<String> {
        let list = |versions: &[Version]| {
            let shown: Vec<String> = versions.iter().rev().take(8).map(Version::to_string).collect();
            (!shown.is_empty()).then(|| format!("there is: {}", shown.join(", ")))
        };
        match self {
            Self::BadSource { error, .. } => error.hint.clone(),
            Self::Config(found) | Self::Inside(found) => found.0.iter().find_map(|d| d.hint.clone()),
            Self::UnknownAlias { alias, .. } => Some(format!("add {alias} = \"https://…\" to [build.sources]")),
            Self::NoOwner { reference, .. } => Some(format!(
                "put {{owner}} into the source, as in {}, or ask for {}",
                ply_manifest::SourceSpec::OFFICIAL,
                reference.name
            )),
            Self::PlainHttp { .. } => Some("use https, or allow it with --insecure-source".to_owned()),
            Self::Downgrade { .. } => Some("use a source that stays on https".to_owned()),
            Self::NotThere { origin, .. } => Some(format!(
                "check name, version and arch, or name another source with --source{}",
                folder_a_package(origin)
            )),
            Self::NoFolder { .. } => {
                Some("name the source with --source; ply config shows which is used, and from where".to_owned())
            }
            Self::Status { status: 401 | 403, .. } => {
                Some("ply sends no login: the files must be readable without one".to_owned())
            }
            Self::TooMany { .. } => Some("wait and run the same command again".to_owned()),
            Self::NoAddress { .. } | Self::Connection { .. } => {
                Some("check the network, HTTPS_PROXY and the source; ply fetch fills the store ahead of time".to_owned())
            }
            Self::Stalled { .. } | Self::BrokenOff { .. } => Some("run the same command again".to_owned()),
            Self::Tls { .. } => {
                Some("check the clock of this host, and SSL_CERT_FILE where the source has its own authority".to_owned())
            }
            Self::WrongDigest { .. } => Some(
                "published bytes never change under a version: ask the source's owner, and don't edit the lock by hand"
                    .to_owned(),
            ),
            Self::CantList { name, .. } => {
                Some(format!("pin an exact version, as in {name} = \"1.2.3\""))
            }
            Self::NoIndex { nearest: Some(nearest), .. } | Self::NoSuchPackage { nearest: Some(nearest), .. } => Some(format!("did you mean {nearest:?}?")),
            Self::NoIndex { name, .. } => {
                Some(format!("check the name, pin an exact version as in {name} = \"1.2.3\", or publish an index.json there"))
            }
            Self::NoSuchPackage { origin, .. } => {
                Some(format!("ply search WORD lists what a source has{}", folder_a_package(origin)))
            }
            Self::NotInRange { versions, .. } | Self::Conflict { versions, .. } => list(versions),
            Self::OtherArch { name, .. } => Some(format!("ply search {name} shows what it was built for")),
            Self::TwoSources { name, .. } => {
                Some(format!("say which in your own manifest: {name} = {{ version = \"…\", source = \"…\" }}"))
            }
            Self::NoBase { suggestion, .. } => Some(format!("add base = {suggestion:?} to [build]")),
            Self::TwoBases { first, .. } => Some(format!("take packages that stand on {first}")),
            Self::BaseMismatch { name, is_base: true, .. } => Some(format!("write base = \"{name}@…\" in [build]")),
            Self::BaseMismatch { .. } => Some("a base has base = true in its own manifest".to_owned()),
            Self::Abi { .. } => Some("take packages that were built for one ABI".to_owned()),
            Self::LockWouldChange { .. } => Some("run the command without --locked and commit ply.lock".to_owned()),
            Self::Cycle { .. } => Some("take one of them out of what another depends on".to_owned()),
            Self::WrongName { embedded, .. } => {
                Some(format!("the source's owner has to name the file after what it holds: {embedded}"))
            }
            Self::NoImage { .. } => Some(
                "the file there is torn or not of ply: copy or build it again, or name another source with --source"
                    .to_owned(),
            ),
            Self::StaleLock { .. } => Some("ply build or ply update brings it up to date".to_owned()),
            Self::NotADependency { nearest, .. } => nearest.as_ref().map(|n| format!("did you mean {n:?}?")),
            Self::NoDigest { arch, .. } => {
                Some(format!("run ply build --arch {arch} without --locked and commit ply.lock"))
            }
            Self::Missing { .. } => Some("name a source that still has it with --source".to_owned()),
            _ => None,
        }
    }

    /// Whether the server could not be reached, so that asking it for something else is in vain.
    pub(crate) fn is_unreachable(&self) -> bool {
        use SourceError::{Connection, NoAddress, PlainHttp, Stalled, Tls};
        matches!(self, NoAddress { .. } | Connection { .. } | Stalled { .. } | Tls { .. } | PlainHttp { .. })
    }

    /// Whether the source could not be asked, so that what the store holds is worth a try: nobody answers, the server is in
    /// trouble, a folder is away.
    pub fn is_offline(&self) -> bool {
        match self {
            Self::NoAddress { .. }
            | Self::Connection { .. }
            | Self::Stalled { .. }
            | Self::TooMany { .. }
            | Self::BrokenOff { .. }
            | Self::NoFolder { .. }
            | Self::Read { .. } => true,
            Self::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }
}
