//! Sources as they are in the world: a folder, a plain web server, and servers that misbehave. Whatever they
//! do, either the right bytes are in the store or nothing is, and the message says what was wrong.

use crate::harness::{Done, Who, World, cache};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// `python3 -m http.server` over the minted registry.
struct Python {
    child: Child,
    port: u16,
}

impl Python {
    fn serve(dir: &std::path::Path) -> Self {
        let port = crate::harness::free_port();
        let child = Command::new("python3")
            .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string(), "--directory"])
            .arg(dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port };
        crate::harness::eventually("a web server", Duration::from_secs(10), || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        server
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_plain_web_server_is_a_registry() {
    let server = Python::serve(&cache().join("registry"));
    let world = World::new(Who::User);
    world.write(
        "app/ply.toml",
        format!(
            "{}[build.sources]\ndefault = \"http://127.0.0.1:{}/{{package}}\"\n",
            crate::inside::SHELL.replace("[run]", "[build.dependencies]\nbusybox = \"*\"\n[run]"),
            server.port
        ),
    );
    let out = world.run(["run", "./app", "--", "-c", "busybox echo over http"]).expect(0).out;
    assert_eq!(out, "over http\n");
    // From here on nothing is asked of it.
    drop(server);
    let out = world.run(["run", "./app", "--", "-c", "echo again"]).expect(0).out;
    assert_eq!(out, "again\n");
}

#[test]
fn names_are_searched_and_added_from_the_catalog() {
    let world = World::new(Who::User);
    world.write("app/ply.toml", "# mine\n[package]\nname = \"app\" # the name\nversion = \"1.0.0\"\n\n[build]\nbase = \"debian@13\"\n");
    let found = world.run(["search", "redis"]).expect(0).out;
    assert!(found.contains("redis = \"8\""), "{found}");
    world.run(["add", "node@22", "busybox", "--dir", "app"]).expect(0);
    let text = world.read("app/ply.toml");
    assert!(
        text.starts_with("# mine\n[package]\nname = \"app\" # the name\n") && text.contains("node = \"22\""),
        "{text}"
    );
    world.run(["build", "app"]).expect(0);
    let tree = world.run(["tree", "--dir", "app"]).expect(0).out;
    assert!(tree.contains("node") && tree.contains("debian") && tree.contains("(base)"), "{tree}");
    let outdated = world.run(["outdated", "--dir", "app", "--json"]).expect(0).out;
    let rows: serde_json::Value = serde_json::from_str(&outdated).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 3, "{outdated}");
    world.run(["update", "--dir", "app"]).expect(0);
}

#[test]
fn fetched_packages_can_be_inspected() {
    let world = World::new(Who::User);
    let text = world.run(["inspect", "redis@8"]).expect(0).out;
    for word in ["redis", "app", "egress", "6379"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    let manifest = world.run(["inspect", "redis@8", "--manifest"]).expect(0).out;
    assert!(manifest.contains("[package]"), "{manifest}");
    let json = world.run(["inspect", "redis@8", "--json"]).expect(0).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["name"], "redis");
}

/// What a server does with the n-th request (from 0) for the image: the whole reply is in its hands.
type Reply = dyn Fn(usize, &str, &[u8], &mut TcpStream) + Send + Sync;

/// A server of one package `pkg` 1.0.0 whose `index.json` is honest and whose image is in the hands of `reply`.
fn misbehaving(
    image: Vec<u8>,
    reply: impl Fn(usize, &str, &[u8], &mut TcpStream) + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (image, count) = (Arc::new(image), Arc::new(AtomicUsize::new(0)));
    let reply: Arc<Reply> = Arc::new(reply);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (image, count, reply) = (image.clone(), count.clone(), reply.clone());
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                if head.contains("index.json") {
                    let body = "[\"pkg-1.0.0-linux-x64.img\"]";
                    let _ = write!(
                        stream,
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    );
                } else if head.contains("state.json") {
                    let _ = write!(
                        stream,
                        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    );
                } else {
                    reply(count.fetch_add(1, Ordering::SeqCst), &head, &image, &mut stream);
                }
            });
        }
    });
    port
}

fn package(world: &World) -> Vec<u8> {
    world.write("pkg/ply.toml", "[package]\nname = \"pkg\"\nversion = \"1.0.0\"\n");
    world.write(
        "pkg/data",
        (0..200_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<_>>(),
    );
    world.run(["build", "pkg", "-o", "pkg.img"]).expect(0);
    std::fs::read(world.path("work/pkg.img")).unwrap()
}

fn whole(image: &[u8], stream: &mut TcpStream) {
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", image.len());
    let _ = stream.write_all(image);
}

fn status(line: &str, more: &str, stream: &mut TcpStream) {
    let _ = write!(stream, "HTTP/1.1 {line}\r\n{more}Content-Length: 0\r\nConnection: close\r\n\r\n");
}

/// Fetches `pkg@1` from a server in a world of its own.
fn fetch(world: &World, port: u16) -> Done {
    world.run(["fetch", "pkg@1", "--source", &format!("http://127.0.0.1:{port}/{{package}}")])
}

#[track_caller]
fn succeeds(reply: impl Fn(usize, &str, &[u8], &mut TcpStream) + Send + Sync + 'static) -> Done {
    let world = World::new(Who::User);
    let port = misbehaving(package(&world), reply);
    let done = fetch(&world, port).expect(0);
    world.run(["verify"]).expect(0);
    done
}

#[track_caller]
fn fails(word: &str, reply: impl Fn(usize, &str, &[u8], &mut TcpStream) + Send + Sync + 'static) -> Done {
    let world = World::new(Who::User);
    let port = misbehaving(package(&world), reply);
    let done = fetch(&world, port).expect(1);
    assert!(done.err.to_lowercase().contains(word), "{word}\n{}", done.err);
    assert_eq!(world.run(["store", "ls"]).expect(0).out, "", "nothing is in the store");
    let temporary: Vec<_> = walk(&world.path("data/store"));
    assert!(temporary.iter().all(|f| !f.ends_with("image.img")), "{temporary:?}");
    done
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        }
    }
    found
}

#[test]
fn a_cut_file_is_resumed_where_it_broke() {
    let done = succeeds(|n, head, image, stream| {
        if n == 0 {
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\n\r\n",
                image.len()
            );
            let _ = stream.write_all(&image[..image.len() / 2]);
        } else if let Some(from) =
            head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned))
        {
            let from: usize = from.trim_end_matches('-').trim().trim_end_matches('-').parse().unwrap();
            let _ = write!(
                stream,
                "HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\nContent-Range: bytes {from}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                image.len() - 1,
                image.len(),
                image.len() - from
            );
            let _ = stream.write_all(&image[from..]);
        } else {
            whole(image, stream);
        }
    });
    assert!(done.took < Duration::from_secs(300));
}

#[test]
fn what_may_pass_is_tried_again() {
    succeeds(
        |n, _, image, stream| if n == 0 { status("500 Oops", "", stream) } else { whole(image, stream) },
    );
    let started = Instant::now();
    succeeds(|n, _, image, stream| {
        if n == 0 {
            status("429 Too Many Requests", "Retry-After: 2\r\n", stream)
        } else {
            whole(image, stream)
        }
    });
    assert!(started.elapsed() >= Duration::from_secs(2), "Retry-After is honoured");
    succeeds(|_, _, image, stream| {
        let _ =
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", image.len());
        for piece in image.chunks(image.len() / 10 + 1) {
            let _ = stream.write_all(piece);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn what_is_not_there_is_said_at_once() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let done = fails("is not there", move |_, head, _, stream| {
        counted.fetch_add(usize::from(head.contains(".img")), Ordering::SeqCst);
        status("404 Not Found", "", stream);
    });
    assert!(done.err.contains("hint:"), "{}", done.err);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is not tried again");
}

#[test]
fn wrong_bytes_are_not_an_image() {
    fails("pkg-1.0.0-linux-x64.img", |_, _, image, stream| {
        let mut wrong = image.to_vec();
        wrong[..96].fill(0x41);
        whole(&wrong, stream);
    });
}

#[test]
fn wrong_bytes_of_a_locked_package_are_reported_with_both_digests() {
    let world = World::new(Who::User);
    let mut wrong = package(&world);
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    let port = misbehaving(wrong, |_, _, image, stream| whole(image, stream));
    let source = format!("http://127.0.0.1:{port}/{{package}}");
    let good = world.run(["store", "ls", "--json"]).expect(0);
    drop(good);
    let digest = format!("sha256:{}", "ab".repeat(32));
    world.write(
        "app/ply.toml",
        format!(
            "{}[build.sources]\ndefault = \"{source}\"\n",
            crate::inside::SHELL.replace("base = \"debian@13\"\n", "base = \"pkg@1\"\n")
        ),
    );
    world.write("app/ply.lock", format!("version = 1\n\n[[package]]\nname = \"pkg\"\nversion = \"1.0.0\"\nsource = \"{source}\"\ndigest.x64 = \"{digest}\"\n"));
    let done = world.run(["fetch", "./app"]).expect(1);
    assert!(done.err.contains(&digest) && done.err.matches("sha256:").count() >= 2, "{}", done.err);
    assert!(
        done.err.contains(&format!("http://127.0.0.1:{port}/pkg/pkg-1.0.0-linux-x64.img")),
        "{}",
        done.err
    );
    assert_eq!(world.run(["store", "ls"]).expect(0).out, "");
}

#[test]
fn lengths_that_lie_take_no_memory_and_no_disk() {
    fails("10000000000", |_, _, image, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(image);
    });
}

#[test]
fn plain_http_is_for_this_host_and_private_ones() {
    let world = World::new(Who::User);
    let done = world.run(["fetch", "pkg@1", "--source", "http://198.51.100.7/{package}"]).expect(1);
    assert!(done.err.contains("--insecure-source"), "{}", done.err);
    // A redirect is no way around it.
    let port = misbehaving(Vec::new(), |_, _, _, stream| {
        status("302 Found", "Location: http://198.51.100.7/pkg-1.0.0-linux-x64.img\r\n", stream);
    });
    let done = fetch(&world, port).expect(1);
    assert!(done.err.contains("198.51.100.7"), "{}", done.err);
    // Refused, not tried: the words are those of a rule, not of a connection.
    assert!(done.err.contains("--insecure-source"), "{}", done.err);
}

#[test]
fn an_index_that_lies_is_found_out() {
    let world = World::new(Who::User);
    // The index lists pkg 1.0.0; the bytes are another package's.
    world.write("pkg/ply.toml", "[package]\nname = \"other\"\nversion = \"3.0.0\"\n");
    world.run(["build", "pkg", "-o", "other.img"]).expect(0);
    let image = std::fs::read(world.path("work/other.img")).unwrap();
    let port = misbehaving(image, |_, _, image, stream| whole(image, stream));
    let done = fetch(&world, port).expect(1);
    assert!(done.err.contains("other") && done.err.contains("pkg"), "{}", done.err);
    assert_eq!(world.run(["store", "ls"]).expect(0).out, "");
}
