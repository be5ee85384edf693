//! The Debian base: what owns `/` below every app and keg of a suite. Files of a small set of packages, laid on the
//! merged `/usr`, plus the few that their maintainer scripts would have made, without ever running one.

use crate::debian::index::Package;
use crate::debian::release::day;
use crate::debian::suite::Suite;
use crate::debian::version;
use crate::download::{Downloads, hex};
use crate::error::{ForgeError, Result};
use crate::files::{Entry, Files, Meta, Spool};
use crate::inventory::{self, Line};
use ply_manifest::{Range, Version};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a base is made of, before dependencies. libstdc++6 is among them since prebuilt programs (Node's own binary,
/// native addons, wheels) expect it of every glibc system.
const SEEDS: &[&str] = &[
    "base-files",
    "base-passwd",
    "bash",
    "ca-certificates",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "libc-bin",
    "libc6",
    "libstdc++6",
    "mawk",
    "ncurses-base",
    "netbase",
    "sed",
    "tar",
    "tzdata",
    "zlib1g",
];

/// Needed to install and configure packages only; an image never does either.
const INSTALLERS: &[&str] = &[
    "adduser",
    "debconf",
    "debconf-2.0",
    "dpkg",
    "init-system-helpers",
    "perl-base",
    "ucf",
    "libdebconfclient0",
];

/// The rules of [`finish`] as a number: it goes into the version, so that a base that the same packages give under
/// other rules is another version.
const RULES: u32 = 1;

/// A base as files.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) files: Files,
    pub(crate) packages: Vec<Line>,
    /// The date of the newest package, in seconds since 1970; rebuilds for one arch alone don't count.
    newest: u64,
    /// Keeps the contents of `files`.
    _spool: Arc<Spool>,
}

/// The packages of a suite's base, sorted by name.
pub(crate) fn packages(suite: &Suite) -> Result<Vec<Package<'_>>> {
    suite.closure(SEEDS, &|name| INSTALLERS.contains(&name))
}

/// Whether a file of a package has no use in an image: documentation, translations, what packaging tools read.
/// Licences stay.
pub(crate) fn is_ballast(path: &[u8]) -> bool {
    const FOLDERS: &[&str] = &[
        "usr/share/man",
        "usr/share/info",
        "usr/share/locale",
        "usr/share/lintian",
        "usr/share/bug",
        "usr/share/doc-base",
        "usr/share/menu",
        "usr/share/groff",
        "usr/share/linda",
        "usr/share/bash-completion",
        "usr/share/zsh",
        "usr/share/fish",
        "usr/share/apport",
        "usr/share/gdb",
        "usr/share/debhelper",
        "usr/lib/debug",
        "usr/share/pixmaps",
        "usr/share/applications",
        "usr/share/help",
        "usr/share/gtk-doc",
        "etc/cron.d",
        "etc/cron.daily",
        "etc/init.d",
        "etc/logrotate.d",
        "etc/update-motd.d",
        "etc/systemd",
        "usr/lib/systemd",
        "usr/lib/sysusers.d",
        "usr/lib/tmpfiles.d",
        "etc/apparmor.d",
    ];
    let below = |folder: &str| {
        path.strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    if let Some(doc) = path.strip_prefix(b"usr/share/doc/".as_slice()) {
        // The licence, and the folder that holds it; a link from one package's folder to another's.
        return match doc.iter().position(|b| *b == b'/') {
            None => false,
            Some(slash) => &doc[slash + 1..] != b"copyright",
        };
    }
    FOLDERS.iter().any(|folder| below(folder))
}

/// The links of a merged `/usr`, so that files of packages that still name `/bin` or `/lib` land in `/usr`.
pub(crate) fn merged_usr() -> Files {
    let mut files = Files::default();
    for dir in ["bin", "lib", "lib64", "sbin"] {
        files.put_dir(&format!("usr/{dir}"), Meta::root(0o755));
        files.put_link(dir, &format!("usr/{dir}"));
    }
    files
}

/// Makes the base of a suite.
pub(crate) fn make(suite: &Suite, downloads: &Downloads) -> Result<Base> {
    let packages = packages(suite)?;
    let debs = suite.fetch(&packages, downloads)?;
    let spool = Spool::new(&downloads.work())?;
    let mut files = merged_usr();
    let mut newest = 0;
    for (package, deb) in packages.iter().zip(&debs) {
        let date = deb.unpack(&mut files, &spool, &|path| !is_ballast(path))?;
        if !is_rebuild(package.version) {
            newest = newest.max(date);
        }
    }
    finish(&mut files, suite)?;
    let lines: Vec<Line> = packages.iter().map(Line::of).collect();
    files.put_text("usr/share/ply/packages.json", 0o644, inventory::render(&lines));
    Ok(Base { files, packages: lines, newest, _spool: spool })
}

/// Whether a version is a rebuild of the same source for one arch (`+b1`).
fn is_rebuild(version: &str) -> bool {
    version.rsplit_once("+b").is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// `13.8.0+20261115.a1b2c3d4`: the point release, the day of the newest package, a hash of names and versions. The
/// hash is over the packages of every arch, so that a base has one version and a lock can hold a digest for each.
pub(crate) fn base_version(suite: &Suite, base: &Base, others: &[Vec<Package<'_>>]) -> Result<Version> {
    let mut all: BTreeSet<(&str, &str, &str)> =
        base.packages.iter().map(|p| (p.name.as_str(), p.version.as_str(), p.arch.as_str())).collect();
    all.extend(others.iter().flatten().map(|p| (p.name, p.version, p.arch())));
    let mut hash = Sha256::new();
    hash.update(format!("rules {RULES}\n"));
    for (name, version, arch) in all {
        hash.update(format!("{name} {version} {arch}\n"));
    }
    let point = version::fold(&suite.version)?;
    let hash = hex(&<[u8; 32]>::from(hash.finalize()));
    Ok(format!("{point}+{}.{}", day(base.newest), &hash[..8]).parse()?)
}

/// The range by which kegs ask for a suite's base: its major version.
pub(crate) fn range(suite: &Suite) -> Result<Range> {
    Ok(suite.major().parse()?)
}

/// Does what the maintainer scripts of these packages do on a fresh system, as far as an image needs it.
fn finish(files: &mut Files, suite: &Suite) -> Result<()> {
    let missing = |what: &str| ForgeError::Index {
        url: format!("Debian {}", suite.name),
        why: format!("its base packages no longer hold {what:?}"),
    };
    let text = |files: &Files, path: &str| match files.follow(path.as_bytes()) {
        Some(Entry::File(_, data)) => data.read(),
        _ => Err(missing(path)),
    };

    // Needs a library of the installer's, and is of no use without it.
    files.remove_where(|path, _| path == b"usr/sbin/update-passwd");

    // base-passwd: the first users and groups.
    for name in ["passwd", "group"] {
        let master = text(files, &format!("usr/share/base-passwd/{name}.master"))?;
        files.put_text(&format!("etc/{name}"), 0o644, master);
    }

    // base-files: first copies of what an administrator may change, and the folders that no archive ships.
    for (from, to) in
        [("profile", "etc/profile"), ("dot.profile", "root/.profile"), ("dot.bashrc", "root/.bashrc")]
    {
        let first = text(files, &format!("usr/share/base-files/{from}"))?;
        files.put_text(to, 0o644, first);
    }
    files.put_link("etc/dpkg/origins/default", "debian");
    for dir in [
        "mnt",
        "srv",
        "opt",
        "etc/opt",
        "var/opt",
        "media",
        "usr/local/bin",
        "usr/local/sbin",
        "usr/local/lib",
        "usr/local/share",
        "usr/local/etc",
        "usr/local/include",
        "usr/local/src",
        "proc",
        "sys",
        "dev",
        "run",
        "home",
    ] {
        files.put_dir(dir, Meta::root(0o755));
    }
    const MAIL: u32 = 8;
    files.put_dir("var/mail", Meta { mode: 0o2775, uid: 0, gid: MAIL });
    files.put_link("var/spool/mail", "../mail");
    for (path, target) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        files.remove_where(|at, _| at == path.as_bytes());
        files.put_link(path, target);
    }
    for dir in ["tmp", "var/tmp", "run/lock"] {
        files.put_dir(dir, Meta::root(0o1777));
    }

    // libc-bin (or base-files, in older suites): where names are looked up.
    let nsswitch = ["usr/share/libc-bin/nsswitch.conf", "usr/share/base-files/nsswitch.conf"];
    let nsswitch = nsswitch.into_iter().find(|p| files.follow(p.as_bytes()).is_some());
    let nsswitch = text(files, nsswitch.ok_or_else(|| missing("nsswitch.conf"))?)?;
    files.put_text("etc/nsswitch.conf", 0o644, nsswitch);

    // Alternatives with one candidate.
    for (name, target) in [("awk", "mawk"), ("nawk", "mawk"), ("which", "which.debianutils")] {
        if files.get(format!("usr/bin/{target}").as_bytes()).is_some() {
            files.put_link(&format!("usr/bin/{name}"), target);
        }
    }
    if files.follow(b"usr/bin/sh").is_none() {
        files.put_link("usr/bin/sh", "dash");
    }

    // debianutils: the shells, each under both names that a merged /usr gives it.
    let mut known = BTreeSet::new();
    let lists: Vec<String> = std::iter::once("usr/share/debianutils/shells".to_owned())
        .chain(
            files
                .below(b"usr/share/debianutils/shells.d")
                .filter_map(|(p, _)| String::from_utf8(p.clone()).ok()),
        )
        .collect();
    for list in lists {
        let Ok(lines) = text(files, &list) else { continue };
        for line in String::from_utf8_lossy(&lines).lines().map(str::trim).filter(|l| l.starts_with('/')) {
            let plain = line.strip_prefix("/usr").unwrap_or(line);
            if files.follow(&plain.as_bytes()[1..]).is_some() {
                known.insert(plain.to_owned());
            }
        }
    }
    let shells: String = known.iter().map(|shell| format!("{shell}\n/usr{shell}\n")).collect();
    files.put_text("etc/shells", 0o644, format!("# /etc/shells: valid login shells\n{shells}"));

    // tzdata: the zone of a machine that nobody asked.
    files.put_link("etc/localtime", "/usr/share/zoneinfo/Etc/UTC");
    files.put_text("etc/timezone", 0o644, "Etc/UTC\n");

    certificates(files)
}

/// ca-certificates: the list of what is trusted, a link for each, and all of them in one file. The links named by
/// hash are left out: OpenSSL reads the one file first.
fn certificates(files: &mut Files) -> Result<()> {
    const FROM: &[u8] = b"usr/share/ca-certificates";
    let mut list =
        String::from("# What ca-certificates.crt is made of, relative to /usr/share/ca-certificates.\n");
    let mut bundle = Vec::new();
    let mut links = Vec::new();
    for (path, entry) in files.below(FROM) {
        let (Entry::File(_, data), Ok(name)) = (entry, std::str::from_utf8(path)) else { continue };
        let Some(stem) = name.rsplit('/').next().and_then(|n| n.strip_suffix(".crt")) else { continue };
        list.push_str(&name[FROM.len() + 1..]);
        list.push('\n');
        bundle.extend(data.read()?);
        if bundle.last() != Some(&b'\n') {
            bundle.push(b'\n');
        }
        links.push((format!("etc/ssl/certs/{}.pem", stem.replace([' ', '(', ')'], "_")), format!("/{name}")));
    }
    for (path, target) in links {
        files.put_link(&path, &target);
    }
    files.put_text("etc/ca-certificates.conf", 0o644, list);
    files.put_text("etc/ssl/certs/ca-certificates.crt", 0o644, bundle);
    Ok(())
}

/// The manifest of a base.
pub(crate) fn manifest(suite: &Suite, version: &Version) -> String {
    let major = suite.major();
    let code = &suite.name;
    format!(
        "# Debian {major} ({code}), minimal: made by `ply forge base debian` from the archive's own packages.\n\
         [package]\n\
         name = \"debian\"\n\
         version = \"{version}\"\n\
         description = \"Minimal Debian {major} ({code}): libc, shell, coreutils, CA certificates, time zones\"\n\
         license = \"see /usr/share/doc/*/copyright\"\n\
         homepage = \"https://www.debian.org\"\n\
         \n\
         [build]\n\
         base = true\n\
         \n\
         [layer]\n\
         abi = \"linux-{{arch}}-gnu\"\n"
    )
}
