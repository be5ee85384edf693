//! Deploys: a running app goes over to another image, slot by slot, and back if that one fails.

use crate::harness::{BOTH, Who, World, eventually, free_port, http_get, leftovers};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
const SERVES: &str = "exec busybox httpd -f -p 80 -h /opt/web/www";

/// The sources of `web` in a version whose page is that version.
fn version(world: &World, version: &str, entrypoint: &str, more: &str) {
    world.write(
        "web/ply.toml",
        format!(
            "[package]\nname = \"web\"\nversion = \"{version}\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nbusybox = \"*\"\n\
             [run]\nentrypoint = \"{entrypoint}\"\n[run.ports]\nweb = 80\n{more}"
        ),
    );
    world.write("web/www/index.html", version);
}

/// `web` 1.0.0 in the background, answering on the port that is given back.
fn running(world: &World, flags: &[&str], more: &str) -> u16 {
    version(world, "1.0.0", SERVES, more);
    let port = free_port();
    let publish = port.to_string();
    let mut args = vec!["run", "./web", "-d", "--publish", &publish];
    args.extend(flags);
    world.run(args).expect(0);
    assert_eq!(http_get(port, "/").as_deref(), Some("1.0.0"));
    port
}

/// The slots and images that `ply ps` lists.
fn slots(world: &World) -> Vec<(u64, String)> {
    let rows: serde_json::Value = serde_json::from_str(&world.run(["ps", "--json"]).expect(0).out).unwrap();
    let row = |r: &serde_json::Value| (r["slot"].as_u64().unwrap(), r["image"].as_str().unwrap().to_owned());
    rows.as_array().unwrap().iter().map(row).collect()
}

fn image(version: &str) -> String {
    format!("web-{version}-linux-x64.img")
}

/// Asks for the page over and over while `work` goes on; every answer must be whole. Gives how many there were.
fn asking(port: u16, work: impl FnOnce()) -> usize {
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let page = http_get(port, "/");
                assert!(page.as_ref().is_some_and(|p| p.ends_with(".0.0")), "a request was lost: {page:?}");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        work();
        stop.store(true, Ordering::Relaxed);
    });
    asked.into_inner()
}

#[test]
fn a_new_version_takes_over_without_a_gap_and_rollback_brings_the_old_one_back() {
    for who in BOTH {
        let world = World::new(who);
        let port = running(&world, &[], "");
        version(&world, "2.0.0", SERVES, "");
        let asked = asking(port, || {
            let done = world.run(["deploy", "./web"]).expect(0);
            assert!(done.err.contains("web.2 is started from the new image"), "{who:?}\n{}", done.err);
            assert!(done.err.trim_end().ends_with(&format!("web runs {}", image("2.0.0"))), "{}", done.err);
        });
        assert!(asked > 0);
        assert_eq!(http_get(port, "/").as_deref(), Some("2.0.0"), "{who:?}");
        let now =
            eventually("only the new one is left", LIMIT, || Some(slots(&world)).filter(|s| s.len() == 1));
        assert_eq!(now, [(2, image("2.0.0"))], "{who:?}: it keeps the spare slot");
        let again = world.run(["deploy", "./web"]).expect(0);
        assert!(again.err.contains("already"), "{}", again.err);
        asking(port, || drop(world.run(["rollback", "web"]).expect(0)));
        assert_eq!(http_get(port, "/").as_deref(), Some("1.0.0"), "{who:?}");
        world.run(["rollback", "web"]).expect(0);
        assert_eq!(http_get(port, "/").as_deref(), Some("2.0.0"), "{who:?}: a second one goes forward");
        let events = world.run(["events", "web"]).expect(0).out;
        assert_eq!(events.matches("deployed: web-").count(), 3, "{who:?}\n{events}");
        world.run(["stop", "web"]).expect(0);
        // What a unit or a reboot starts.
        let mut run = world.start(["run", "--installed", "web", "--publish", &port.to_string()]);
        let page = eventually("the page", LIMIT, || http_get(port, "/"));
        assert_eq!(page, "2.0.0", "{who:?}");
        run.signal(libc::SIGTERM);
        run.wait(LIMIT).expect(0);
        assert_eq!(leftovers(&world), Vec::<String>::new(), "{who:?}");
    }
}

#[test]
fn a_version_that_crashes_is_refused_with_its_last_words_and_the_old_one_serves_on() {
    for who in BOTH {
        let world = World::new(who);
        let port = running(&world, &[], "");
        version(&world, "2.0.0", "echo reading the settings; echo no database: db.test >&2; exit 3", "");
        asking(port, || {
            let failed = world.run(["deploy", "./web"]);
            assert_ne!(failed.code, Some(0), "{who:?}");
            for words in [
                "the new image failed: web.2 ended with exit code 3 before it was healthy",
                "web runs web-1.0.0-linux-x64.img as before",
                "no database: db.test",
                "hint: see what happened: ply why web",
            ] {
                assert!(failed.err.contains(words), "{who:?} {words:?}\n{}", failed.err);
            }
        });
        assert_eq!(slots(&world), [(1, image("1.0.0"))], "{who:?}");
        let why = world.run(["why", "web"]).expect(0).out;
        assert!(why.contains("deploy failed: web.2 ended with exit code 3"), "{who:?}\n{why}");
        world.run(["stop", "web"]).expect(0);
        let plan = world.run(["run", "--installed", "web", "--plan"]).expect(0).out;
        assert!(plan.contains("web-1.0.0"), "{who:?}\n{plan}");
    }
}

#[test]
fn a_version_that_never_answers_is_taken_back_after_its_time() {
    for who in BOTH {
        let world = World::new(who);
        let port = running(&world, &[], "");
        version(&world, "2.0.0", "echo waiting for nothing; exec sleep 1000", "");
        let failed = world.run(["deploy", "./web", "--timeout", "1s"]);
        assert_ne!(failed.code, Some(0), "{who:?}");
        assert!(
            failed.err.contains("did not answer in its time") && failed.err.contains("waiting for nothing"),
            "{who:?}\n{}",
            failed.err
        );
        assert_eq!(http_get(port, "/").as_deref(), Some("1.0.0"), "{who:?}");
        // The one that failed is asked to stop, and then it is gone.
        eventually("only the old one is left", LIMIT, || {
            (slots(&world) == [(1, image("1.0.0"))]).then_some(())
        });
        world.run(["stop", "web"]).expect(0);
    }
}

#[test]
fn a_roll_goes_slot_by_slot_and_a_failure_takes_all_of_it_back() {
    for who in BOTH {
        let world = World::new(who);
        let port = running(&world, &["--scale", "2"], "");
        version(&world, "2.0.0", SERVES, "");
        asking(port, || drop(world.run(["deploy", "./web"]).expect(0)));
        assert_eq!(slots(&world), [(1, image("2.0.0")), (2, image("2.0.0"))], "{who:?}");
        // The first slot comes up, the second doesn't: both go back.
        version(&world, "3.0.0", &format!("test $(hostname) = web-1 || exit 4; {SERVES}"), "");
        asking(port, || {
            let failed = world.run(["deploy", "./web"]);
            assert_ne!(failed.code, Some(0), "{who:?}");
            assert!(failed.err.contains("web.2 ended with exit code 4"), "{who:?}\n{}", failed.err);
            assert!(failed.err.contains("web.1 goes back to web-2.0.0"), "{who:?}\n{}", failed.err);
        });
        assert_eq!(slots(&world), [(1, image("2.0.0")), (2, image("2.0.0"))], "{who:?}");
        world.run(["stop", "web"]).expect(0);
    }
}

#[test]
fn a_volume_of_its_own_stays_with_its_slot() {
    for who in BOTH {
        let world = World::new(who);
        let volume = "[run.volumes]\ndata = \"/data\"\n";
        let port = running(&world, &[], volume);
        world.run(["exec", "web", "sh", "-c", "echo kept > /data/f"]).expect(0);
        version(&world, "2.0.0", SERVES, volume);
        world.run(["deploy", "./web"]).expect(0);
        assert_eq!(slots(&world), [(1, image("2.0.0"))], "{who:?}: no second slot, no second volume");
        assert_eq!(world.run(["exec", "web", "cat", "/data/f"]).expect(0).out, "kept\n", "{who:?}");
        assert_eq!(http_get(port, "/").as_deref(), Some("2.0.0"), "{who:?}");
        world.run(["stop", "web"]).expect(0);
    }
}

#[test]
fn what_cannot_be_deployed_is_refused_before_any_slot_is_touched() {
    for who in BOTH {
        let world = World::new(who);
        version(&world, "1.0.0", SERVES, "");
        let nobody = world.run(["deploy", "./web"]);
        assert!(
            nobody.code != Some(0) && nobody.err.contains("nothing runs under the name web"),
            "{who:?}\n{}",
            nobody.err
        );
        let port = running(&world, &[], "");
        let before = slots(&world);
        let events =
            || world.run(["events", "web"]).expect(0).out.lines().filter(|l| l.contains("started:")).count();
        let started = events();
        let refused = |args: &[&str], words: &str| {
            let done = world.run(args);
            assert_ne!(done.code, Some(0), "{who:?} {args:?}");
            assert!(done.err.contains(words), "{who:?} {args:?}: {words:?}\n{}", done.err);
            assert_eq!((slots(&world), events()), (before.clone(), started), "{who:?} {args:?}");
        };
        world.write("api/ply.toml", "[package]\nname = \"api\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[run]\nentrypoint = [\"/bin/true\"]\n");
        refused(&["deploy", "./api", "--name", "web"], "is another app's image");
        refused(&["deploy", "./api"], "nothing runs under the name api, so there is nothing to deploy to");
        refused(&["deploy", "./nowhere"], "there is nothing at");
        refused(&["rollback", "web"], "web had no other image before");
        refused(&["deploy", "debian@13", "--name", "web"], "debian is a base");
        version(&world, "2.0.0", SERVES, "");
        world.run(["build", "./web", "-o", "web-2.0.0-linux-x64.img"]).expect(0);
        let whole = std::fs::read(world.path("work/web-2.0.0-linux-x64.img")).unwrap();
        world.write("torn/web-2.0.0-linux-x64.img", &whole[..600]);
        refused(&["deploy", "torn/web-2.0.0-linux-x64.img"], "web-2.0.0-linux-x64.img");
        world.write("web-2.0.0-linux-arm64.img", &whole);
        refused(&["deploy", "web-2.0.0-linux-arm64.img"], "arm64");
        // The same by hand: whoever may write the folder gets the same answer.
        let control = world.path("data/apps/web/control");
        for (contents, words) in [
            ("not a path", "absolute path"),
            ("/nowhere/web.img", "there is nothing at /nowhere/web.img"),
            ("/etc/hostname", "hostname"),
        ] {
            std::fs::write(control.join("deploy.x1"), contents).unwrap();
            let result = control.join("results/x1.json");
            let answer = eventually("an answer", LIMIT, || {
                let text = std::fs::read_to_string(&result).ok()?;
                let answer: serde_json::Value = serde_json::from_str(&text).ok()?;
                (answer["done"] == true).then_some(answer)
            });
            assert_eq!(answer["ok"], false, "{answer}");
            assert!(answer["message"].as_str().unwrap().contains(words), "{answer}");
            std::fs::remove_file(result).unwrap();
        }
        assert_eq!((slots(&world), events()), (before, started), "{who:?}");
        assert_eq!(http_get(port, "/").as_deref(), Some("1.0.0"), "{who:?}");
        // A plain file of a good image, by its path alone.
        std::fs::write(
            control.join("deploy"),
            world.path("work/web-2.0.0-linux-x64.img").display().to_string(),
        )
        .unwrap();
        eventually("the new page", LIMIT, || (http_get(port, "/")? == "2.0.0").then_some(()));
        world.run(["stop", "web"]).expect(0);
    }
}

#[test]
fn two_deploys_at_once_come_one_after_the_other_and_a_stop_goes_before_both() {
    let world = World::new(Who::User);
    let port = running(&world, &[], "");
    let images: Vec<String> = ["2.0.0", "3.0.0"]
        .iter()
        .map(|v| {
            version(&world, v, SERVES, "");
            world.run(["build", "./web", "-o", &image(v)]).expect(0);
            world.path("work").join(image(v)).display().to_string()
        })
        .collect();
    let control = world.path("data/apps/web/control");
    for (n, path) in images.iter().enumerate() {
        std::fs::write(control.join(format!("deploy.{n}")), path).unwrap();
    }
    eventually("the second", LIMIT, || (http_get(port, "/")? == "3.0.0").then_some(()));
    for n in 0..2 {
        let result = control.join(format!("results/{n}.json"));
        eventually("each is answered", LIMIT, || {
            std::fs::read_to_string(&result)
                .ok()
                .filter(|t| t.contains("\"ok\": true") || t.contains("\"ok\":true"))
        });
    }
    std::fs::write(control.join("deploy.9"), &images[0]).unwrap();
    world.run(["stop", "web"]).expect(0);
    let answer = std::fs::read_to_string(control.join("results/9.json")).unwrap();
    assert!(answer.contains("web stops") || answer.contains("web runs"), "{answer}");
}

/// A block of code of the page on deploying.
fn documented(language: &str) -> String {
    let page = include_str!("../../../../docs/deploying.md");
    let (_, block) = page.split_once(&format!("```{language}\n")).expect("a block of that language");
    block.split_once("```").expect("its end").0.to_owned()
}

/// Asks over and over on one connection, and on a new one where the answer said that it was the last. Gives how many
/// answers there were; every one must come.
fn keeps_asking(port: u16, stop: &AtomicBool) -> usize {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut asked = 0;
    let mut open: Option<BufReader<std::net::TcpStream>> = None;
    while !stop.load(Ordering::Relaxed) {
        let mut stream = open.take().unwrap_or_else(|| {
            let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            BufReader::new(stream)
        });
        stream.get_mut().write_all(b"GET / HTTP/1.1\r\nHost: hello\r\n\r\n").expect("a request goes out");
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            let n = stream.read_line(&mut line).expect("an answer");
            assert!(n > 0, "request {asked} of a connection was lost");
            if line == "\r\n" {
                break;
            }
            head.push(line.to_ascii_lowercase());
        }
        let mut body = [0; 6];
        stream.read_exact(&mut body).expect("the body");
        assert_eq!(&body, b"hello\n");
        asked += 1;
        if !head.iter().any(|line| line.trim() == "connection: close") {
            open = Some(stream);
        }
    }
    asked
}

#[test]
fn the_documented_apps_lose_no_request_in_a_roll() {
    let apps = [
        ("js", "server.js", "node = \"22\"", "\"node\", \"server.js\""),
        ("python", "server.py", "python3 = \"*\"", "\"python3\", \"server.py\""),
    ];
    for (language, file, needs, entrypoint) in apps {
        let world = World::new(Who::Root);
        // What is fetched of Node's own chunked answers is none of this.
        let code = documented(language)
            .replace("response.end", "response.setHeader(\"Content-Length\", 6);\n  response.end");
        world.write(format!("hello/{file}"), code);
        let manifest = |version: &str| {
            format!(
                "[package]\nname = \"hello\"\nversion = \"{version}\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\n{needs}\n\
                 [run]\nentrypoint = [{entrypoint}]\n[run.ports]\nweb = 3000\n[run.health]\nport = 3000\n"
            )
        };
        world.write("hello/ply.toml", manifest("1.0.0"));
        let port = free_port();
        let publish = port.to_string();
        world.run(["run", "./hello", "-d", "--scale", "2", "--drain", "1s", "--publish", &publish]).expect(0);
        world.write("hello/ply.toml", manifest("2.0.0"));
        let stop = AtomicBool::new(false);
        let asked: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| keeps_asking(port, &stop))).collect();
            world.run(["deploy", "./hello"]).expect(0);
            stop.store(true, Ordering::Relaxed);
            clients.into_iter().map(|c| c.join().expect(language)).sum()
        });
        assert!(asked > 100, "{language}: {asked}");
        world.run(["stop", "hello"]).expect(0);
    }
}

/// Runs a tool that must succeed.
fn tool(program: &str, args: &[&std::ffi::OsStr]) {
    let status = std::process::Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}

#[test]
fn root_a_deploy_that_cannot_be_written_down_is_said() {
    let world = World::new(Who::Root);
    let port = running(&world, &[], "");
    let record = world.path("data/apps/web/installed.json");
    // A file that something is mounted on is not replaced.
    tool("mount", &["--bind".as_ref(), record.as_os_str(), record.as_os_str()]);
    version(&world, "2.0.0", SERVES, "");
    let done = world.run(["deploy", "./web"]);
    tool("umount", &[record.as_os_str()]);
    assert_ne!(done.code, Some(0));
    assert!(
        done.err.contains(
            "web runs web-2.0.0-linux-x64.img; what a restart of web would start could not be written down"
        ),
        "{}",
        done.err
    );
    assert_eq!(http_get(port, "/").as_deref(), Some("2.0.0"));
    world.run(["stop", "web"]).expect(0);
}

#[test]
fn root_a_full_disk_keeps_new_instances_away_and_the_old_ones_serve() {
    let world = World::new(Who::Root);
    let run = world.mkdir("run");
    tool(
        "mount",
        &[
            "-t".as_ref(),
            "tmpfs".as_ref(),
            "-o".as_ref(),
            "size=512k".as_ref(),
            "none".as_ref(),
            run.as_os_str(),
        ],
    );
    let port = running(&world, &["--restart", "always"], "");
    let _ = std::fs::write(run.join("full"), vec![0; 1 << 20]);
    version(&world, "2.0.0", SERVES, "");
    let done = world.run(["deploy", "./web"]);
    assert_ne!(done.code, Some(0));
    assert!(
        done.err.contains("No space left on device") || done.err.contains("exit code 125"),
        "{}",
        done.err
    );
    assert_eq!(http_get(port, "/").as_deref(), Some("1.0.0"), "{}", done.err);
    std::fs::remove_file(run.join("full")).unwrap();
    world.run(["deploy", "./web"]).expect(0);
    assert_eq!(http_get(port, "/").as_deref(), Some("2.0.0"));
    world.run(["stop", "web"]).expect(0);
    world.run(["gc"]).expect(0);
    tool("umount", &["-l".as_ref(), run.as_os_str()]);
}
