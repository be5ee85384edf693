//! At a terminal: Ctrl-C stops the app at once and the terminal is as before; `-t` gives the app one of its own.

use crate::harness::{BOTH, World, ply_binary};
use crate::inside::shell;

/// Runs ply on a pseudo-terminal: waits for a word, types, waits for the end; prints the exit code, the seconds from
/// the last key to the end, whether the terminal is as before, and all that was shown.
const DRIVER: &str = r#"
import os, pty, sys, termios, time, json
wait, keys, argv = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(argv[0], argv)
before = termios.tcgetattr(fd)
shown = b""
def read():
    global shown
    try:
        piece = os.read(fd, 65536)
    except OSError:
        return False
    shown += piece
    return bool(piece)
while wait.encode() not in shown and read():
    pass
for key in keys:
    os.write(fd, key.encode("latin-1"))
    time.sleep(0.1)
typed = time.time()
def ended():
    done, status = os.waitpid(pid, os.WNOHANG)
    return status if done else None
status = None
os.set_blocking(fd, False)
while status is None and time.time() - typed < 200:
    try:
        shown += os.read(fd, 65536)
    except (BlockingIOError, OSError):
        pass
    status = ended()
    time.sleep(0.005)
took = time.time() - typed
try:
    same = termios.tcgetattr(fd) == before
except termios.error:
    same = None
print(json.dumps({"code": os.waitstatus_to_exitcode(status) if status is not None else None, "took": took, "same": same,
                  "shown": shown.decode("utf-8", "replace")}))
"#;

fn at_a_terminal(world: &World, wait: &str, keys: &[&str], args: &[&str]) -> serde_json::Value {
    let mut command = world.command("python3");
    command.args(["-c", DRIVER, wait, &serde_json::to_string(keys).unwrap()]).arg(ply_binary()).args(args);
    let done = world.finish(command).expect(0);
    serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", done.out, done.err))
}

#[test]
fn ctrl_c_stops_redis_within_a_second_and_the_terminal_is_as_before() {
    for who in BOTH {
        let world = World::new(who);
        let stop = || {
            let seen = at_a_terminal(&world, "Ready to accept connections", &["\u{3}"], &["run", "redis@8"]);
            assert_eq!(seen["code"], 0, "{who:?}\n{seen}");
            assert_eq!(seen["same"], true, "{who:?}\n{seen}");
            seen["took"].as_f64().unwrap()
        };
        // The best of some: the machine may have had something else to do.
        let tries: Vec<f64> = (0..5)
            .map(|_| stop())
            .scan(false, |done, took| (!std::mem::replace(done, took < 1.0)).then_some(took))
            .collect();
        assert!(tries.iter().any(|took| *took < 1.0), "{who:?}: {tries:?} seconds");
    }
}

#[test]
fn an_app_with_a_terminal_of_its_own_reads_keys_and_leaves_by_ctrl_bracket() {
    for who in BOTH {
        let world = shell(who);
        let args = ["run", "./sh", "-t"];
        let seen = at_a_terminal(&world, "# ", &["tty; stty size\r", "exit 4\r"], &args);
        assert_eq!(seen["code"], 4, "{who:?}\n{seen}");
        assert!(seen["shown"].as_str().unwrap().contains("/dev/pts/0"), "{who:?}\n{seen}");
        assert_eq!(seen["same"], true, "{who:?}\n{seen}");

        let stuck = [
            "run",
            "./sh",
            "-t",
            "--stop-timeout",
            "500ms",
            "--",
            "-c",
            "trap '' INT TERM; echo ready; while :; do sleep 0.1; done",
        ];
        let seen = at_a_terminal(&world, "ready", &["\u{3}", "\u{1d}\u{1d}\u{1d}"], &stuck);
        assert!(seen["took"].as_f64().unwrap() < 100.0, "{who:?}\n{seen}");
        assert_eq!(seen["same"], true, "{who:?}\n{seen}");
    }
}
