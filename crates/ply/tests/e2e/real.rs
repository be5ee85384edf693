//! Real software on real images: what minted packages are for.

use crate::harness::{BOTH, Who, World, cache, eventually, examples, free_port, http_get};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

fn redis(port: u16, command: &[&str]) -> Option<String> {
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(command)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

#[test]
fn redis_answers_keeps_a_key_over_a_restart_and_stops_at_once() {
    for who in BOTH {
        let world = World::new(who);
        let port = free_port();
        let publish = format!("127.0.0.1:{port}");
        let args = ["run", "redis@8", "--publish", &format!("{publish}:6379")];
        let mut run = world.start(args);
        eventually("PONG", LIMIT, || redis(port, &["ping"]).filter(|t| t == "PONG"));
        assert_eq!(redis(port, &["set", "k", "kept"]).as_deref(), Some("OK"), "{who:?}");
        let asked = Instant::now();
        run.signal(libc::SIGINT);
        run.wait(Duration::from_secs(5)).expect(0);
        let first = asked.elapsed();
        let mut again = world.start(args);
        let kept =
            eventually("the key", LIMIT, || redis(port, &["get", "k"]).filter(|t| !t.starts_with("LOADING")));
        assert_eq!(kept, "kept", "{who:?}");
        let asked = Instant::now();
        again.signal(libc::SIGINT);
        again.wait(Duration::from_secs(5)).expect(0);
        // Within a second, the better of two: the machine may have had something else to do.
        let best = first.min(asked.elapsed());
        assert!(best < Duration::from_secs(1), "{who:?}: took {best:?}");
    }
}

#[test]
fn a_node_app_runs_with_native_addons_untouched() {
    for who in BOTH {
        let world = World::new(who);
        world.copy(&cache().join("node-addons"), "app");
        world.write("app/ply.toml", "[package]\nname = \"addons\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nnode = \"22\"\n[run]\nentrypoint = [\"node\", \"main.js\"]\n");
        world.write(
            "app/main.js",
            "const sharp = require('sharp'), css = require('lightningcss');\n\
             const {code} = css.transform({filename: 'a.css', code: Buffer.from('a { color: #ff0000 }'), minify: true});\n\
             sharp({create: {width: 3, height: 2, channels: 3, background: 'red'}}).png().toBuffer()\n\
             .then((png) => sharp(png).metadata()).then((m) => console.log(code.toString(), m.width, m.height, process.versions.node.split('.')[0]));\n",
        );
        let done = world.run(["run", "./app"]).expect(0);
        assert_eq!(done.out, "a{color:red} 3 2 22\n", "{who:?}");
    }
}

#[test]
fn a_python_app_runs_with_a_native_wheel_untouched() {
    for who in BOTH {
        let world = World::new(who);
        world.copy(&cache().join("python-wheels/site"), "app/site");
        world.write("app/ply.toml", "[package]\nname = \"wheels\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\npython3 = \"3\"\n[run]\nentrypoint = [\"python3\", \"main.py\"]\n[run.env]\nPYTHONPATH = \"/opt/wheels/site\"\n");
        world.write("app/main.py", "import numpy, ssl, sqlite3, json\nprint(int(numpy.arange(10).sum()), numpy.linalg.det(numpy.eye(3)), ssl.OPENSSL_VERSION.split()[0])\n");
        let done = world.run(["run", "./app"]).expect(0);
        assert_eq!(done.out, "45 1.0 OpenSSL\n", "{who:?}");
    }
}

#[test]
fn the_example_apps_serve_their_page() {
    for who in BOTH {
        for (name, inside) in [("node-hello", 3000), ("python-hello", 8000)] {
            let world = World::new(who);
            world.copy(&examples().join(name), name);
            let port = free_port();
            let mut run = world.start([
                "run",
                &format!("./{name}"),
                "--publish",
                &format!("127.0.0.1:{port}:{inside}"),
            ]);
            let page = eventually("a page", LIMIT, || http_get(port, "/"));
            assert!(page.contains("<title>"), "{who:?} {name}\n{page}");
            run.signal(libc::SIGINT);
            let done = run.wait(Duration::from_secs(5));
            assert_eq!(done.code, Some(0), "{who:?} {name}: ends well when asked\n{}", done.err);
        }
    }
}

#[test]
fn a_folder_without_a_manifest_runs_with_the_one_that_init_would_write() {
    for who in BOTH {
        let world = World::new(who);
        world.copy(&examples().join("no-manifest"), "app");
        let port = free_port();
        let run = world.start(["run", "./app", "--publish", &format!("127.0.0.1:{port}:3000")]);
        eventually("a page", LIMIT, || http_get(port, "/"));
        assert!(run.err().contains("[package]"), "{who:?}: the manifest is printed\n{}", run.err());
        assert!(!world.path("work/app/ply.toml").exists(), "{who:?}: and not saved");
    }
}

#[test]
fn a_static_binary_needs_no_base() {
    for who in [Who::Root, Who::User] {
        let world = World::new(who);
        world.write("one/main.c", "#include <stdio.h>\nint main(void) { puts(\"alone\"); return 0; }\n");
        let status = Command::new("cc")
            .args(["-static", "-O2", "-o"])
            .arg(world.path("work/one/one"))
            .arg(world.path("work/one/main.c"))
            .status()
            .unwrap();
        assert!(status.success());
        world.write("one/ply.toml", "[package]\nname = \"one\"\nversion = \"1.0.0\"\n[build]\ninclude = [\"one\"]\n[run]\nentrypoint = [\"/opt/one/one\"]\n");
        assert_eq!(world.run(["run", "./one"]).expect(0).out, "alone\n", "{who:?}");
    }
}

#[test]
fn busybox_and_python_and_node_are_in_the_path() {
    for who in BOTH {
        let world = World::new(who);
        world.write("all/ply.toml", "[package]\nname = \"all\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nnode = \"22\"\npython3 = \"3\"\nbusybox = \"*\"\nredis = \"8\"\n[run]\nentrypoint = \"\"\"\nset -e\nnode --version | cut -c1-4\npython3 -c 'import sys; print(sys.version_info.major)'\nbusybox echo busy\nredis-cli --version | cut -d' ' -f1\n\"\"\"\n");
        assert_eq!(world.run(["run", "./all"]).expect(0).out, "v22.\n3\nbusy\nredis-cli\n", "{who:?}");
    }
}
