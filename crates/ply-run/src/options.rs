//! What the caller of `ply run` asks for, as typed values: one field a flag. Source: `ply run WHAT`.

use crate::RunError;
use ply_manifest::{
    Bytes, Capabilities, Cores, NounError, Publish, RestartPolicy, RunName, Signal, SourceSpec, Span, Target,
    UserSpec,
};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A path, file, URL or reference.
    Target(Target),
    /// `--installed NAME`: what was installed or deployed last under that name.
    Installed(RunName),
}

/// Every flag of `ply run`. `Default` is "nothing was said".
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// `--name`.
    pub name: Option<RunName>,
    /// `-e`, in order.
    pub env: Vec<EnvFlag>,
    /// `--env-file`, in order.
    pub env_files: Vec<PathBuf>,
    /// `--publish`, in order; the first is the app's canonical address.
    pub publish: Vec<Publish>,
    /// `--domain`.
    pub domains: Vec<String>,
    /// `--volume`.
    pub volumes: Vec<VolumeFlag>,
    /// `--link`.
    pub links: Vec<LinkFlag>,
    /// `--grant-links`.
    pub grant_links: bool,
    /// `--after`.
    pub after: Vec<String>,
    /// `--after-timeout`.
    pub after_timeout: Option<Span>,
    /// `--scale`.
    pub scale: Option<u32>,
    /// `--source`.
    pub source: Option<SourceSpec>,
    /// `--insecure-source`.
    pub insecure_source: bool,
    /// `--egress`.
    pub egress: Option<String>,
    /// `--egress-allow`.
    pub egress_allow: Vec<String>,
    /// `--network`.
    pub network: Option<NetworkFlag>,
    /// `--dns`.
    pub dns: Vec<IpAddr>,
    /// `--add-host`.
    pub add_hosts: Vec<AddHost>,
    /// `--device`.
    pub devices: Vec<PathBuf>,
    /// `--entrypoint`.
    pub entrypoint: Option<EntrypointFlag>,
    /// `--user`.
    pub user: Option<UserFlag>,
    /// `--workdir`.
    pub workdir: Option<String>,
    /// `--stop-signal`.
    pub stop_signal: Option<Signal>,
    /// `--stop-timeout`; 10 s where nothing is said.
    pub stop_timeout: Option<Span>,
    /// `--capabilities`.
    pub capabilities: Option<Capabilities>,
    /// `--no-init`.
    pub no_init: bool,
    /// `--mem`.
    pub mem: Option<Bytes>,
    /// `--cpu`.
    pub cpu: Option<Cores>,
    /// `--pids`.
    pub pids: Option<u32>,
    /// `--restart`.
    pub restart: Option<String>,
    /// `--param`, in order.
    pub params: Vec<KeyValue>,
    /// `--set`, in order: any key of `[run]` by its dotted name.
    pub set: Vec<KeyValue>,
    /// `--drain`.
    pub drain: Option<Span>,
    /// `-t`.
    pub terminal: bool,
    /// `-d`.
    pub detach: bool,
    /// `--privileged`.
    pub privileged: bool,
    /// What stands behind `--`.
    pub args: Vec<String>,
}

impl RunOptions {
    /// Refuses by name what this version can't do, and what can't go together. Nothing is ever ignored.
    pub fn check(&self) -> Result<(), RunError> {
        let later =
            |flag: &str, given: bool| if given { Err(RunError::NotBuilt(flag.to_owned())) } else { Ok(()) };
        later("--domain", !self.domains.is_empty())?;
        later("--after", !self.after.is_empty())?;
        later("--after-timeout", self.after_timeout.is_some())?;
        later("--egress", self.egress.as_deref().is_some_and(|e| e != "off"))?;
        later("--egress-allow", !self.egress_allow.is_empty())?;
        self.restart_policy()?;
        for set in &self.set {
            let later_key = ["scale", "network"]
                .iter()
                .any(|k| set.key == *k || set.key.strip_prefix(k).is_some_and(|rest| rest.starts_with('.')));
            later(&format!("--set {}", set.key), later_key && set.key != "scale.min")?;
        }
        for publish in &self.publish {
            if publish.transport == ply_manifest::Transport::Udp {
                later(&format!("--publish {publish} (udp)"), true)?;
            }
            if publish.address == ply_manifest::PublishAddress::Internal {
                later(&format!("--publish {publish} (internal)"), true)?;
            }
        }
        if self.terminal && self.scale.is_some_and(|n| n > 1) {
            return Err(RunError::usage("-t is for a single instance", "leave out -t or --scale"));
        }
        if self.terminal && self.detach {
            return Err(RunError::usage(
                "-t and -d can't go together",
                "start it with -d, then look inside with ply exec -t",
            ));
        }
        if self.scale == Some(0) {
            return Err(RunError::usage("--scale 0 starts nothing", "write --scale 1 or more"));
        }
        if self.scale.is_some_and(|n| n > MAX_SCALE) {
            return Err(RunError::usage(
                format!("--scale takes at most {MAX_SCALE}"),
                "a host holds at most that many instances",
            ));
        }
        Ok(())
    }

    /// The flags as words that give these options again, from any folder: relative paths are made absolute against
    /// `cwd`. Without what stands behind `--`, which comes last.
    ///
    /// # Errors
    /// [`RunError::Usage`] for what only the present caller can give: `-e KEY`, `-t`, `-d`.
    pub fn to_flags(&self, cwd: &Path) -> Result<Vec<String>, RunError> {
        let mut words = Vec::new();
        let mut flag = |name: &str, value: String| words.push(format!("--{name}={value}"));
        let path = |path: &Path| crate::context::from_folder(cwd, path).display().to_string();
        for env in &self.env {
            match env {
                EnvFlag::Set(key, value) => flag("env", format!("{key}={value}")),
                EnvFlag::FromCaller(key) => {
                    return Err(RunError::usage(
                        format!("-e {key}: there will be no caller to take the value from"),
                        format!("write -e {key}=VALUE, or a file for --env-file"),
                    ));
                }
            }
        }
        if self.terminal || self.detach {
            return Err(RunError::usage(
                format!("{} is for somebody who is there", if self.terminal { "-t" } else { "-d" }),
                "leave it out",
            ));
        }
        let mut each = |name: &str, values: Vec<String>| values.into_iter().for_each(|v| flag(name, v));
        fn texts<T: ToString>(values: &[T]) -> Vec<String> {
            values.iter().map(ToString::to_string).collect()
        }
        fn text<T: ToString>(value: &Option<T>) -> Vec<String> {
            value.iter().map(ToString::to_string).collect()
        }
        each("env-file", self.env_files.iter().map(|p| path(p)).collect());
        each("publish", texts(&self.publish));
        each("domain", self.domains.clone());
        each("volume", texts(&self.volumes));
        let link = |l: &LinkFlag| LinkFlag { host: path(Path::new(&l.host)), ..l.clone() }.to_string();
        each("link", self.links.iter().map(link).collect());
        each("after", self.after.clone());
        each("after-timeout", text(&self.after_timeout));
        each("scale", text(&self.scale));
        each("source", text(&self.source));
        each("egress", text(&self.egress));
        each("egress-allow", self.egress_allow.clone());
        each("network", text(&self.network));
        each("dns", texts(&self.dns));
        each("add-host", texts(&self.add_hosts));
        each("device", self.devices.iter().map(|p| p.display().to_string()).collect());
        each("entrypoint", text(&self.entrypoint));
        each("user", text(&self.user));
        each("workdir", text(&self.workdir));
        each("stop-signal", text(&self.stop_signal));
        each("stop-timeout", text(&self.stop_timeout));
        each("drain", text(&self.drain));
        each("capabilities", text(&self.capabilities));
        each("mem", text(&self.mem));
        each("cpu", text(&self.cpu));
        each("pids", text(&self.pids));
        each("restart", text(&self.restart));
        each("param", texts(&self.params));
        each("set", texts(&self.set));
        let switches = [
            ("--grant-links", self.grant_links),
            ("--insecure-source", self.insecure_source),
            ("--no-init", self.no_init),
            ("--privileged", self.privileged),
        ];
        words.extend(switches.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()));
        Ok(words)
    }

    /// `--restart`, if given.
    pub(crate) fn restart_policy(&self) -> Result<Option<RestartPolicy>, RunError> {
        Ok(Some(match self.restart.as_deref() {
            None => return Ok(None),
            Some("never") => RestartPolicy::Never,
            Some("on-failure") => RestartPolicy::OnFailure,
            Some("always") => RestartPolicy::Always,
            Some(other) => {
                return Err(RunError::usage(
                    format!("{other:?} is not a restart policy"),
                    "write never, on-failure or always",
                ));
            }
        }))
    }
}

/// The most instances that one run starts. Source: the network's "at most 1,000 instances a host".
pub const MAX_SCALE: u32 = 1000;

/// `-e K=V`, or `-e K` for the caller's own value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvFlag {
    /// `K=V`; nothing in `V` is expanded.
    Set(String, String),
    /// `K`: the value comes from the caller's environment.
    FromCaller(String),
}

impl FromStr for EnvFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let (key, value) = match s.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (s, None),
        };
        if !is_variable_name(key) {
            return Err(NounError::new(format!("{key:?} is not a variable's name"))
                .hint("write KEY=VALUE, or KEY alone for the value of your own environment"));
        }
        if value.is_some_and(|v| v.contains('\0')) {
            return Err(NounError::new(format!("the value of {key} holds a zero byte")));
        }
        Ok(match value {
            Some(value) => Self::Set(key.to_owned(), value.to_owned()),
            None => Self::FromCaller(key.to_owned()),
        })
    }
}

/// Whether a text can stand before `=` in an environment: not empty, no `=`, no zero byte, no space.
pub(crate) fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(['=', '\0'])
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// `--volume NAME:PATH` or `--volume PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeFlag {
    /// The name, where one was written.
    pub name: Option<String>,
    /// The absolute path inside.
    pub path: String,
}

impl FromStr for VolumeFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a volume: {why}"))
                .hint("write NAME:PATH or PATH, as in data:/var/lib/app; to bind a host folder, use --link HOST:CONTAINER")
        };
        let (name, path) = match s.split_once(':') {
            Some((name, path)) => (Some(name), path),
            None => (None, s),
        };
        if name.is_some_and(|n| n.contains('/')) {
            return Err(wrong("a volume has a name, not a host path"));
        }
        if name.is_some_and(|n| !is_volume_name(n)) {
            return Err(wrong(
                "its name has only letters, digits, . _ and -, and begins with a letter or digit",
            ));
        }
        let path =
            absolute(path).ok_or_else(|| wrong("its path is absolute, without .. and not / itself"))?;
        Ok(Self { name: name.map(str::to_owned), path })
    }
}

/// Whether a text can be a folder `<name>.<n>` of a volume.
pub(crate) fn is_volume_name(text: &str) -> bool {
    text.len() <= 64
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

impl fmt::Display for VolumeFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}:{}", self.path),
            None => f.write_str(&self.path),
        }
    }
}

/// An absolute path inside, without doubled or trailing slashes; `None` for `/`, relative ones and `..`.
pub(crate) fn absolute(path: &str) -> Option<String> {
    if !path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.is_empty() || parts.contains(&"..") {
        return None;
    }
    Some(format!("/{}", parts.join("/")))
}

/// `--link HOST:CONTAINER[:ro]`, as written: relative paths are made absolute by the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFlag {
    /// The path on the host.
    pub host: String,
    /// The path inside.
    pub at: String,
    /// `:ro`.
    pub read_only: bool,
}

impl FromStr for LinkFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a link: {why}"))
                .hint("write HOST:CONTAINER[:ro], as in ./public:/srv/www:ro")
        };
        let (rest, read_only) = match s.strip_suffix(":ro") {
            Some(rest) => (rest, true),
            None => (s.strip_suffix(":rw").unwrap_or(s), false),
        };
        let (host, at) = rest.split_once(':').ok_or_else(|| wrong("it has no : between the two paths"))?;
        if host.is_empty() || at.is_empty() {
            return Err(wrong("one of its paths is empty"));
        }
        if at.contains(':') {
            return Err(wrong("it has too many parts"));
        }
        if s.contains('\0') {
            return Err(wrong("it holds a zero byte"));
        }
        if at.split('/').any(|p| p == "..") {
            return Err(wrong("the path inside has no .."));
        }
        Ok(Self { host: host.to_owned(), at: at.to_owned(), read_only })
    }
}

impl fmt::Display for LinkFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{}", self.host, self.at, if self.read_only { ":ro" } else { "" })
    }
}

/// `--network`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFlag {
    /// Loopback only.
    None,
    /// The host's network.
    Host,
}

impl FromStr for NetworkFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        match s {
            "none" => Ok(Self::None),
            "host" => Ok(Self::Host),
            _ => Err(NounError::new(format!("{s:?} is not a network")).hint("write none or host")),
        }
    }
}

impl fmt::Display for NetworkFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Host => "host",
        })
    }
}

/// `--add-host NAME:IP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddHost {
    /// The name inside.
    pub name: String,
    /// Its address.
    pub ip: IpAddr,
}

impl FromStr for AddHost {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = || {
            NounError::new(format!("{s:?} is not a host entry")).hint("write NAME:IP, as in db.test:10.0.0.7")
        };
        let (name, ip) = s.split_once(':').ok_or_else(wrong)?;
        let well = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        let ip = ip.strip_prefix('[').and_then(|i| i.strip_suffix(']')).unwrap_or(ip);
        if !well {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), ip: ip.parse().map_err(|_| wrong())? })
    }
}

impl fmt::Display for AddHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.ip)
    }
}

/// `--user`: the manifest's triple, or a user that the image knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserFlag {
    /// `name:uid:gid`.
    Triple(UserSpec),
    /// `name`, looked up in the image's `/etc/passwd`.
    Name(String),
    /// `uid` or `uid:gid`.
    Ids(u32, Option<u32>),
}

impl FromStr for UserFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not a user: {why}"))
                .hint("write name, uid, uid:gid or name:uid:gid, as in app:1000:1000")
        };
        let id = |t: &str| match t.parse::<u32>() {
            Ok(id) if id <= 65_535 && t.bytes().all(|b| b.is_ascii_digit()) => Ok(id),
            _ => Err(wrong("ids are numbers from 0 to 65535")),
        };
        let parts: Vec<&str> = s.split(':').collect();
        let numeric = parts[0].bytes().all(|b| b.is_ascii_digit()) && !parts[0].is_empty();
        match parts[..] {
            [uid] if numeric => Ok(Self::Ids(id(uid)?, None)),
            [uid, gid] if numeric => Ok(Self::Ids(id(uid)?, Some(id(gid)?))),
            [name] if !name.is_empty() && name.len() <= 32 && !name.contains(['/', '\0', '\n']) => {
                Ok(Self::Name(name.to_owned()))
            }
            [_, _, _] => s.parse().map(Self::Triple),
            _ => Err(wrong("its form is not known")),
        }
    }
}

impl fmt::Display for UserFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Triple(user) => write!(f, "{user}"),
            Self::Name(name) => f.write_str(name),
            Self::Ids(uid, None) => write!(f, "{uid}"),
            Self::Ids(uid, Some(gid)) => write!(f, "{uid}:{gid}"),
        }
    }
}

/// `--entrypoint`: one word is a program, a text is a shell line as in a manifest, `["a", "b"]` is an argv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrypointFlag(pub ply_manifest::Entrypoint);

impl FromStr for EntrypointFlag {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        use ply_manifest::Entrypoint;
        let wrong = |why: &str| {
            NounError::new(format!("{s:?} is not an entrypoint: {why}"))
                .hint("write a program, a shell line, or a list as [\"node\", \"server.js\"]")
        };
        if s.trim().is_empty() || s.contains('\0') {
            return Err(wrong("it is empty or holds a zero byte"));
        }
        if s.trim_start().starts_with('[')
            && s.trim_end().ends_with(']')
            && !s.contains("];")
            && !s.starts_with("[ ")
        {
            let argv: Vec<String> = serde_json::from_str(s).map_err(|_| wrong("its list can't be read"))?;
            if argv.first().is_none_or(String::is_empty) || argv.iter().any(|a| a.contains('\0')) {
                return Err(wrong("its list names no program"));
            }
            return Ok(Self(Entrypoint::Argv(argv)));
        }
        let plain = s.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._+-@:,".contains(&b));
        Ok(Self(if plain { Entrypoint::Argv(vec![s.to_owned()]) } else { Entrypoint::Shell(s.to_owned()) }))
    }
}

impl fmt::Display for EntrypointFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ply_manifest::Entrypoint::Argv(argv) => write!(f, "{}", serde_json::json!(argv)),
            ply_manifest::Entrypoint::Shell(line) => f.write_str(line),
        }
    }
}

/// `--param K=V` and `--set KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// What stands before the first `=`.
    pub key: String,
    /// What stands behind it.
    pub value: String,
}

impl FromStr for KeyValue {
    type Err = NounError;

    fn from_str(s: &str) -> Result<Self, NounError> {
        match s.split_once('=') {
            Some((key, value)) if !key.is_empty() && !s.contains('\0') => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err(NounError::new(format!("{s:?} is not KEY=VALUE")).hint("write a key, =, and its value")),
        }
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ply_manifest::Entrypoint;

    #[test]
    fn what_is_not_built_yet_is_refused_by_name() {
        let refused = |options: RunOptions| match options.check() {
            Err(RunError::NotBuilt(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(RunOptions { domains: vec!["x.test".into()], ..Default::default() }), "--domain");
        assert_eq!(refused(RunOptions { after: vec!["db".into()], ..Default::default() }), "--after");
        assert_eq!(refused(RunOptions { egress: Some("audit".into()), ..Default::default() }), "--egress");
        let scale = RunOptions { set: vec!["scale.max=4".parse().unwrap()], ..Default::default() };
        assert_eq!(refused(scale), "--set scale.max");
        let udp = RunOptions { publish: vec!["53:53/udp".parse().unwrap()], ..Default::default() };
        assert_eq!(refused(udp), "--publish 53:53/udp (udp)");
        let fine = RunOptions {
            restart: Some("on-failure".into()),
            egress: Some("off".into()),
            set: vec!["scale.min=2".parse().unwrap(), "workdir=/".parse().unwrap()],
            ..Default::default()
        };
        fine.check().unwrap();
    }

    #[test]
    fn an_env_flag_is_a_pair_or_a_name() {
        assert_eq!("A=b=c".parse(), Ok(EnvFlag::Set("A".into(), "b=c".into())));
        assert_eq!("A=".parse(), Ok(EnvFlag::Set("A".into(), String::new())));
        assert_eq!("A".parse(), Ok(EnvFlag::FromCaller("A".into())));
        for wrong in ["", "=x", "A B=1", "A\n"] {
            assert!(wrong.parse::<EnvFlag>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn volumes_and_links_are_told_apart() {
        assert_eq!(
            "data:/var/lib/x/".parse(),
            Ok(VolumeFlag { name: Some("data".into()), path: "/var/lib/x".into() })
        );
        assert_eq!("/srv//up".parse(), Ok(VolumeFlag { name: None, path: "/srv/up".into() }));
        for wrong in ["/host:/inside", "data", "data:rel", "data:/", "data:/a/../b", "../x:/y", "a b:/x"] {
            assert!(wrong.parse::<VolumeFlag>().is_err(), "{wrong}");
        }
        let link = |s: &str| s.parse::<LinkFlag>();
        assert_eq!(link("./a:/b:ro"), Ok(LinkFlag { host: "./a".into(), at: "/b".into(), read_only: true }));
        assert_eq!(link("a:b"), Ok(LinkFlag { host: "a".into(), at: "b".into(), read_only: false }));
        for wrong in ["a", ":b", "a:", "a:b:c", "a:/b/../c"] {
            assert!(link(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn users_entrypoints_and_hosts_parse() {
        assert_eq!("redis".parse(), Ok(UserFlag::Name("redis".into())));
        assert_eq!("1000".parse(), Ok(UserFlag::Ids(1000, None)));
        assert_eq!("1000:7".parse(), Ok(UserFlag::Ids(1000, Some(7))));
        assert!(matches!("app:1:2".parse(), Ok(UserFlag::Triple(_))));
        for wrong in ["", "70000", "a:b", "1:2:3:4", "../x"] {
            assert!(wrong.parse::<UserFlag>().is_err(), "{wrong}");
        }
        let entry = |s: &str| s.parse::<EntrypointFlag>().map(|e| e.0);
        assert_eq!(entry("redis-cli"), Ok(Entrypoint::Argv(vec!["redis-cli".into()])));
        assert_eq!(entry("[\"a\", \"b c\"]"), Ok(Entrypoint::Argv(vec!["a".into(), "b c".into()])));
        assert_eq!(entry("echo $HOME"), Ok(Entrypoint::Shell("echo $HOME".into())));
        assert_eq!(entry("[ -f /x ] && [ -f y ]"), Ok(Entrypoint::Shell("[ -f /x ] && [ -f y ]".into())));
        assert!(entry(" ").is_err() && entry("[]").is_err());
        assert_eq!("x:::1".parse(), Ok(AddHost { name: "x".into(), ip: "::1".parse().unwrap() }));
        assert!("x".parse::<AddHost>().is_err() && "a b:1.2.3.4".parse::<AddHost>().is_err());
    }
}
