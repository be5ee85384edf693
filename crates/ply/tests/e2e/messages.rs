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
            "[run]\nentrypoint = [\"/x\"]\n[run.volumes]\na = \"/\"\np = \"/proc/x\"\nb = \"/d\"\nc = \"/d\"\nd = \"rel/../x\"\n",
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
        &["./sh", "--restart", "sometimes"],
        &["./sh", "--publish", "53/udp"],
        &["./sh", "--publish", "nonsense"],
        &["./sh", "--publish", "80"],
        &["./sh", "--param", "x=1"],
        &["./sh", "--set", "nothing=1"],
        &["./sh", "--set", "health.grace=soon"],
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

/// A registry of packages made for one test, in its world.
impl Seen {
    /// Builds a package into the registry.
    #[track_caller]
    fn publish(&self, name: &str, version: &str, more: &str) {
        let text = format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\n{more}");
        self.world.write(format!("kegs/{name}-{version}/ply.toml"), text);
        self.world.write(format!("kegs/{name}-{version}/file"), name);
        self.world.mkdir(format!("registry/{name}"));
        let to = self.world.path(format!("registry/{name}"));
        let source = self.source();
        let dir = format!("kegs/{name}-{version}");
        self.world.run(["build", &dir, "-o", &to.display().to_string(), "--source", &source]).expect(0);
    }

    fn source(&self) -> String {
        format!("file://{}/{{package}}", self.world.path("registry").display())
    }

    /// A manifest that is refused with the packages of this registry.
    #[track_caller]
    fn refused_with(&mut self, text: &str) {
        self.world.write("app/ply.toml", text);
        let done = self.world.run(["build", "app", "--source", &self.source()]);
        assert_ne!(done.code, Some(0), "{text}");
        assert!(!self.world.path("work/app/ply.lock").exists(), "{text}\na refused build left a lock");
        self.text.push_str(&format!("{}\n{}\n", text.trim(), stable(&done.seen())));
    }
}

#[test]
fn graphs_that_do_not_resolve() {
    let mut seen = Seen::new(Who::User);
    seen.publish("x", "1.0.0", "");
    seen.publish("x", "2.0.0", "");
    seen.publish("lib", "1.0.0", "[build.dependencies]\nx = \"2\"\n");
    seen.publish("one", "1.0.0", "[build]\nbase = true\n");
    seen.publish("two", "1.0.0", "[build]\nbase = true\n");
    seen.publish("onto", "1.0.0", "[build]\nbase = \"two@1\"\n");
    seen.publish("a", "1.0.0", "");
    seen.publish("b", "1.0.0", "[build.dependencies]\na = \"1\"\n");
    let on = |base: &str, asks: &str| {
        app(&format!(
            "[build]\nbase = \"{base}\"\n[build.dependencies]\n{asks}\n[run]\nentrypoint = [\"/x\"]\n"
        ))
    };
    seen.refused_with(&on("one@1", "lib = \"1\"\nx = \"1\""));
    seen.refused_with(&on("one@1", "onto = \"1\""));
    seen.refused_with(&on("x@1", "a = \"1\""));
    seen.refused_with("[package]\nname = \"a\"\nversion = \"1.1.0\"\n[build.dependencies]\nb = \"1\"\n");
    // An image whose name says another than what it holds, and one that ends too early.
    let shelf = seen.world.path("registry");
    std::fs::copy(shelf.join("a/a-1.0.0-linux-x64.img"), shelf.join("a/a-3.0.0-linux-x64.img")).unwrap();
    seen.refused_with(&on("one@1", "a = \"3\""));
    let torn = shelf.join("b/b-1.0.0-linux-x64.img");
    std::fs::File::options().write(true).open(&torn).unwrap().set_len(200).unwrap();
    std::fs::remove_dir_all(seen.world.path("data/store")).unwrap();
    seen.refused_with(&on("one@1", "b = \"1\""));
    insta::assert_snapshot!(seen.text);
}

#[test]
fn images_and_outputs_that_are_refused() {
    let mut seen = Seen::new(Who::User);
    seen.world.write("app/ply.toml", app("[run]\nentrypoint = [\"/opt/app/start\"]\n"));
    seen.world.write("app/start", "");
    seen.world.run(["build", "app", "-o", "app-1.0.0-linux-x64.img"]).expect(0);
    seen.world.run(["build", "app", "--arch", "arm64", "-o", "app-1.0.0-linux-arm64.img"]).expect(0);
    seen.case(&["run", "app-1.0.0-linux-arm64.img"]);
    let image = std::fs::read(seen.world.path("work/app-1.0.0-linux-x64.img")).unwrap();
    seen.world.write("other-2.0.0-linux-x64.img", &image);
    seen.case(&["run", "other-2.0.0-linux-x64.img"]);
    seen.case(&["run", "app-1.0.0-linux-x64.img"]);
    // From here on there is something to lock, and nothing that is refused leaves a lock.
    seen.world.write(
        "app/ply.toml",
        app("[build]\nbase = \"debian@13\"\n[run]\nentrypoint = [\"/opt/app/start\"]\n"),
    );
    // Mach-O, arm64: no package of it has anything for Linux.
    seen.world.write("app/node_modules/p/package.json", "{}");
    seen.world.write(
        "app/node_modules/p/p.node",
        b"\xcf\xfa\xed\xfe\x0c\0\0\x01\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    seen.case(&["build", "app"]);
    std::fs::remove_dir_all(seen.world.path("work/app/node_modules")).unwrap();
    seen.case(&["build", "app", "-o", "nowhere/app.img"]);
    // A folder of root's.
    std::fs::create_dir(seen.world.path("work/shut")).unwrap();
    seen.case(&["build", "app", "-o", "shut/app.img"]);
    assert!(!seen.world.path("work/app/ply.lock").exists());
    seen.world.run(["build", "app"]).expect(0);
    assert!(seen.world.path("work/app/ply.lock").exists());
    insta::assert_snapshot!(seen.text);
}

#[test]
fn what_another_app_has_is_told_with_its_name() {
    for who in crate::harness::BOTH {
        let mut seen = Seen::new(who);
        seen.world.write("sh/ply.toml", SHELL);
        let port = crate::harness::free_port().to_string();
        let publish = format!("{port}:80");
        let mut first = seen.world.start([
            "run",
            "./sh",
            "--name",
            "web",
            "--publish",
            &publish,
            "--",
            "-c",
            "echo up; exec sleep 60",
        ]);
        crate::harness::eventually("it runs", std::time::Duration::from_secs(20), || {
            first.out().contains("up").then_some(())
        });
        let local = format!("127.0.0.1:{port}:80");
        for args in [
            &["run", "./sh", "--name", "web", "--", "-c", "true"] as &[&str],
            &["run", "./sh", "--name", "db", "--publish", &local],
            &["rm", "wep"],
            &["stop", "web.1"],
            &["logs", "wep", "-f"],
        ] {
            let done = seen.world.run(args);
            assert_ne!(done.code, Some(0), "{args:?}");
            let text = format!("$ ply {}\n{}\n", args.join(" "), stable(&done.seen()));
            let text = text.replace(&port, "[PORT]").replace(&first.child.id().to_string(), "[PID]");
            seen.text.push_str(&text);
        }
        // Which one is free next is not this test's.
        let text = &seen.text;
        let text: String = text
            .lines()
            .map(|line| {
                if line.contains(" is free: ") {
                    "hint: [FREE] is free: --publish 127.0.0.1:[FREE]:80\n".to_owned()
                } else {
                    format!("{line}\n")
                }
            })
            .collect();
        // What can be done is done, and the rest is said.
        let done = seen.world.run(["stop", "nobody", "web"]).expect(1);
        let followed = seen.world.run(["logs", "web", "-f"]).expect(0);
        assert!(followed.out.contains("up"), "{who:?}\n{}", followed.out);
        first.wait(std::time::Duration::from_secs(10));
        insta::assert_snapshot!(
            "what_another_app_has",
            format!("{text}$ ply stop nobody web\n{}", done.seen())
        );
        assert!(
            seen.text.contains("is free: --publish 127.0.0.1:"),
            "{who:?}: the address stays\n{}",
            seen.text
        );
    }
}

#[test]
fn a_user_without_a_range_is_told_what_to_ask_for() {
    let mut seen = Seen::new(Who::Bare);
    seen.world.write("sh/ply.toml", SHELL);
    seen.case(&["run", "./sh", "--user", "1000:1000", "--", "-c", "true"]);
    insta::assert_snapshot!(seen.text);
}

#[test]
fn slips_of_the_pen_are_answered() {
    let mut seen = Seen::new(Who::User);
    seen.world.write("sh/ply.toml", SHELL);
    seen.world.mkdir("work/empty");
    for args in [
        &["rnu"] as &[&str],
        &["run", "redis:8"],
        &["run", "./empty"],
        &["run", "./sh", "--scale", "x"],
        &["logs", "web", "-n", "-1"],
        &["run", "./sh", "--pids", "1"],
        &["run", "./sh", "--mem", "1"],
        &["run", "./sh", "--workdir", "/nothing"],
        &["run", "./sh", "--entrypoint", "/etc"],
        &["inspect", "nowhere.img"],
        &["check", "nowhere.img"],
        &["check", "./sh", "--against", "nowhere.toml"],
        &["search", "x", "--source", "/nowhere/{package}"],
        &["run", "redis@8", "--source", "/nowhere"],
    ] {
        seen.case(args);
    }
    for (name, value) in [("PLY_DATA_DIR", "rel"), ("PLY_RUN_DIR", "./rel"), ("PLY_CONFIG_DIR", "rel")] {
        let mut command = seen.world.ply(["ps"]);
        command.env(name, value);
        let done = seen.world.finish(command).expect(1);
        seen.text.push_str(&format!("{name}={value} ply ps\n{}\n", done.seen()));
    }
    seen.world.run(["build", "sh"]).expect(0);
    seen.world.write("sh/ply.toml", SHELL.replace("[run]", "[build.dependencies]\nnode = \"22\"\n[run]"));
    seen.case(&["tree", "--dir", "sh"]);
    insta::assert_snapshot!(seen.text);
}
