//! The life of an app: names, several slots, the background, ps, logs, exec, stop, rm, volumes.

use crate::harness::{BOTH, Who, World, eventually, leftovers};
use crate::inside::{sh, shell, shell_with};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const SERVE: &str = "echo up; trap 'exit 0' TERM; while :; do sleep 0.05; done";

#[test]
fn a_run_in_the_background_is_seen_entered_and_stopped() {
    for who in BOTH {
        let world = shell(who);
        let started = world.run(["run", "./sh", "-d", "--name", "web", "--", "-c", SERVE]).expect(0);
        assert!(
            started.err.contains("ply logs -f web") && started.err.contains("ply stop web"),
            "{}",
            started.err
        );
        let ps = world.run(["ps"]).expect(0);
        assert!(ps.out.contains("web.1"), "{who:?}\n{}", ps.out);
        let json: serde_json::Value =
            serde_json::from_str(&world.run(["ps", "--json"]).expect(0).out).unwrap();
        assert_eq!(json[0]["name"], "web", "{json}");
        assert_eq!(json[0]["slot"], 1, "{json}");
        let inside = world
            .run(["exec", "web", "sh", "-c", "hostname; id -u; grep -E 'CapEff|Seccomp:' /proc/self/status"])
            .expect(0);
        assert_eq!(inside.out, "web-1\n0\nCapEff:\t0000000000000000\nSeccomp:\t2\n", "{who:?}");
        assert_eq!(world.run(["exec", "web.1", "sh", "-c", "exit 5"]).code, Some(5), "{who:?}");
        assert_eq!(world.run(["exec", "web.2", "true"]).code, Some(125), "{who:?}: no such instance");
        let log = eventually("the log", LIMIT, || {
            let out = world.run(["logs", "web"]).expect(0).out;
            out.contains("up").then_some(out)
        });
        assert_eq!(log, "up\n", "{who:?}");
        world.run(["stop", "web"]).expect(0);
        assert_eq!(world.run(["ps"]).expect(0).out, "", "{who:?}");
        assert_eq!(world.run(["logs", "web"]).expect(0).out, "up\n", "{who:?}: after it died");
        assert_eq!(leftovers(&world), Vec::<String>::new(), "{who:?}");
    }
}

#[test]
fn one_parent_a_name() {
    for who in BOTH {
        let world = shell(who);
        world.run(["run", "./sh", "-d", "--", "-c", SERVE]).expect(0);
        let second = world.run(["run", "./sh", "--", "-c", "true"]);
        assert_eq!(second.code, Some(125), "{who:?}");
        assert!(second.err.contains("sh runs already") || second.err.contains("already"), "{}", second.err);
        world.run(["stop", "sh"]).expect(0);
        world.run(["run", "./sh", "--", "-c", "true"]).expect(0);
    }
}

#[test]
fn several_slots_are_told_apart() {
    for who in BOTH {
        let world = shell(who);
        let done = world.run(["run", "./sh", "--scale", "3", "--", "-c", "hostname; cat"]).expect(0);
        let mut lines: Vec<&str> = done.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.len(), 3, "{who:?}\n{}", done.out);
        for (i, line) in lines.iter().enumerate() {
            assert!(
                line.contains(&format!("sh.{}", i + 1)) && line.ends_with(&format!("sh-{}", i + 1)),
                "{line}"
            );
        }
        let codes =
            world.run(["run", "./sh", "--scale", "2", "--", "-c", "test $(hostname) = sh-1 || exit 9"]);
        assert_eq!(codes.code, Some(9), "{who:?}: the first slot that is not 0");
    }
}

#[test]
fn volumes_are_kept_listed_and_removed() {
    for who in BOTH {
        let world = shell_with(
            who,
            "[run.volumes]\ndata = \"/data\"\nboth = { path = \"/both\", scope = \"shared\" }\n",
        );
        sh(&world, &["--scale", "1"], "echo one > /data/f; echo both > /both/f");
        assert_eq!(sh(&world, &[], "cat /data/f /both/f"), "one\nboth\n", "{who:?}");
        let listed = world.run(["volume", "ls"]).expect(0).out;
        assert!(listed.contains("sh/data.1") && listed.contains("sh/both.shared"), "{who:?}\n{listed}");
        let second = world.run(["run", "./sh", "--scale", "2", "--", "-c", "true"]).expect(0);
        assert!(second.err.contains("data"), "{who:?}: an empty second slot is said loudly\n{}", second.err);
        world.run(["run", "./sh", "-d", "--", "-c", SERVE]).expect(0);
        let busy = world.run(["volume", "rm", "sh/data.1"]);
        assert_ne!(busy.code, Some(0), "{who:?}: one in use is never removed");
        world.run(["stop", "sh"]).expect(0);
        world.run(["volume", "rm", "sh/data.1"]).expect(0);
        assert_eq!(sh(&world, &[], "ls /data; cat /both/f"), "both\n", "{who:?}");
        world.run(["rm", "sh", "--volumes"]).expect(0);
        assert_eq!(world.run(["volume", "ls"]).expect(0).out, "", "{who:?}");
    }
}

#[test]
fn a_volume_starts_with_what_the_image_has() {
    for who in BOTH {
        let world = World::new(who);
        world.write("seed/ply.toml", "[package]\nname = \"seed\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[run]\nentrypoint = [\"/bin/sh\"]\nuser = \"app:1000:1000\"\n[run.volumes]\nconf = \"/opt/seed/conf\"\n");
        world.write("seed/conf/default", "from the image");
        let out = world
            .run([
                "run",
                "./seed",
                "--",
                "-c",
                "cat conf/default; echo; stat -c %u conf/default; echo mine > conf/default",
            ])
            .expect(0);
        assert_eq!(out.out, "from the image\n1000\n", "{who:?}");
        assert_eq!(
            world.run(["run", "./seed", "--", "-c", "cat conf/default"]).expect(0).out,
            "mine\n",
            "{who:?}"
        );
    }
}

#[test]
fn what_was_run_last_runs_again_by_its_name() {
    for who in BOTH {
        let world = shell(who);
        sh(&world, &["--name", "app"], "true");
        std::fs::remove_dir_all(world.path("work/sh")).unwrap();
        let again = world.run(["run", "--installed", "app", "--", "-c", "echo again"]).expect(0);
        assert_eq!(again.out, "again\n", "{who:?}");
        world.run(["rm", "app"]).expect(0);
        let gone = world.run(["run", "--installed", "app"]);
        assert_eq!(gone.code, Some(125), "{who:?}");
    }
}

#[test]
fn a_plan_says_everything_and_does_nothing() {
    for who in BOTH {
        let world = shell_with(who, "[run.env]\nTOKEN = \"t\"\n");
        let plan = world
            .run(["run", "./sh", "--plan", "--publish", "8080", "-e", "X=1", "--mem", "64M"])
            .expect(0)
            .out;
        let words: Vec<&str> = plan.split_whitespace().collect();
        let shown = words.join(" ");
        // A value that looks like a secret is masked.
        for word in
            ["debian-13", "public:8080", "X 1 (-e)", "TOKEN •••••• (manifest)", "memory 64M", "/bin/sh"]
        {
            assert!(shown.contains(word), "{who:?} {word}\n{plan}");
        }
        let json = world.run(["run", "./sh", "--plan", "--json"]).expect(0).out;
        serde_json::from_str::<serde_json::Value>(&json).expect("the plan is JSON");
        assert_eq!(world.run(["ps"]).expect(0).out, "");
    }
}

#[test]
fn an_overlay_is_for_the_developer_alone() {
    for who in BOTH {
        let world = shell(who);
        world.write("sh/ply.dev.toml", "links = [\"./live:live\"]\n[env]\nMODE = \"dev\"\n");
        world.write("sh/live/file", "live");
        assert_eq!(sh(&world, &[], "echo $MODE; cat /opt/sh/live/file"), "dev\nlive", "{who:?}");
        assert_eq!(sh(&world, &["-e", "MODE=flag"], "echo $MODE"), "flag\n", "{who:?}");
        world.run(["build", "sh", "-o", "sh.img"]).expect(0);
        let built = world.run(["run", "./sh.img", "--", "-c", "echo [$MODE]"]).expect(0);
        assert_eq!(built.out, "[]\n", "{who:?}");
    }
}

#[test]
fn an_app_that_ends_at_once_in_the_background_shows_its_own_last_lines() {
    for who in BOTH {
        let world = shell(who);
        world.run(["run", "./sh", "--", "-c", "echo of an earlier run; false"]).expect(1);
        let done = world.run(["run", "./sh", "-d", "--", "-c", "echo one; echo two >&2; exit 3"]).expect(3);
        assert!(
            done.err.starts_with("error: sh ended at once, with exit code 3\n    "),
            "{who:?}\n{}",
            done.err
        );
        assert!(done.err.contains("    one\n") && done.err.contains("    two\n"), "{who:?}\n{}", done.err);
        assert!(!done.err.contains("earlier"), "{who:?}\n{}", done.err);
        let done = world.run(["run", "./sh", "-d", "--", "-c", "exit 4"]).expect(4);
        assert_eq!(
            done.err, "error: sh ended at once, with exit code 4\nhint: see all of it: ply logs sh\n",
            "{who:?}"
        );
    }
}

#[test]
fn stats_are_the_kernels_own_and_a_dash_is_what_it_does_not_count() {
    for who in BOTH {
        let world = shell(who);
        assert_eq!(world.run(["stats", "--json"]).expect(0).out, "[]\n", "{who:?}");
        world.run(["run", "./sh", "-d", "--scale", "2", "--pids", "77", "--", "-c", SERVE]).expect(0);
        let json: serde_json::Value =
            serde_json::from_str(&world.run(["stats", "--json"]).expect(0).out).unwrap();
        assert_eq!((&json[0]["name"], &json[1]["slot"]), (&"sh".into(), &2.into()), "{json}");
        assert_eq!(json[0]["limits"]["pids"], 77, "{who:?}\n{json}");
        // Root has a pids controller everywhere, and nobody else one without systemd.
        if who == Who::Root {
            assert_eq!(json[0]["pids_limit"], 77, "{json}");
            assert!(json[0]["pids"].as_u64().unwrap() >= 2, "{json}");
            assert!(json[0]["cpu_percent"].is_number() || json[0]["cpu_usec"].is_null(), "{json}");
        }
        let one = world.run(["stats", "sh.2"]).expect(0).out;
        let lines: Vec<&str> = one.lines().collect();
        assert!(lines.len() == 2 && lines[1].starts_with("sh.2 "), "{who:?}\n{one}");
        assert!(lines[0].starts_with("NAME"), "{one}");
        let error = world.run(["stats", "sh.3"]).expect(1).err;
        assert_eq!(error, "error: sh.3 does not run\nhint: there is sh.1, sh.2\n", "{who:?}");
        let ps: serde_json::Value = serde_json::from_str(&world.run(["ps", "--json"]).expect(0).out).unwrap();
        assert_eq!(ps[0]["limits"]["pids"], 77, "{ps}");
        assert!(ps[0]["ids"].is_object() && ps[0]["ended_by"].is_null(), "{ps}");
        world.run(["stop", "sh"]).expect(0);
    }
}

#[test]
fn root_a_full_run_folder_is_one_sentence_and_nothing_is_left() {
    let world = shell(Who::Root);
    world.run(["run", "./sh", "--", "-c", "true"]).expect(0);
    let run = world.path("run");
    world.run(["gc"]).expect(0);
    let tool = |program: &str, args: &[&str]| {
        let status = std::process::Command::new(program).args(args).arg(&run).status().unwrap();
        assert!(status.success(), "{program}");
    };
    tool("mount", &["-t", "tmpfs", "-o", "size=64k", "none"]);
    std::fs::create_dir(run.join("full")).unwrap();
    let _ = std::fs::write(run.join("full/file"), vec![0; 1 << 20]);
    let done = world.run(["run", "./sh", "--", "-c", "echo ran"]);
    let left: Vec<_> = std::fs::read_dir(run.join("state")).into_iter().flatten().flatten().collect();
    tool("umount", &[]);
    assert_eq!((done.code, done.out.as_str()), (Some(125), ""), "{}", done.err);
    assert!(
        done.err.starts_with("error: can't ") && done.err.contains("No space left on device"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 2, "one sentence and a hint: {}", done.err);
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(leftovers(&world), Vec::<String>::new());
}

/// What `ply ps --json` says of the first instance.
fn first_row(world: &World) -> serde_json::Value {
    let rows: serde_json::Value = serde_json::from_str(&world.run(["ps", "--json"]).expect(0).out).unwrap();
    rows[0].clone()
}

#[test]
fn a_killed_run_parent_is_said_once_and_what_was_removed_is_another_story() {
    for who in BOTH {
        let world = shell(who);
        world.run(["run", "./sh", "-d", "--", "-c", SERVE]).expect(0);
        let parent = u32::try_from(first_row(&world)["parent_pid"].as_u64().unwrap()).unwrap();
        crate::kill::kill(parent);
        let words = format!("its run parent (process {parent}) has died, and the instance with it");
        let why = eventually("the journal says it", LIMIT, || {
            let why = world.run(["why", "sh"]).expect(0).out;
            why.contains(&words).then_some(why)
        });
        assert!(why.starts_with("sh does not run\n\nends\n"), "{who:?}\n{why}");
        world.run(["gc"]).expect(0);
        let events = world.run(["events", "sh"]).expect(0).out;
        assert_eq!(events.matches(&words).count(), 1, "{who:?}\n{events}");
        world.run(["rm", "sh"]).expect(0);
        let gone = world.run(["why", "sh"]).expect(1).err;
        assert!(gone.starts_with("error: sh was removed at 2"), "{who:?}\n{gone}");
        assert!(world.run(["events", "sh"]).expect(0).out.ends_with("sh removed\n"));
        sh(&world, &[], "echo anew");
        let why = world.run(["why", "sh"]).expect(0).out;
        assert!(!why.contains("has died") && why.contains("ended with exit code 0"), "{who:?}\n{why}");
        assert_eq!(leftovers(&world), Vec::<String>::new(), "{who:?}");
    }
}

#[test]
fn a_name_that_nothing_is_known_of_is_an_error() {
    let world = shell(Who::User);
    sh(&world, &[], "true");
    for (name, hint) in [
        ("nope", "hint: ply events shows everything"),
        ("shh", "hint: did you mean sh?"),
        ("sh.7", "hint: ply events sh shows all of it"),
    ] {
        let error = world.run(["events", name]).expect(1).err;
        assert_eq!(error, format!("error: nothing is known of {name}\n{hint}\n"));
    }
    assert!(world.run(["events", "sh.1"]).expect(0).out.contains("started: sh-1.0.0"));
}

#[test]
fn capabilities_that_a_manifest_keeps_are_said_at_the_start() {
    for who in BOTH {
        let world = shell_with(who, "capabilities = [\"chown\", \"net_bind_service\"]\n");
        let line = "it keeps capabilities, as its manifest asks: chown,net_bind_service (--capabilities none takes them away)";
        let done = world.run(["run", "./sh", "--", "-c", "true"]).expect(0);
        assert!(done.err.lines().any(|l| l == line), "{who:?}\n{}", done.err);
        let done = world.run(["run", "./sh", "--capabilities", "none", "--", "-c", "true"]).expect(0);
        assert!(!done.err.contains("capabilities"), "{who:?}\n{}", done.err);
    }
}

#[test]
fn a_run_parent_of_a_replaced_ply_is_seen() {
    let world = shell(Who::User);
    let own = world.path("work/ply");
    std::fs::copy(crate::harness::ply_binary(), &own).unwrap();
    let mut start = world.command(&own);
    start.args(["run", "./sh", "-d", "--", "-c", SERVE]);
    world.finish(start).expect(0);
    assert_eq!(first_row(&world)["outdated"], false);
    std::fs::remove_file(&own).unwrap();
    assert_eq!(first_row(&world)["outdated"], true);
    let said = world.run(["ps"]).expect(0).err;
    assert_eq!(said, "watched by a ply that was replaced since: sh (stop and start to renew it)\n");
    world.run(["stop", "sh"]).expect(0);
}
