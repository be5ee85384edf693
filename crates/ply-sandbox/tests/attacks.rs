//! What a hostile program tries inside a box, and what it gets: as root and as an ordinary user, from the app and
//! from `exec`. The attempts are in `common/attack.c`.

mod common;

use common::{World, pipes, read_all};
use ply_sandbox::Exit;

both! {
    nothing_gets_through
    a_user_gets_no_further
    exec_gets_no_further
    the_hosts_program_is_never_reached
    a_terminal_takes_no_input_from_inside
}

/// Each attempt with the errnos by which it may fail.
const ATTEMPTS: &[(&str, &[i32])] = &[
    ("mount-tmpfs", &[libc::EPERM]),
    ("mount-proc", &[libc::EPERM]),
    ("mount-bind", &[libc::EPERM]),
    ("remount-root", &[libc::EPERM]),
    ("remount-sys", &[libc::EPERM]),
    ("umount-mask", &[libc::EPERM]),
    ("umount-sys", &[libc::EPERM]),
    ("fsopen", &[libc::ENOSYS]),
    ("open-tree", &[libc::ENOSYS]),
    ("pivot-root", &[libc::EPERM]),
    ("chroot", &[libc::EPERM]),
    ("unshare-user", &[libc::EPERM]),
    ("unshare-mount", &[libc::EPERM]),
    ("unshare-net", &[libc::EPERM]),
    ("clone-user", &[libc::EPERM]),
    ("clone-pid", &[libc::EPERM]),
    ("clone-sibling", &[libc::EPERM]),
    ("clone3", &[libc::ENOSYS]),
    ("setns-init", &[libc::EPERM]),
    ("ns-of-init", &[libc::EACCES]),
    ("ptrace-init", &[libc::EPERM]),
    ("kill-init-by-pidfd-getfd", &[libc::EPERM]),
    ("init-memory", &[libc::EACCES]),
    ("init-memory-write", &[libc::EACCES]),
    ("init-maps", &[libc::EACCES]),
    ("init-environment", &[libc::EACCES]),
    ("init-program", &[libc::EACCES]),
    ("init-program-open", &[libc::EACCES]),
    ("init-program-run", &[libc::EACCES]),
    ("init-root", &[libc::EACCES]),
    ("init-cwd", &[libc::EACCES]),
    ("init-fds", &[libc::EACCES]),
    ("init-vm", &[libc::EPERM]),
    ("kexec", &[libc::EPERM]),
    ("bpf", &[libc::EPERM]),
    ("perf", &[libc::EPERM]),
    ("keyctl", &[libc::EPERM]),
    ("add-key", &[libc::EPERM]),
    ("io-uring", &[libc::EPERM]),
    ("userfaultfd", &[libc::EPERM]),
    ("open-by-handle", &[libc::EPERM]),
    ("mknod", &[libc::EPERM]),
    ("mknod-block", &[libc::EPERM]),
    ("reboot", &[libc::EPERM]),
    ("swapoff", &[libc::EPERM]),
    ("syslog", &[libc::EPERM]),
    ("settime", &[libc::EPERM]),
    ("sethostname", &[libc::EPERM]),
    ("personality", &[libc::EPERM]),
    ("socket-alg", &[libc::EPERM]),
    ("socket-vsock", &[libc::EPERM]),
    ("socket-raw", &[libc::EPERM]),
    ("socket-packet", &[libc::EPERM]),
    // Where the kernel has no such file, there is nothing to write.
    ("core-pattern", &[libc::EROFS, libc::EACCES]),
    ("sysrq", &[libc::EROFS, libc::EACCES, libc::ENOENT]),
    ("uevent", &[libc::EROFS, libc::EACCES, libc::ENOENT]),
    ("cgroup", &[libc::EROFS, libc::EACCES]),
    ("cgroup-new", &[libc::EROFS, libc::EACCES]),
    ("oom-score", &[libc::EACCES]),
    ("port-range", &[libc::EROFS, libc::EACCES]),
    ("irq", &[libc::EROFS, libc::ENOENT, libc::EACCES]),
    ("kernel-memory", &[libc::ENOENT]),
    ("kernel-core", &[libc::ENODATA, libc::ENOENT]),
    ("raise-files", &[libc::EPERM]),
    ("raise-processes", &[libc::EPERM]),
    #[cfg(target_arch = "x86_64")]
    ("iopl", &[libc::EPERM]),
    #[cfg(target_arch = "x86_64")]
    ("legacy-mount", &[libc::EPERM, libc::ENOSYS]),
    #[cfg(target_arch = "x86_64")]
    ("legacy-unshare", &[libc::EPERM, libc::ENOSYS]),
    #[cfg(target_arch = "x86_64")]
    ("legacy-io-uring", &[libc::EPERM, libc::ENOSYS]),
    #[cfg(target_arch = "x86_64")]
    ("x32-mount", &[libc::ENOSYS]),
];

fn argv() -> Vec<&'static str> {
    std::iter::once("attack").chain(ATTEMPTS.iter().map(|(name, _)| *name)).collect()
}

fn judge(out: &str) {
    let mut wrong = String::new();
    for ((name, allowed), line) in ATTEMPTS.iter().zip(out.lines()) {
        let got = line.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {out}")).trim();
        if !got.parse().is_ok_and(|errno| allowed.contains(&errno)) {
            wrong += &format!("{name}: {got}, not {allowed:?}\n");
        }
    }
    assert_eq!(wrong, "");
    assert_eq!(out.lines().count(), ATTEMPTS.len(), "{out}");
}

fn nothing_gets_through() {
    let world = World::new();
    let host = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let ran = world.run(&world.spec(&argv()));
    assert_eq!(ran.exit, Exit::Code(0), "{ran:?}");
    judge(&ran.out);
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), host);
}

fn a_user_gets_no_further() {
    let world = World::new();
    let mut spec = world.spec(&argv());
    spec.process.uid = 1000;
    spec.process.gid = 1000;
    let ran = world.run(&spec);
    judge(&ran.out);
    spec.process.argv = ["attack", "setuid-0", "setgroups"].map(str::to_owned).to_vec();
    assert_eq!(world.run(&spec).out, "setuid-0 1\nsetgroups 1\n");
}

fn exec_gets_no_further() {
    let world = World::new();
    let (stdio, _out) = pipes();
    let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    let (stdio, [out, _err]) = pipes();
    let argv: Vec<String> = argv().into_iter().map(str::to_owned).collect();
    let mut exec = ply_sandbox::exec(instance.target(), &argv, stdio).unwrap();
    let out = read_all(out);
    assert_eq!(exec.wait().unwrap(), Exit::Code(0));
    judge(&out);
}

/// CVE-2019-5736: an entrypoint, an interpreter or a loader that is `/proc/self/exe` would run the host's program.
fn the_hosts_program_is_never_reached() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let world = World::with(|tree| {
        for (name, target) in [("of-self", "/proc/self/exe"), ("of-init", "/proc/1/exe")] {
            symlink(target, tree.join("bin").join(name)).unwrap();
            let script = tree.join(format!("bin/script-{name}"));
            std::fs::write(&script, format!("#!{target} --help\n")).unwrap();
            std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
    let (stdio, _out) = pipes();
    let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    for program in ["of-self", "of-init", "/proc/self/exe", "/proc/1/exe", "script-of-self", "script-of-init"]
    {
        for init in [true, false] {
            let mut spec = world.spec(&[program, "--help"]);
            spec.init = init;
            let ran = world.try_run(&spec);
            // It is refused, or it ran the stub, which found nothing to do; never this program.
            assert!(!ran.as_ref().is_ok_and(|ran| ran.out.contains("Usage")), "{program}: {ran:?}");
            assert!(!ran.as_ref().is_ok_and(|ran| ran.exit == Exit::Code(0)), "{program}: {ran:?}");
        }
        let (stdio, [out, _err]) = pipes();
        if let Ok(mut exec) = ply_sandbox::exec(instance.target(), &[program.to_owned()], stdio) {
            assert_ne!(exec.wait().unwrap(), Exit::Code(0), "{program}");
        }
        assert_eq!(read_all(out), "", "{program}");
    }
    // A process on its way in is looked at by one that waits for it.
    let script = "while :; do for p in /proc/[0-9]*; do readlink $p/exe; done; done | grep -v busybox";
    let (stdio, [out, _err]) = pipes();
    let mut watched = world.launch(&world.spec(&["timeout", "3", "sh", "-c", script]), stdio).unwrap();
    for _ in 0..40 {
        let (stdio, _readers) = pipes();
        let mut exec = ply_sandbox::exec(watched.target(), &["true".to_owned()], stdio).unwrap();
        exec.wait().unwrap();
    }
    watched.wait().unwrap();
    let seen = read_all(out);
    assert!(!seen.contains("attacks-") && !seen.contains("/deps/"), "{seen}");
}

fn a_terminal_takes_no_input_from_inside() {
    let world = World::new();
    let size = ply_sandbox::WindowSize { rows: 24, columns: 80 };
    let spec = world.spec(&["attack", "terminal-input", "terminal-linux"]);
    let mut instance = world.launch(&spec, ply_sandbox::Stdio::Terminal(size)).unwrap();
    let mut terminal = std::fs::File::from(instance.take_terminal().unwrap());
    let mut said = Vec::new();
    // The terminal answers EIO when the box is gone.
    let _ = std::io::Read::read_to_end(&mut terminal, &mut said);
    assert_eq!(String::from_utf8_lossy(&said), "terminal-input 1\r\nterminal-linux 1\r\n");
}

mod root_only {
    use super::*;
    use std::process::Command;

    /// A device node and a setuid file in an image: neither gives anything.
    #[test]
    fn root_devices_and_setuid_files_of_an_image_are_dead() {
        assert!(rustix::process::geteuid().is_root(), "this test needs root");
        let world = World::with(|tree| {
            let node = tree.join("srv/null-device");
            assert!(Command::new("mknod").arg(&node).args(["c", "1", "3"]).status().unwrap().success());
            assert!(Command::new("chmod").arg("666").arg(&node).status().unwrap().success());
            std::fs::copy(tree.join("bin/busybox"), tree.join("srv/id")).unwrap();
            assert!(Command::new("chmod").arg("4755").arg(tree.join("srv/id")).status().unwrap().success());
        });
        let mut spec = world.spec(&["attack", "device-in-image"]);
        assert_eq!(world.run(&spec).out, format!("device-in-image {}\n", libc::EACCES));
        spec.process.uid = 1000;
        spec.process.argv = ["/srv/id", "-u"].map(str::to_owned).to_vec();
        assert_eq!(world.run(&spec).out, "1000\n");
    }
}
