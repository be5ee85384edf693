//! What a user sees when something is wrong: exact words and exit codes, and nothing left behind. A snapshot
//! holds every case of a theme: the command, its exit code, what it printed.

use crate::harness::{Who, World, leftovers, registry};
use crate::inside::SHELL;

/// Collects cases; what differs from machine to machine is replaced.
struct Seen {
    world: World,
    text: String,
}

impl Seen {
    fn new(who: Who) -> Self {
        Self { world: World::new(who), text: String::new() }
    }

    /// Runs `ply ARGS…`, which fails, and keeps what is seen. Nothing of it may remain.
    #[track_caller]
    fn case(&mut self, args: &[&str]) {
        let done = self.world.run(args);
        assert_ne!(done.code, Some(0), "{args:?}\n{}{}", done.out, done.err);
        let seen = stable(&done.seen());
        self.text.push_str(&format!("$ ply {}\n{seen}\n", args.join(" ")));
        assert_eq!(leftovers(&self.world), Vec::<String>::new(), "{args:?}");
        let states = std::fs::read_dir(self.world.path("run/state")).map_or(0, Iterator::count);
        assert_eq!(states, 0, "{args:?}: a state file is left");
    }

    /// A manifest that `ply build` refuses; neither an image nor a lock is written.
    #[track_caller]
    fn manifest(&mut self, text: &str) {
        self.world.write("app/ply.toml", text);
        self.text.push_str(&format!("{}\n", text.trim()));
        self.case(&["build", "app"]);
        let files = std::fs::read_dir(self.world.path("work/app")).unwrap().flatten();
        let written: Vec<_> = files
            .map(|f| f.file_name().to_string_lossy().into_owned())
            .filter(|f| f.ends_with(".img") || f == "ply.lock" || f.contains("tmp"))
            .collect();
        assert_eq!(written, Vec::<String>::new(), "{text}");
    }
}

/// Replaces the registry's place, digests, versions of minted packages, sizes and process ids.
fn stable(text: &str) -> String {
    let text = text
        .replace(&registry(), "[REGISTRY]")
        .replace(registry().trim_start_matches("file://"), "[REGISTRY]");
    let text =
        text.replace(registry().trim_start_matches("file://").trim_end_matches("/{package}"), "[FOLDER]");
    let mut text = text;
    // What was minted depends on the day.
    for package in std::fs::read_dir(crate::harness::cache().join("registry")).unwrap().flatten() {
        for file in std::fs::read_dir(package.path()).into_iter().flatten().flatten() {
            if let Ok(image) = file.file_name().to_string_lossy().parse::<ply_manifest::ImageName>() {
                text = text.replace(&image.version.to_string(), "[VERSION]");
            }
        }
    }
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with("fetched ") {
            continue;
        }
        let words: Vec<String> = line
            .split(' ')
            .map(|word| {
                if let Some(at) = word.find("sha256:") {
                    let rest = word[at + 7..].trim_start_matches(|c: char| c.is_ascii_hexdigit());
                    format!("{}[DIGEST]{rest}", &word[..at])
                } else {
                    word.to_owned()
                }
            })
            .collect();
        out.push_str(&words.join(" "));
        out.push('\n');
    }
    out
}

fn app(more: &str) -> String {
    format!("[package]\nname = \"app\"\nversion = \"1.0.0\"\n{more}")
}

#[test]
fn words_from_other_tools_are_answered() {
    let mut seen = Seen::new(Who::User);
    for word in ["pull", "images", "compose", "kill", "rmi", "up", "deploy", "push"] {
        seen.case(&[word]);
    }
    insta::assert_snapshot!(seen.text);
}

#[test]
fn manifests_with_faults() {
    let mut seen = Seen::new(Who::User);
    let faults = [
        "[package]\nname = \"app\"\n",
        "[package]\nname = \"App-1\"\nversion = \"1\"\n",
        "[package\n",
        &app("[run]\nentripoint = [\"x\"]\n"),
        &app(
            "[run]\nentrypoint = [\"/x\"]\nstop_signal = \"SIGNOW\"\n[run.network]\negress = [\"not a host\"]\n",
        ),
        &app(
            "[run]\nentrypoint = [\"/x\"]\ncapabilities = [\"fly\"]\nuser = \"app\"\n[run.ports]\nweb = 70000\n",
        ),
        &app(
            "[run]\nentrypoint = [\"/x\"]\n[run.volumes]\na = \"/\"\nb = \"/d\"\nc = \"/d\"\nd = \"rel/../x\"\n",
        ),
        &app(
            "[run]\nentrypoint = [\"/x\"]\n[run.resources]\nmem = \"lots\"\ncpu = \"0\"\n[run.health]\ngrace = \"soon\"\n",
        ),
        &app(
            "[run]\nentrypoint = [\"/x\"]\n[run.params]\nhost = \"x\"\nkey = { secret = true, value = \"y\" }\na = \"{b}\"\nb = \"{a}\"\n[run.env]\nX = \"{nothing}\"\nY = \"{state}\"\n",
        ),
        &app("[env]\nA = \"1\"\n[run.env]\nA = \"2\"\n"),
        &app("[build.dependencies]\nnode = \"^22\"\nother = { source = \"mine\", version = \"1\" }\n"),
        &app("[run]\nentrypoint = \"echo hi\"\n"),
        &app("[run]\nentrypoint = [\"/x\"]\n[run.scale]\nmin = 0\nmax = 3\n"),
    ];
    for fault in faults {
        seen.manifest(fault);
    }
    insta::assert_snapshot!(seen.text);
}

#[test]
fn builds_that_are_refused() {
    let mut seen = Seen::new(Who::User);
    seen.case(&["build", "nowhere"]);
    seen.world.mkdir("work/empty");
    seen.case(&["build", "empty"]);
    seen.manifest(&app("[build]\ninclude = [\"dist/\", \"*.none\"]\n"));
    seen.world.write("app/.env", "SECRET=1");
    seen.world.write("app/keys/server.key", "secret");
    seen.manifest(&app(""));
    std::fs::remove_file(seen.world.path("work/app/.env")).unwrap();
    std::fs::remove_dir_all(seen.world.path("work/app/keys")).unwrap();
    seen.manifest(&app("[build]\nbase = \"debian@99\"\n[run]\nentrypoint = [\"/bin/true\"]\n"));
    seen.manifest(&app("[build]\nbase = \"debian@13\"\n[build.dependencies]\nnoed = \"22\"\n[run]\nentrypoint = [\"/bin/true\"]\n"));
    seen.manifest(&app("[build.dependencies]\nnode = \"22\"\n[run]\nentrypoint = [\"node\"]\n"));
    seen.manifest(&app("[build]\nbase = \"debian@13\"\n[build.requires]\nabi = \"linux-x64-musl\"\n[run]\nentrypoint = [\"/bin/true\"]\n"));
    seen.manifest(&app("[build]\nbase = \"x@1\"\n[build.sources]\ndefault = \"github:owner/repo\"\n[run]\nentrypoint = [\"/bin/true\"]\n"));
    seen.manifest("[package]\nname = \"many\"\n[[service]]\nrun = \"redis@8\"\n");
    seen.world.write("app/ply.toml", SHELL);
    seen.case(&["build", "app", "--locked"]);
    seen.world.write("app/ply.lock", "version = 99\n");
    seen.case(&["build", "app"]);
    std::fs::remove_file(seen.world.path("work/app/ply.lock")).unwrap();
    let socket = seen.world.path("work/app/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    seen.case(&["build", "app"]);
    insta::assert_snapshot!(seen.text);
}

#[test]
fn runs_that_are_refused() {
    let mut seen = Seen::new(Who::User);
    seen.world.write("sh/ply.toml", SHELL);
    for args in [
        &["nowhere@1"] as &[&str],
        &["./nowhere"],
        &["nothing.img"],
        &["docker://redis:8"],
        &["ftp://host/x.img"],
        &["owner/app@1", "--source", "/srv/{package}"],
        &["node@22"],
        &["redis@1"],
        &["./sh", "--entrypoint", "/bin/bsah"],
        &["./sh", "--entrypoint", "/etc/passwd"],
        &["./sh", "--user", "nobody-here"],
        &["./sh", "--workdir", "relative"],
        &["./sh", "--scale", "2", "-t"],
        &["./sh", "--domain", "example.com"],
        &["./sh", "--after", "db"],
        &["./sh", "--egress", "enforce"],
        &["./sh", "--restart", "always"],
        &["./sh", "--drain", "5s"],
        &["./sh", "--publish", "53/udp"],
        &["./sh", "--publish", "nonsense"],
        &["./sh", "--publish", "80"],
        &["./sh", "--param", "x=1"],
        &["./sh", "--set", "nothing=1"],
        &["./sh", "--set", "health.grace=5s"],
        &["./sh", "-e", "NOT_SET_ANYWHERE"],
        &["./sh", "-e", "1 2=3"],
        &["./sh", "--env-file", "missing.env"],
        &["./sh", "--volume", "relative"],
        &["./sh", "--link", "missing:/srv/x"],
        &["./sh", "--link", "sh"],
        &["./sh", "--device", "/dev/nothing"],
        &["--installed", "nobody"],
        &[],
    ] {
        let mut all = vec!["run"];
        all.extend(args);
        seen.case(&all);
    }
    seen.world.write("bad.env", "A=1\nexport B=2\n");
    seen.case(&["run", "./sh", "--env-file", "bad.env"]);
    seen.world.write("torn-1.0.0-linux-x64.img", "not an image at all");
    seen.case(&["run", "torn-1.0.0-linux-x64.img"]);
    seen.world.write("stack/ply.toml", "[package]\nname = \"many\"\n[[service]]\nrun = \"redis@8\"\n");
    seen.case(&["run", "./stack"]);
    seen.world.write("sealed/ply.toml", format!("{SHELL}[run.env]\nKEY = \"enc:v1:abc\"\n"));
    seen.case(&["run", "./sealed"]);
    seen.world.write(
        "secret/ply.toml",
        format!("{SHELL}[run.params]\nkey = {{ secret = true }}\n[run.env]\nKEY = \"{{key}}\"\n"),
    );
    seen.case(&["run", "./secret"]);
    insta::assert_snapshot!(seen.text);
}

#[test]
fn what_is_not_there() {
    let mut seen = Seen::new(Who::User);
    for args in [
        &["exec", "nobody", "true"] as &[&str],
        &["logs", "nobody"],
        &["stop", "nobody"],
        &["rm", "nobody"],
        &["stop", "Not A Name"],
        &["volume", "rm", "nobody/data.1"],
        &["store", "rm", "abc"],
        &["store", "rm", "abcdef123456"],
        &["inspect", "nowhere"],
        &["inspect", "./nowhere"],
        &["check", "nowhere"],
        &["search", "nothing-is-called-like-this"],
        &["add", "nowhere", "--dir", "."],
        &["update"],
        &["tree"],
        &["outdated"],
        &["fetch", "noed@22"],
        &["fetch", "node@99"],
        &["forge", "all", "nowhere", "-o", "out"],
    ] {
        seen.case(args);
    }
    insta::assert_snapshot!(seen.text);
}
