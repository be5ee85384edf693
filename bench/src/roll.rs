//! What rolls and restarts cost those who use an app: requests that fail while it is rolled and deployed under load,
//! the time from a death to the next start, and what a run parent takes while it watches.

use crate::Options;
use crate::launch::{World, prepare};
use crate::many::kilobytes;
use anyhow::{Context, Result, ensure};
use ply_bench::Row;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// This program as an app inside a box.
pub(crate) const APP: &str = "app";

/// How many clients keep a connection open.
const CLIENTS: usize = 64;
/// The least number of requests that a roll must see.
const REQUESTS: usize = 300_000;
/// How often a crashing app is started again.
const RESTARTS: u64 = 10_000;
/// The most from a death to the next start, beyond backoff.
const AGAIN: Duration = Duration::from_millis(50);
/// The most that a run parent of ten healthy instances may take in a minute: 0.2 % of a core.
const WATCHING: Duration = Duration::from_millis(120);
/// How much memory may grow that is called flat, in bytes.
const FLAT: u64 = 1_000_000;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

pub(crate) fn run(_: &Options) -> Result<Vec<Row>> {
    let world = World::for_root("roll")?;
    let mut rows = Vec::new();
    for (kind, target) in [("graceful", Some(0.0)), ("abrupt", None)] {
        let ends = if kind == "graceful" { "one that shuts down gracefully" } else { "one that just ends" };
        for (what, scale) in [("roll at scale 2", 2), ("spare-slot deploy at scale 1", 1)] {
            let (failed, all) = roll(&world, kind, scale)?;
            rows.push(Row {
                what: format!("{what}, {ends}: failed requests"),
                ours: failed.to_string(),
                peer: format!("of {all}"),
                ratio: failed as f64,
                target,
            });
        }
    }
    rows.push(Row::at_most("from a death to the next start, beyond backoff", again(&world)?, AGAIN));
    rows.push(Row::at_most("watching 10 healthy instances for 60 s: processor", watching(&world)?, WATCHING));
    let (before, after, descriptors) = restarts(&world)?;
    let grown = after.saturating_sub(before);
    rows.push(Row::size_at_most(format!("memory that {RESTARTS} restarts add"), grown, FLAT));
    rows.push(Row {
        what: format!("descriptors that {RESTARTS} restarts add"),
        ours: descriptors.to_string(),
        peer: "limit 2".to_owned(),
        ratio: descriptors as f64 / 2.0,
        target: Some(1.0),
    });
    Ok(rows)
}

/// An app of this program in one of its kinds, in a version; gives its image, relative to the world.
fn app(world: &World, kind: &str, version: &str, more: &str) -> Result<String> {
    let dir = format!("{kind}-{version}");
    let at = world.path(&dir);
    fs::create_dir_all(&at)?;
    fs::copy(std::env::current_exe()?, at.join("bench"))?;
    let text = format!(
        "[package]\nname = \"{kind}\"\nversion = \"{version}\"\n[run]\nentrypoint = [\"/opt/{kind}/bench\", \"{APP}\", \"{kind}\"]\n{more}"
    );
    fs::write(at.join("ply.toml"), text)?;
    let image = format!("{dir}/app.img");
    if !world.path(&image).exists() {
        prepare(world.ply(["-q", "build", &dir, "-o", &image]))?;
    }
    Ok(image)
}

/// A port that nobody listens on.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Rolls an app to another image under load; how many requests failed, and how many there were.
fn roll(world: &World, kind: &str, scale: u32) -> Result<(usize, usize)> {
    let ports = "[run.ports]\nweb = 8080\n[run.health]\nport = 8080\n";
    let (old, new) = (app(world, kind, "1.0.0", ports)?, app(world, kind, "2.0.0", ports)?);
    let port = free_port()?;
    let (publish, scale) = (format!("127.0.0.1:{port}"), scale.to_string());
    prepare(world.ply(["-q", "run", "-d", &old, "--scale", &scale, "--publish", &publish]))?;
    let (requests, failures, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(port, &requests, &failures, &stop));
        }
        let deploy = || -> Result<()> {
            std::thread::sleep(Duration::from_secs(1));
            prepare(world.ply(["-q", "deploy", &new]))?;
            let start = Instant::now();
            while requests.load(Ordering::Relaxed) < REQUESTS {
                ensure!(start.elapsed() < Duration::from_secs(300), "{REQUESTS} requests take too long");
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        };
        let done = deploy();
        stop.store(true, Ordering::Relaxed);
        done
    })?;
    prepare(world.ply(["-q", "rm", kind]))?;
    Ok((failures.into_inner(), requests.into_inner()))
}

/// Asks over and over on one connection, and on a new one where the answer says that it was the last.
fn client(port: u16, requests: &AtomicUsize, failures: &AtomicUsize, stop: &AtomicBool) {
    let mut connection: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) {
        let asked = (|| -> std::io::Result<bool> {
            let mut stream = match connection.take() {
                Some(stream) => stream,
                None => {
                    let stream = TcpStream::connect(("127.0.0.1", port))?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
                    stream
                }
            };
            stream.write_all(b"GET / HTTP/1.1\r\nHost: app\r\n\r\n")?;
            let mut text = Vec::new();
            let mut buffer = [0; 512];
            while !text.ends_with(b"\r\n\r\nok") {
                match stream.read(&mut buffer)? {
                    0 => return Ok(false),
                    n => text.extend_from_slice(&buffer[..n]),
                }
            }
            if text.len() == ANSWER.len() {
                connection = Some(stream);
            }
            Ok(true)
        })();
        requests.fetch_add(1, Ordering::Relaxed);
        if !asked.unwrap_or(false) {
            failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The median time from a death to the next start, beyond the pause that was announced.
fn again(world: &World) -> Result<Duration> {
    const DEATHS: usize = 21;
    let image = app(world, "mortal", "1.0.0", "")?;
    let flags =
        ["--restart", "always", "--set", "restart.backoff=100ms", "--set", "restart.max_backoff=100ms"];
    let run = ["-q", "run", "-d", &image].into_iter().chain(flags);
    prepare(world.ply(run))?;
    let start = Instant::now();
    let mut found = Vec::new();
    while found.len() < DEATHS {
        ensure!(start.elapsed() < Duration::from_secs(60), "an app that dies isn't started again");
        std::thread::sleep(Duration::from_millis(200));
        let output = world.ply(["events", "mortal", "--json"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let events: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let output = world.ply(["logs", "mortal"]).output()?;
        // Each life's last line is the time of its death, in milliseconds since 1970.
        let logged = String::from_utf8_lossy(&output.stdout).into_owned();
        let deaths: Vec<u64> = logged.lines().filter_map(|l| l.parse().ok()).collect();
        let of = |what: &'static str| events.iter().filter(move |e| e["event"] == what);
        let ms = |e: &Value, key: &str| e[key].as_u64().unwrap_or_default();
        let starts = of("start").skip(1).map(|e| ms(e, "time_ms"));
        let pauses = of("exit").map(|e| ms(e, "again_in_ms"));
        let beyond = |((death, pause), next): ((&u64, u64), u64)| next.saturating_sub(death + pause);
        found = deaths.iter().zip(pauses).zip(starts).map(beyond).collect();
    }
    prepare(world.ply(["-q", "rm", "mortal"]))?;
    found.sort_unstable();
    eprintln!("  from a death to the next start, beyond backoff: {found:?} ms");
    Ok(Duration::from_millis(found[found.len() / 2]))
}

/// The run parent of an app, from `ply ps`.
fn parent(world: &World, name: &str) -> Result<(u32, Vec<Value>)> {
    let output = world.ply(["ps", "--json"]).output()?;
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let own: Vec<Value> = rows.into_iter().filter(|row| row["name"] == name).collect();
    let pid = own.first().and_then(|row| row["parent_pid"].as_u64()).context("it does not run")?;
    Ok((u32::try_from(pid)?, own))
}

/// What the run parent of ten healthy instances takes of a core in a minute.
fn watching(world: &World) -> Result<Duration> {
    let image = app(world, "graceful", "1.0.0", "[run.ports]\nweb = 8080\n[run.health]\nport = 8080\n")?;
    prepare(world.ply(["-q", "run", "-d", &image, "--scale", "10"]))?;
    let (pid, rows) = parent(world, "graceful")?;
    ensure!(rows.iter().filter(|row| row["health"] == "healthy").count() == 10, "not all ten are healthy");
    std::thread::sleep(Duration::from_secs(2));
    let before = processor(pid)?;
    std::thread::sleep(Duration::from_secs(60));
    let took = processor(pid)? - before;
    prepare(world.ply(["-q", "rm", "graceful"]))?;
    Ok(took)
}

/// The processor time of a process and its ended children, user and system.
fn processor(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, tail) = stat.rsplit_once(") ").context("not a stat line")?;
    let ticks = |n: usize| tail.split(' ').nth(n).and_then(|t| t.parse::<u64>().ok()).unwrap_or_default();
    // utime, stime, cutime, cstime are the fields 14 to 17; a tick is 10 ms.
    Ok(Duration::from_millis((11..15).map(ticks).sum::<u64>() * 10))
}

/// What a run parent holds before and after so many restarts, in bytes, and how many descriptors more.
fn restarts(world: &World) -> Result<(u64, u64, usize)> {
    let image = app(world, "crashing", "1.0.0", "")?;
    let flags = ["--restart", "always", "--set", "restart.backoff=1ms", "--set", "restart.max_backoff=1ms"];
    let run = ["-q", "run", "-d", &image, "--scale", "4"].into_iter().chain(flags);
    prepare(world.ply(run))?;
    let (pid, _) = parent(world, "crashing")?;
    let count = || -> Result<u64> {
        let (_, rows) = parent(world, "crashing")?;
        Ok(rows.iter().filter_map(|row| row["restarts"].as_u64()).sum())
    };
    let held = || -> Result<(u64, usize)> {
        // A life's descriptors come and go: the least of a few looks is what stays.
        let (mut memory, mut descriptors) = (u64::MAX, usize::MAX);
        for _ in 0..20 {
            memory = memory.min(kilobytes(pid, &["Private_Clean:", "Private_Dirty:"])?);
            descriptors = descriptors.min(fs::read_dir(format!("/proc/{pid}/fd"))?.count());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((memory, descriptors))
    };
    let until = |restarts: u64| -> Result<()> {
        let start = Instant::now();
        while count()? < restarts {
            ensure!(start.elapsed() < Duration::from_secs(900), "{restarts} restarts take too long");
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    };
    until(RESTARTS / 20)?;
    let (before, few) = held()?;
    until(RESTARTS / 20 + RESTARTS)?;
    let (after, many) = held()?;
    prepare(world.ply(["-q", "rm", "crashing"]))?;
    Ok((before, after, many.saturating_sub(few)))
}

/// Set by the stop signal.
static STOP: AtomicBool = AtomicBool::new(false);

/// What an instance does.
pub(crate) fn inside(args: &[String]) -> Result<()> {
    match args.first().map(String::as_str) {
        Some("mortal") => {
            std::thread::sleep(Duration::from_millis(50));
            println!("{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis());
            std::process::exit(1)
        }
        Some("crashing") => std::process::exit(1),
        Some(kind) => serve(kind == "graceful"),
        None => anyhow::bail!("no kind of app is named"),
    }
}

/// Answers every request. Asked to stop, a graceful one takes no new connection, says in its next answer on each
/// that it is the last, and ends with the last of them.
fn serve(graceful: bool) -> Result<()> {
    extern "C" fn stop(_: libc::c_int) {
        STOP.store(true, Ordering::SeqCst);
    }
    let listener = TcpListener::bind("0.0.0.0:8080")?;
    if graceful {
        let handler: extern "C" fn(libc::c_int) = stop;
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(libc::SIGTERM, handler as libc::sighandler_t) };
    }
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                OPEN.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let _ = answer(stream);
                    OPEN.fetch_sub(1, Ordering::SeqCst);
                });
            }
            // Whoever waits for its acceptance when the signal comes is taken first.
            Err(_) if STOP.load(Ordering::SeqCst) => break,
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    drop(listener);
    while OPEN.load(Ordering::SeqCst) > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => text.extend_from_slice(&buffer[..n]),
        }
        if !text.ends_with(b"\r\n\r\n") {
            continue;
        }
        text.clear();
        let last = STOP.load(Ordering::SeqCst);
        stream.write_all(if last { LAST_ANSWER } else { ANSWER })?;
        if last {
            return Ok(());
        }
    }
}
