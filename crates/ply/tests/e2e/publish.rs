//! Published ports: a relay in the parent that connects inside the instance.

use crate::harness::{BOTH, Who, World, eventually, free_port, http_get};
use crate::inside::shell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);

/// An app of busybox that serves files.
fn httpd(who: Who) -> World {
    let world = World::new(who);
    world.write(
        "web/ply.toml",
        "[package]\nname = \"web\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nbusybox = \"*\"\n\
         [run]\nentrypoint = [\"busybox\", \"httpd\", \"-f\", \"-p\", \"80\", \"-h\", \"/opt/web/www\"]\n[run.ports]\nweb = 80\n",
    );
    world.write("web/www/index.html", "a page");
    world
}

#[test]
fn a_published_port_serves_a_page() {
    for who in BOTH {
        let world = httpd(who);
        let port = free_port();
        let _run = world.start(["run", "./web", "--publish", &port.to_string()]);
        let page = eventually("a page", LIMIT, || http_get(port, "/"));
        assert_eq!(page, "a page", "{who:?}");
        let ps = world.run(["ps"]).expect(0).out;
        assert!(ps.contains(&port.to_string()), "{who:?}\n{ps}");
    }
}

#[test]
fn every_slot_takes_its_turn() {
    for who in BOTH {
        let world = World::new(who);
        world.write(
            "who/ply.toml",
            "[package]\nname = \"who\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nbusybox = \"*\"\n\
             [run]\nentrypoint = \"hostname > /tmp/index.html; exec busybox httpd -f -p 80 -h /tmp\"\n",
        );
        let port = free_port();
        let _run = world.start(["run", "./who", "--scale", "3", "--publish", &format!("{port}:80")]);
        let mut seen = std::collections::BTreeSet::new();
        eventually("all three", LIMIT, || {
            seen.extend(http_get(port, "/"));
            (seen.len() == 3).then_some(())
        });
        let names: Vec<&str> = seen.iter().map(|s| s.trim()).collect();
        assert_eq!(names, ["who-1", "who-2", "who-3"], "{who:?}");
    }
}

#[test]
fn half_closed_connections_and_big_bodies_pass() {
    for who in BOTH {
        let world = World::new(who);
        // Counts what it reads until the client closes its half, then answers.
        world.write(
            "count/ply.toml",
            "[package]\nname = \"count\"\nversion = \"1.0.0\"\n[build]\nbase = \"debian@13\"\n[build.dependencies]\nbusybox = \"*\"\n\
             [run]\nentrypoint = [\"busybox\", \"nc\", \"-ll\", \"-p\", \"7000\", \"-e\", \"wc\", \"-c\"]\n",
        );
        let port = free_port();
        let _run = world.start(["run", "./count", "--publish", &format!("127.0.0.1:{port}:7000")]);
        let count = eventually("an answer", LIMIT, || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.write_all(&vec![7; 3_000_000]).ok()?;
            stream.shutdown(Shutdown::Write).ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            (!text.is_empty()).then_some(text)
        });
        assert_eq!(count.trim(), "3000000", "{who:?}");
    }
}

#[test]
fn a_taken_port_is_refused_before_anything_starts() {
    for who in BOTH {
        let world = shell(who);
        let taken = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let done = world.run(["run", "./sh", "--publish", &port, "--", "-c", "echo started"]);
        assert_eq!(done.code, Some(125), "{who:?}");
        assert!(done.err.contains(&port) && !done.out.contains("started"), "{who:?}\n{}", done.err);
    }
}

#[test]
fn a_low_port_without_root_says_what_to_do() {
    let world = shell(Who::User);
    let done = world.run(["run", "./sh", "--publish", "80", "--", "-c", "true"]);
    assert_eq!(done.code, Some(125));
    assert!(done.err.contains("80") && done.err.contains("hint:"), "{}", done.err);
}
