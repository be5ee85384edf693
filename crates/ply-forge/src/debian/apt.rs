//! What this machine's apt knows: where Debian is fetched from, through which proxy, and which keys are trusted.
//! Only the suite is ours. Sources: sources.list(5), apt.conf(5), apt-secure(8).

use super::control;
use crate::error::{ForgeError, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Code names of releases and the moving names that stand for one; what a source names is a suite of Debian only
/// if its first word is among them.
const SUITES: &[&str] = &[
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "stable",
    "oldstable",
    "oldoldstable",
    "testing",
    "unstable",
];

/// Whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SignedBy {
    /// What the whole machine trusts.
    Machine,
    /// These keyrings.
    Keyrings(Vec<PathBuf>),
    /// The machine's keyrings, but only these fingerprints.
    Fingerprints(Vec<String>),
    /// A key written into the source itself, armoured.
    Inline(String),
}

/// One suite at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// The archive's root, without a trailing slash.
    pub(crate) uri: String,
    /// As in `dists/<suite>`.
    pub(crate) suite: String,
    pub(crate) components: Vec<String>,
    pub(crate) signed_by: SignedBy,
    /// Whether its absence is an error.
    pub(crate) required: bool,
}

/// apt's configuration, as far as minting needs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Apt {
    sources: Vec<Source>,
    /// `Acquire::http::Proxy`.
    pub(crate) http_proxy: Option<String>,
    /// `Acquire::https::Proxy`.
    pub(crate) https_proxy: Option<String>,
    /// Whether an expired release file is refused.
    pub(crate) check_valid_until: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: SignedBy,
}

impl Apt {
    /// Reads `/etc/apt` below `root` and, on the machine itself, what `apt-config` says. No apt at all gives an
    /// empty configuration, which is no error until a mirror is needed.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let etc = root.join("etc/apt");
        let mut files = vec![etc.join("sources.list")];
        let parts = etc.join("sources.list.d");
        if let Ok(listed) = std::fs::read_dir(&parts) {
            let mut more: Vec<PathBuf> = listed.filter_map(|e| e.ok().map(|e| e.path())).collect();
            more.sort();
            files.extend(more);
        }
        let mut sources = Vec::new();
        for file in files {
            let ending = file.extension().and_then(|e| e.to_str());
            if !matches!(ending, Some("list" | "sources")) {
                continue;
            }
            let text = match std::fs::read_to_string(&file) {
                Ok(text) => text,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(ForgeError::file("cannot read", file)(e)),
            };
            let found = if ending == Some("list") { one_line(&text) } else { deb822(&text) };
            sources.extend(found.map_err(|why| ForgeError::AptConfig { file, why })?);
        }
        for source in &mut sources {
            // apt-transport-mirror(1): a file (or a URL) that lists mirrors; the first line serves.
            if let Some(list) = source.uri.strip_prefix("mirror+file:") {
                let list = root.join(list.trim_start_matches('/'));
                let text = std::fs::read_to_string(&list).map_err(ForgeError::file("cannot read", &list))?;
                let first = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#'));
                let first = first.and_then(|l| l.split_whitespace().next()).unwrap_or_default();
                source.uri = first.trim_end_matches('/').to_owned();
            }
        }
        let dump = if root == Path::new("/") {
            Command::new("apt-config").arg("dump").output().ok().filter(|o| o.status.success())
        } else {
            None
        };
        let mut apt = Self { sources, check_valid_until: true, ..Self::default() };
        apt.settings(&dump.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default());
        Ok(apt)
    }

    /// Takes what counts out of `apt-config dump`.
    fn settings(&mut self, dump: &str) {
        for line in dump.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let value = value.trim_end_matches(';').trim_matches('"');
            let proxy = || Some(value.to_owned()).filter(|v| !v.is_empty() && v != "DIRECT");
            match key.to_ascii_lowercase().as_str() {
                "acquire::http::proxy" => self.http_proxy = proxy(),
                "acquire::https::proxy" => self.https_proxy = proxy(),
                "acquire::check-valid-until" => {
                    self.check_valid_until = !["0", "no", "false", "off", "without", "disable"]
                        .contains(&value.to_ascii_lowercase().as_str());
                }
                _ => {}
            }
        }
    }

    /// Where a suite of Debian is fetched from: apt's own Debian sources with the suite's name changed, or one mirror.
    ///
    /// # Errors
    /// When there is neither.
    pub(crate) fn repositories(&self, suite: &str, mirror: Option<&str>) -> Result<Vec<Repository>> {
        if let Some(mirror) = mirror {
            let uri = mirror.trim_end_matches('/');
            let one = |uri: &str, suffix: &str, required| Repository {
                uri: uri.to_owned(),
                suite: format!("{suite}{suffix}"),
                components: vec!["main".to_owned()],
                signed_by: SignedBy::Machine,
                required,
            };
            let mut all = vec![one(uri, "", true), one(uri, "-updates", false)];
            if uri.ends_with("/debian") {
                all.push(one(&format!("{uri}-security"), "-security", false));
            }
            return Ok(all);
        }
        let mut all: Vec<Repository> = Vec::new();
        for source in &self.sources {
            for written in &source.suites {
                let first = written.split(['-', '/']).next().unwrap_or_default();
                let suffix = match &written[first.len()..] {
                    "" => "",
                    "-updates" => "-updates",
                    "-security" | "/updates" => "-security",
                    _ => continue,
                };
                if !SUITES.contains(&first) || !source.components.iter().any(|c| c == "main") {
                    continue;
                }
                let repository = Repository {
                    uri: source.uri.clone(),
                    suite: format!("{suite}{suffix}"),
                    components: source.components.clone(),
                    signed_by: source.signed_by.clone(),
                    required: true,
                };
                if !all.iter().any(|r| r.uri == repository.uri && r.suite == repository.suite) {
                    all.push(repository);
                }
            }
        }
        if all.iter().any(|r| r.suite == suite) { Ok(all) } else { Err(ForgeError::NoMirror) }
    }
}

/// Lines of `deb [options] URI SUITE COMPONENT…`.
fn one_line(text: &str) -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|r| r.starts_with([' ', '\t'])) else { continue };
        let mut rest = rest.trim_start();
        let mut signed_by = SignedBy::Machine;
        if let Some(inside) = rest.strip_prefix('[') {
            let (options, after) = inside.split_once(']').ok_or_else(|| format!("{line:?} lacks a ]"))?;
            for option in options.split_whitespace() {
                if let Some(value) = option.strip_prefix("signed-by=") {
                    signed_by = signers(&value.replace(',', " "));
                }
            }
            rest = after.trim_start();
        }
        let mut words = rest.split_whitespace();
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            return Err(format!("{line:?} lacks a URI or a suite"));
        };
        all.push(Source {
            uri: uri.trim_end_matches('/').to_owned(),
            suites: vec![suite.to_owned()],
            components: words.map(str::to_owned).collect(),
            signed_by,
        });
    }
    Ok(all)
}

/// Paragraphs of a `.sources` file.
fn deb822(text: &str) -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    for paragraph in control::paragraphs(text) {
        let words = |field| -> Vec<String> {
            let lines = paragraph.get(field).unwrap_or_default().lines();
            let lines = lines.filter(|l| !l.trim_start().starts_with('#'));
            lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
        };
        let enabled =
            words("Enabled").first().is_none_or(|e| !["no", "false", "0", "off"].contains(&e.as_str()));
        if !enabled || !words("Types").iter().any(|t| t == "deb") {
            continue;
        }
        let (uris, suites) = (words("URIs"), words("Suites"));
        if uris.is_empty() || suites.is_empty() {
            return Err("a source lacks URIs or Suites".to_owned());
        }
        for uri in uris {
            all.push(Source {
                uri: uri.trim_end_matches('/').to_owned(),
                suites: suites.clone(),
                components: words("Components"),
                signed_by: paragraph.get("Signed-By").map_or(SignedBy::Machine, signers),
            });
        }
    }
    Ok(all)
}

/// The value of `Signed-By`: keyrings, fingerprints or a key.
fn signers(value: &str) -> SignedBy {
    if value.contains("-----BEGIN PGP") {
        // A key in deb822 form: leading blanks, and a lone dot for an empty line.
        let lines = value.lines().map(str::trim).map(|l| if l == "." { "" } else { l });
        return SignedBy::Inline(lines.collect::<Vec<_>>().join("\n"));
    }
    let words: Vec<&str> = value.split([' ', ',', '\n', '\t']).filter(|w| !w.is_empty()).collect();
    if words.is_empty() {
        SignedBy::Machine
    } else if words.iter().any(|w| w.starts_with('/')) {
        SignedBy::Keyrings(words.into_iter().map(PathBuf::from).collect())
    } else {
        SignedBy::Fingerprints(
            words.into_iter().map(|w| w.trim_end_matches('!').to_ascii_uppercase()).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apt(files: &[(&str, &str)]) -> Result<Apt> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Apt::read(dir.path())
    }

    fn places(apt: &Apt, suite: &str) -> Vec<String> {
        apt.repositories(suite, None).unwrap().iter().map(|r| format!("{} {}", r.uri, r.suite)).collect()
    }

    #[test]
    fn only_the_suite_of_apts_own_sources_is_changed() {
        let sources = "Types: deb\n# comment\nURIs: http://mirror.example/debian/\nSuites: bookworm bookworm-updates \
                       bookworm-backports\nComponents: main contrib\nSigned-By: /k/a.gpg\n\nTypes: deb deb-src\nURIs: \
                       http://sec.example/debian-security\nSuites: bookworm-security\nComponents: main\n";
        let other = "Types: deb\nURIs: https://node.example\nSuites: nodistro\nComponents: main\n";
        let off =
            "Types: deb\nEnabled: no\nURIs: https://off.example/debian\nSuites: bookworm\nComponents: main\n";
        let apt = apt(&[
            ("etc/apt/sources.list.d/debian.sources", sources),
            ("etc/apt/sources.list.d/node.sources", other),
            ("etc/apt/sources.list.d/off.sources", off),
            ("etc/apt/sources.list.d/cloud.list", "deb https://c.example/apt cloud-bookworm main\n"),
            ("etc/apt/sources.list.d/saved.list.save", "deb https://saved.example bookworm main\n"),
        ])
        .unwrap();
        assert_eq!(
            places(&apt, "trixie"),
            [
                "http://mirror.example/debian trixie",
                "http://mirror.example/debian trixie-updates",
                "http://sec.example/debian-security trixie-security",
            ]
        );
        let first = &apt.repositories("trixie", None).unwrap()[0];
        assert_eq!(first.signed_by, SignedBy::Keyrings(vec!["/k/a.gpg".into()]));
        assert_eq!(first.components, ["main", "contrib"]);
    }

    #[test]
    fn the_one_line_form_is_read() {
        let list = "# deb http://no bookworm main\ndeb-src http://no bookworm main\n\
                    deb [arch=amd64 signed-by=/k/a.gpg,/k/b.gpg] mirror+file:/etc/apt/mirrors.txt stable main # end\n\
                    deb http://sec.example/ stable/updates main\n";
        let apt = apt(&[
            ("etc/apt/sources.list", list),
            ("etc/apt/mirrors.txt", "# mirrors\nhttp://m.example/debian/\tpriority:1\n"),
        ])
        .unwrap();
        assert_eq!(
            places(&apt, "trixie"),
            ["http://m.example/debian trixie", "http://sec.example trixie-security"]
        );
        let broken = [("etc/apt/sources.list", "deb [arch=amd64 http://x y main\n")];
        let error = self::apt(&broken).unwrap_err().to_string();
        assert!(error.contains("etc/apt/sources.list") && error.contains("lacks a ]"), "{error}");
    }

    #[test]
    fn without_a_source_a_mirror_is_asked_for() {
        let apt = apt(&[]).unwrap();
        let error = apt.repositories("trixie", None).unwrap_err();
        assert!(matches!(error, ForgeError::NoMirror) && error.hint().unwrap().contains("--mirror"));
        let all = apt.repositories("trixie", Some("http://m.example/debian/")).unwrap();
        let all: Vec<_> = all.iter().map(|r| (r.uri.as_str(), r.suite.as_str(), r.required)).collect();
        assert_eq!(
            all,
            [
                ("http://m.example/debian", "trixie", true),
                ("http://m.example/debian", "trixie-updates", false),
                ("http://m.example/debian-security", "trixie-security", false),
            ]
        );
    }

    #[test]
    fn proxies_and_checks_come_from_apt_config() {
        let mut apt = Apt { check_valid_until: true, ..Apt::default() };
        apt.settings(
            "Acquire::http::Proxy \"http://p.example:3142\";\nAcquire::https::Proxy \"DIRECT\";\n\
             Acquire::Check-Valid-Until \"false\";\n",
        );
        assert_eq!(apt.http_proxy.as_deref(), Some("http://p.example:3142"));
        assert_eq!(apt.https_proxy, None);
        assert!(!apt.check_valid_until);
    }

    #[test]
    fn signers_are_keyrings_fingerprints_or_a_key() {
        assert_eq!(signers("0xab cd!"), SignedBy::Fingerprints(vec!["0XAB".into(), "CD".into()]));
        let key = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ==\n -----END PGP PUBLIC KEY BLOCK-----";
        let SignedBy::Inline(text) = signers(key) else { panic!() };
        assert_eq!(text.lines().nth(2), Some(""));
    }
}
