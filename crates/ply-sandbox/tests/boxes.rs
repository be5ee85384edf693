//! The table of the box, row by row, in real boxes: as root and as an ordinary user.

mod common;

use common::{Ran, World, pipes, read_all};
use ply_sandbox::{
    Exit, Ids, LaunchError, Mount, MountOwner, Network, ScratchFile, ScratchFolder, ScratchLink, Stdio,
    WindowSize,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, Instant};

both! {
    every_namespace_is_its_own
    root_without_rights
    a_user_with_groups_has_exactly_those
    kept_capabilities_are_exactly_those_kept
    three_descriptors_are_open
    kernel_files_are_masked_or_read_only
    dev_holds_the_minimum
    temporary_folders_are_tmpfs
    limits_are_set
    the_network_is_loopback_with_low_ports_open
    files_folders_and_links_are_in_scratch
    scratch_is_gone_after_the_box_and_bounded
    exit_codes_and_signals_come_back
    orphans_are_reaped
    without_init_the_app_is_pid_1
    what_cannot_start_is_said_in_one_sentence
    volumes_hold_the_ids_of_the_inside
    a_read_only_bind_cannot_be_written
    hostile_targets_lead_nowhere
    a_hostile_image_cannot_hide_the_kernels_folders
    nothing_is_made_in_a_folder_of_the_host
    exec_has_what_the_app_has
    exec_of_an_ended_box_is_refused
    a_terminal_is_the_boxs_own
    exec_has_a_terminal_too
    the_workdir_is_inside
    devices_share_nothing_with_the_host
    watches_are_the_boxs_own
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
}

fn every_namespace_is_its_own() {
    let world = World::new();
    let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let inside =
        world.sh("for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done; hostname");
    let lines: Vec<&str> = inside.lines().collect();
    for (kind, inside) in kinds.iter().zip(&lines) {
        let outside = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        assert!(inside.starts_with(&format!("{kind}:[")), "{inside}");
        assert_ne!(*inside, outside.to_str().unwrap());
    }
    assert_eq!(lines[7], "box-1");
    let pids = world.sh("echo /proc/[0-9]*");
    assert_eq!(pids.trim(), "/proc/1 /proc/2");
}

fn root_without_rights() {
    let world = World::new();
    let status = world.run(&world.spec(&["cat", "/proc/self/status"])).out;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&status, set), "0000000000000000", "{set}");
    }
    assert_eq!(field(&status, "NoNewPrivs"), "1");
    assert_eq!(field(&status, "Seccomp"), "2");
    assert_eq!(field(&status, "Groups"), "");
    assert_eq!(field(&status, "Uid"), "0\t0\t0\t0");
    assert_eq!(field(&status, "SigIgn"), "0000000000000000");
    assert_eq!(field(&status, "SigBlk"), "0000000000000000");
    assert_eq!(world.sh("umask").trim(), "0022");
    let map = world.sh("cat /proc/self/uid_map");
    let first: Vec<&str> = map.lines().next().unwrap().split_ascii_whitespace().collect();
    let outside = match world.ids() {
        Ids::Leased { start, .. } => start,
        Ids::Rootless { uid, .. } => uid,
        Ids::Host => panic!("this machine can map ids"),
    };
    assert_eq!(first[..2], ["0", &outside.to_string()]);
}

fn a_user_with_groups_has_exactly_those() {
    let world = World::new();
    let mut spec = world.spec(&["cat", "/proc/self/status"]);
    spec.process.uid = 1000;
    spec.process.gid = 1001;
    spec.process.groups = vec![7, 1005];
    let status = world.run(&spec).out;
    assert_eq!(field(&status, "Uid"), "1000\t1000\t1000\t1000");
    assert_eq!(field(&status, "Gid"), "1001\t1001\t1001\t1001");
    assert_eq!(field(&status, "Groups"), "7 1005");
    assert_eq!(field(&status, "CapEff"), "0000000000000000");
}

fn kept_capabilities_are_exactly_those_kept() {
    let world = World::new();
    let kept = 1 << 10 | 1 << 5;
    for (uid, inheritable) in [(0, 0), (1000, kept)] {
        let mut spec = world.spec(&["cat", "/proc/self/status"]);
        spec.process.capabilities = kept;
        spec.process.uid = uid;
        let status = world.run(&spec).out;
        for (set, expected) in [
            ("CapPrm", kept),
            ("CapEff", kept),
            ("CapBnd", kept),
            ("CapInh", inheritable),
            ("CapAmb", inheritable),
        ] {
            assert_eq!(field(&status, set), format!("{expected:016x}"), "{set} of {uid}");
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1");
    }
}

fn three_descriptors_are_open() {
    let world = World::new();
    // One that the caller leaks on purpose.
    let leak = fs::File::open("/").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    for init in [true, false] {
        let mut spec = world.spec(&["ls", "/proc/self/fd"]);
        spec.init = init;
        // The last is the folder that ls itself reads.
        assert_eq!(world.run(&spec).out, "0\n1\n2\n3\n");
    }
}

fn kernel_files_are_masked_or_read_only() {
    let world = World::new();
    let mounts = world.sh("cat /proc/mounts");
    let options = |place: &str| -> String {
        let line = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some(place));
        line.unwrap_or_else(|| panic!("{place} in {mounts}")).split(' ').nth(3).unwrap().to_owned()
    };
    assert!(options("/proc").starts_with("rw,nosuid,nodev,noexec"));
    assert!(options("/sys").starts_with("ro,nosuid,nodev,noexec"));
    assert!(options("/sys/fs/cgroup").starts_with("ro,nosuid,nodev,noexec"));
    assert!(options("/").starts_with("rw,nosuid,nodev"));
    for place in ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"] {
        assert!(options(place).starts_with("ro,nosuid,nodev,noexec"), "{place}");
    }
    for hidden in ["kcore", "keys", "timer_list", "interrupts", "sched_debug", "latency_stats"] {
        let text = world.sh(&format!("[ ! -e /proc/{hidden} ] || cat /proc/{hidden} | wc -c"));
        assert!(matches!(text.trim(), "" | "0"), "{hidden}: {text}");
    }
    for hidden in ["/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"] {
        assert_eq!(world.sh(&format!("[ ! -e {hidden} ] || ls -A {hidden}")), "", "{hidden}");
    }
    let ran = world.run(&world.spec(&["sh", "-c", "echo 1 > /proc/sys/vm/drop_caches"]));
    assert!(ran.err.contains("Read-only file system"), "{ran:?}");
}

fn dev_holds_the_minimum() {
    let world = World::new();
    let names = world.sh("ls /dev; echo; ls /dev/pts; stat -c '%n %F %t,%T' /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty; readlink /dev/ptmx; readlink /dev/fd");
    assert_eq!(
        names,
        "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n\nptmx\n\
         /dev/null character special file 1,3\n/dev/zero character special file 1,5\n\
         /dev/full character special file 1,7\n/dev/random character special file 1,8\n\
         /dev/urandom character special file 1,9\n/dev/tty character special file 5,0\n\
         pts/ptmx\n/proc/self/fd\n"
    );
    assert_eq!(
        world.sh("echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 9 /dev/urandom | wc -c"),
        "3\n9\n"
    );
}

fn temporary_folders_are_tmpfs() {
    let world = World::new();
    let mounts = world.sh("cat /proc/mounts");
    for place in ["/tmp", "/var/tmp", "/dev/shm"] {
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place)).unwrap();
        assert!(line.contains(" tmpfs rw,nosuid,nodev"), "{line}");
        assert!(line.contains("size=65536k"), "{line}");
        assert_eq!(line.contains("noexec"), place == "/dev/shm", "{line}");
        assert_eq!(
            mounts.lines().filter(|line| line.split(' ').nth(1) == Some(place)).count(),
            1,
            "{mounts}"
        );
        assert_eq!(world.sh(&format!("stat -c %a {place}")).trim(), "1777", "{place}");
    }
    // /run is the image's own.
    assert!(!mounts.contains(" /run "));
}

fn limits_are_set() {
    let world = World::new();
    let limits = world.sh("cat /proc/self/limits");
    let limit = |name: &str| -> Vec<String> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().take(2).map(str::to_owned).collect()
    };
    assert_eq!(limit("Max core file size"), ["0", "0"]);
    assert_eq!(limit("Max processes"), ["200", "200"]);
    // Raising what the host allows takes a right that not every root has.
    let may_raise = fs::read_to_string("/proc/self/status").unwrap();
    let may_raise = u64::from_str_radix(field(&may_raise, "CapEff"), 16).unwrap() >> 24 & 1 == 1;
    let host = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let host = if may_raise { u64::MAX } else { host };
    assert_eq!(limit("Max open files"), [host.min(65_536).to_string(), host.min(524_288).to_string()]);
    let ran = world.run(&world.spec(&["attack", "exhaust-processes=150", "exhaust-processes=200"]));
    assert_eq!(ran.out, "exhaust-processes through\nexhaust-processes 11\n", "{ran:?}");
}

fn the_network_is_loopback_with_low_ports_open() {
    let world = World::new();
    let links = world.sh("ip -o link | cut -d: -f2,3 | cut -d' ' -f2,3");
    assert!(links.lines().all(|line| !line.contains("eth")) && links.contains("LOOPBACK,UP"), "{links}");
    let mut spec = world.spec(&["sh", "-c", "echo hello | nc -l -p 80"]);
    spec.process.uid = 1000;
    let (stdio, [out, err]) = pipes();
    let mut instance = world.launch(&spec, stdio).unwrap();
    let address: std::net::SocketAddr = "127.0.0.1:80".parse().unwrap();
    let start = Instant::now();
    let mut said = String::new();
    while said.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", read_all(err));
        let socket = instance.tcp_sockets(1).unwrap().remove(0);
        if rustix::net::connect(&socket, &address).is_ok() {
            said = read_all(socket);
        } else {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_eq!(said, "hello\n");
    assert_eq!(instance.wait().unwrap(), Exit::Code(0));
    drop(out);
    // Many at once, more than one message holds.
    let (stdio, _out) = pipes();
    let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    assert_eq!(instance.tcp_sockets(400).unwrap().len(), 400);
    assert_eq!(instance.tcp6_sockets(1).unwrap().len(), 1);
    assert_eq!(instance.tcp_sockets(0).unwrap().len(), 0);
}

fn files_folders_and_links_are_in_scratch() {
    let world = World::with(|tree| {
        // What an image has there is replaced, not followed.
        symlink("/srv/elsewhere", tree.join("etc/hosts")).unwrap();
    });
    let mut spec = world.spec(&[
        "sh",
        "-c",
        "cat /etc/hosts /a/b/c; readlink /etc/resolv.conf; stat -c '%a %u %g' /home/app /a/b/c /a; ls /srv",
    ]);
    spec.files.push(ScratchFile {
        path: "/etc/hosts".into(),
        contents: b"127.0.0.1 localhost\n".to_vec(),
        mode: 0o644,
    });
    spec.files.push(ScratchFile { path: "/a/b/c".into(), contents: b"deep\n".to_vec(), mode: 0o600 });
    spec.folders.push(ScratchFolder { path: "/home/app".into(), mode: 0o750, uid: 1000, gid: 1001 });
    spec.links.push(ScratchLink { path: "/etc/resolv.conf".into(), target: "/run/ply/resolv.conf".into() });
    assert_eq!(
        world.run(&spec).out,
        "127.0.0.1 localhost\ndeep\n/run/ply/resolv.conf\n750 1000 1001\n600 0 0\n755 0 0\n"
    );
}

fn scratch_is_gone_after_the_box_and_bounded() {
    let world = World::new();
    world.sh("echo x > /etc/motd; rm /bin/busybox; touch /new");
    assert_eq!(world.sh("cat /etc/motd; [ ! -e /new ]"), "hello\n");
    let ran = world.run(&world.spec(&[
        "sh",
        "-c",
        "head -c 100m /dev/zero > /big; head -c 100m /dev/zero > /tmp/big; stat -c %s /big /tmp/big",
    ]));
    for size in ran.out.lines() {
        assert!(size.parse::<u64>().unwrap() <= 64 << 20, "{ran:?}");
    }
    assert_eq!(ran.err.lines().count(), 2, "{ran:?}");
    // The temporary folders share what one of them may hold.
    let script = "for f in /tmp/a /var/tmp/b /dev/shm/c; do head -c 40m /dev/zero > $f; done; \
                  cat /tmp/a /var/tmp/b /dev/shm/c | wc -c";
    let ran = world.run(&world.spec(&["sh", "-c", script]));
    assert_eq!(ran.out.trim().parse::<u64>().unwrap(), 64 << 20, "{ran:?}");
}

fn devices_share_nothing_with_the_host() {
    let world = World::new();
    let host = fs::File::open("/dev/null").unwrap();
    rustix::fs::flock(&host, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = host.metadata().unwrap().modified().unwrap();
    let taken = world.sh("attack device-locked; touch -d 2001-01-01 /dev/null 2>/dev/null || :");
    // Rootless nodes can't be made: what is bound is no more than this user has anyway.
    assert_eq!(taken, if world.host.root { "device-locked 11\n" } else { "device-locked through\n" });
    assert_eq!(host.metadata().unwrap().modified().unwrap(), before);
    drop(host);
}

fn watches_are_the_boxs_own() {
    let world = World::new();
    let limit = |name: &str| -> u32 {
        fs::read_to_string(format!("/proc/sys/fs/inotify/{name}")).unwrap().trim().parse().unwrap()
    };
    let (instances, watches) = (limit("max_user_instances") / 4, limit("max_user_watches") / 4);
    assert_eq!(
        world.sh("cat /proc/sys/user/max_inotify_instances /proc/sys/user/max_inotify_watches"),
        format!("{}\n{}\n", instances.max(16), watches.max(16))
    );
    // One more than the first gets is one too many.
    for (more, expected) in [(instances.max(16) - 1, "through"), (instances.max(16), "24")] {
        let ran = world.run(&world.spec(&["attack", &format!("exhaust-inotify-instances={more}")]));
        assert_eq!(ran.out, format!("exhaust-inotify-instances {expected}\n"), "{ran:?}");
    }
}

fn exit_codes_and_signals_come_back() {
    let world = World::new();
    for init in [true, false] {
        for code in [0, 1, 77, 255] {
            let mut spec = world.spec(&["sh", "-c", &format!("exit {code}")]);
            spec.init = init;
            assert_eq!(world.run(&spec).exit, Exit::Code(code));
        }
    }
    let ran = world.run(&world.spec(&["sh", "-c", "kill -SEGV $$"]));
    assert_eq!(ran.exit.code(), 139);
    // Forwarded: the app has a handler and says so.
    let (stdio, [out, _err]) = pipes();
    let script =
        "trap 'echo usr1' USR1; trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut instance = world.launch(&world.spec(&["sh", "-c", script]), stdio).unwrap();
    let mut out = fs::File::from(out);
    let mut expect = |words: &str| {
        let mut got = vec![0; words.len()];
        out.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8(got).unwrap(), words);
    };
    expect("ready\n");
    instance.signal(libc::SIGUSR1).unwrap();
    expect("usr1\n");
    assert_eq!(instance.try_wait().unwrap(), None);
    instance.signal(libc::SIGTERM).unwrap();
    expect("bye\n");
    assert_eq!(instance.wait().unwrap(), Exit::Code(3));
    instance.signal(libc::SIGTERM).unwrap();
    // Killed: all of it at once.
    let (stdio, _out) = pipes();
    let mut instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    instance.signal(libc::SIGKILL).unwrap();
    assert_eq!(instance.wait().unwrap(), Exit::Signal(9));
}

fn orphans_are_reaped() {
    let world = World::new();
    let script = "for i in 1 2 3 4 5; do sh -c '(sleep 0.05 &)'; done; sleep 0.5; \
                  cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -c Z; echo /proc/[0-9]* | wc -w";
    let ran = world.run(&world.spec(&["sh", "-c", script]));
    let lines: Vec<u32> = ran.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(lines[0], 0, "zombies: {ran:?}");
    assert!(lines[1] <= 4, "{ran:?}");
    // What the app leaves running ends with it.
    let (stdio, [out, _err]) = pipes();
    let mut instance = world.launch(&world.spec(&["sh", "-c", "sleep 60 & exit 0"]), stdio).unwrap();
    assert_eq!(instance.wait().unwrap(), Exit::Code(0));
    assert_eq!(read_all(out), "");
}

fn without_init_the_app_is_pid_1() {
    let world = World::new();
    let mut spec =
        world.spec(&["sh", "-c", "echo $$; readlink /proc/1/exe; grep -E 'Cap|Seccomp:' /proc/1/status"]);
    spec.init = false;
    let ran = world.run(&spec);
    assert!(ran.out.starts_with("1\n/bin/busybox\n"), "{ran:?}");
    assert!(ran.out.contains("Seccomp:\t2"), "{ran:?}");
    assert!(!ran.out.contains("ffff"), "{ran:?}");
    let (stdio, _out) = pipes();
    let instance = world.launch(&spec, stdio).unwrap();
    assert_eq!(instance.init(), instance.app());
}

fn what_cannot_start_is_said_in_one_sentence() {
    let world = World::with(|tree| {
        fs::write(tree.join("bin/text"), "no program\n").unwrap();
        fs::set_permissions(tree.join("bin/text"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(tree.join("bin/plain"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tree.join("bin/plain"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(tree.join("bin/lost"), "#!/no/such/interpreter\n").unwrap();
        fs::set_permissions(tree.join("bin/lost"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("/proc/self/exe", tree.join("bin/self")).unwrap();
    });
    let mut said = String::new();
    for argv in ["nothing", "/bin/nothing", "text", "plain", "/bin/plain", "lost", "/etc", "self"] {
        let error = world.try_run(&world.spec(&[argv])).unwrap_err();
        said += &format!("{argv}: {} {error}\n", error.exit_code());
    }
    for (what, change) in [
        ("workdir", (|spec| spec.process.workdir = "/none".into()) as fn(&mut ply_sandbox::Spec)),
        ("workdir file", |spec| spec.process.workdir = "/etc/motd".into()),
        ("relative", |spec| spec.process.workdir = "etc".into()),
        ("user", |spec| spec.process.uid = 700_000),
        ("group", |spec| spec.process.groups = vec![700_000]),
        ("program", |spec| spec.process.argv.clear()),
        ("source", |spec| {
            spec.mounts.push(Mount {
                source: "/no/such/folder".into(),
                target: "/srv".into(),
                read_only: false,
                owner: MountOwner::Inside,
            })
        }),
        ("root", |spec| {
            spec.mounts.push(Mount {
                source: "/tmp".into(),
                target: "/".into(),
                read_only: false,
                owner: MountOwner::Inside,
            })
        }),
        ("proc", |spec| {
            spec.mounts.push(Mount {
                source: "/tmp".into(),
                target: "/proc/x".into(),
                read_only: false,
                owner: MountOwner::Inside,
            })
        }),
        ("device", |spec| spec.devices.push("/dev/no-such-device".into())),
        ("device folder", |spec| spec.devices.push("/dev/pts".into())),
        ("device outside", |spec| spec.devices.push("/etc/passwd".into())),
        ("file over folder", |spec| {
            spec.files.push(ScratchFile { path: "/etc".into(), contents: vec![], mode: 0o644 })
        }),
        ("file below file", |spec| {
            spec.files.push(ScratchFile { path: "/etc/motd/x".into(), contents: vec![], mode: 0o644 })
        }),
    ] {
        let mut spec = world.spec(&["true"]);
        change(&mut spec);
        let error = world.try_run(&spec).unwrap_err();
        said += &format!("{what}: {} {error}\n", error.exit_code());
    }
    let ids = if world.host.root { "65536" } else { "65537" };
    assert_eq!(said, REFUSALS.replace("{ids}", ids));
}

const REFUSALS: &str = r#"nothing: 127 the program isn't in the image: nothing
/bin/nothing: 127 the program isn't in the image: /bin/nothing
text: 126 the program can't be executed: text (it isn't a program for this machine, and no script that names one)
plain: 126 the program can't be executed: plain (it isn't an executable file for this user)
/bin/plain: 126 the program can't be executed: /bin/plain (it isn't an executable file for this user)
lost: 126 the program can't be executed: lost (its interpreter or loader isn't in the image)
/etc: 126 the program can't be executed: /etc (it isn't an executable file for this user)
self: 126 the program can't be executed: self (its links lead out of the image)
workdir: 125 the working directory isn't in the image: /none (No such file or directory)
workdir file: 125 the working directory isn't in the image: /etc/motd (Not a directory)
relative: 125 the box can't be made: not an absolute path inside: "etc"
user: 125 the user 700000 has no id outside: the box has {ids} ids
group: 125 the group 700000 has no id outside: the box has {ids} ids
program: 125 the box can't be made: there is no program to run
source: 125 can't bind /no/such/folder: No such file or directory
root: 125 the box can't be made: nothing can be mounted over the root
proc: 125 can't use the path /proc/x inside: /proc, /sys and /dev are the box's own
device: 125 can't bind /dev/no-such-device: No such file or directory
device folder: 125 can't bind /dev/pts: No such device
device outside: 125 the box can't be made: a device must be below /dev: /etc/passwd
file over folder: 125 can't use the path /etc inside: a folder is there
file below file: 125 can't use the path /etc/motd/x inside: a part of it isn't a folder
"#;

fn volumes_hold_the_ids_of_the_inside() {
    let world = World::new();
    let volume = world.volume("volume", "/data/deep");
    let mut spec = world.spec(&["sh", "-c", "id -u; echo x > /data/deep/file; stat -c %u /data/deep /data/deep/file; grep -c nodev,relatime /proc/mounts >/dev/null; grep ' /data/deep ' /proc/mounts"]);
    spec.mounts.push(volume.clone());
    if world.host.root {
        std::os::unix::fs::chown(&volume.source, Some(1000), Some(1000)).unwrap();
        spec.process.uid = 1000;
        spec.process.gid = 1000;
    }
    let ran = world.run(&spec);
    let id = if world.host.root { "1000" } else { "0" };
    assert!(ran.out.starts_with(&format!("{id}\n{id}\n{id}\n")), "{ran:?}");
    assert!(ran.out.contains("nosuid,nodev"), "{ran:?}");
    let file = fs::metadata(volume.source.join("file")).unwrap();
    let outside = if world.host.root { 1000 } else { world.host.uid };
    assert_eq!(file.uid(), outside);
    // Volumes lie in volumes and in temporary folders too.
    let mut spec = world.spec(&["sh", "-c", "echo y > /data/deep/inner/y; echo z > /tmp/v/z"]);
    spec.mounts = vec![volume, world.volume("inner", "/data/deep/inner"), world.volume("tmp", "/tmp/v")];
    assert_eq!(world.run(&spec).exit, Exit::Code(0));
    assert_eq!(fs::read_to_string(world.path("inner/y")).unwrap(), "y\n");
    assert_eq!(fs::read_to_string(world.path("tmp/z")).unwrap(), "z\n");
}

fn a_read_only_bind_cannot_be_written() {
    let world = World::new();
    fs::write(world.path("file"), "from outside\n").unwrap();
    let owner = MountOwner::HostUser { uid: world.host.uid, gid: world.host.gid };
    let mut spec = world.spec(&["sh", "-c", "cat /opt/file; echo x > /opt/file; mkdir /opt/folder/x"]);
    fs::create_dir(world.path("folder")).unwrap();
    for name in ["file", "folder"] {
        spec.mounts.push(Mount {
            source: world.path(name),
            target: format!("/opt/{name}"),
            read_only: true,
            owner,
        });
    }
    let ran = world.run(&spec);
    assert_eq!(ran.out, "from outside\n");
    assert_eq!(ran.err.matches("Read-only file system").count(), 2, "{ran:?}");
}

fn hostile_targets_lead_nowhere() {
    let world = World::with(|tree| {
        symlink("/etc", tree.join("srv/absolute")).unwrap();
        symlink("../../../../../../../etc", tree.join("srv/up")).unwrap();
        symlink("/proc/self/root", tree.join("srv/magic")).unwrap();
        symlink("/proc/1/cwd", tree.join("srv/magic2")).unwrap();
        symlink("/srv/a", tree.join("srv/b")).unwrap();
        symlink("/srv/b", tree.join("srv/a")).unwrap();
        symlink("/nowhere/at/all", tree.join("srv/dangling")).unwrap();
    });
    let before = fs::read_dir("/etc").unwrap().count();
    let marker = common::unique();
    fs::create_dir(world.path("evil")).unwrap();
    fs::write(world.path("evil").join(&marker), "").unwrap();
    let owner = MountOwner::HostUser { uid: world.host.uid, gid: world.host.gid };
    for (target, seen) in [
        ("/srv/absolute/x", Ok("/etc/x")),
        ("/srv/up/x", Ok("/etc/x")),
        ("/srv/../../../etc/y", Ok("/etc/y")),
        ("/srv/absolute", Ok("/etc")),
        ("/srv/magic/x", Err("")),
        ("/srv/magic2/x", Err("")),
        ("/srv/a/x", Err("")),
        ("/srv/dangling", Err("")),
    ] {
        let mut spec = world.spec(&["sh", "-c", &format!("ls {}", seen.unwrap_or("/"))]);
        spec.files.clear();
        spec.mounts.push(Mount {
            source: world.path("evil"),
            target: target.into(),
            read_only: false,
            owner,
        });
        match (world.try_run(&spec), seen) {
            (Ok(ran), Ok(_)) => assert_eq!(ran.out.trim(), marker, "{target}: {ran:?}"),
            (Err(LaunchError::Target { path, .. }), Err(_)) => assert_eq!(path, target),
            (other, _) => panic!("{target}: {other:?}"),
        }
    }
    assert_eq!(fs::read_dir("/etc").unwrap().count(), before);
}

fn a_hostile_image_cannot_hide_the_kernels_folders() {
    for name in ["proc", "sys", "dev"] {
        let world = World::with(|tree| symlink("/srv", tree.join(name)).unwrap());
        let error = world.try_run(&world.spec(&["true"])).unwrap_err();
        assert!(matches!(error, LaunchError::Step { .. }), "{error}");
    }
    // A volume whose target is a link to /proc lies beneath the real one.
    let world = World::with(|tree| {
        fs::create_dir(tree.join("proc")).unwrap();
        symlink("/proc", tree.join("srv/data")).unwrap();
    });
    let mut spec = world.spec(&[
        "sh",
        "-c",
        "grep -c . /proc/self/status > /dev/null && grep ' /proc/sys ' /proc/mounts",
    ]);
    spec.mounts.push(world.volume("fake", "/srv/data"));
    let ran = world.run(&spec);
    assert!(ran.out.contains("proc ro,"), "{ran:?}");
}

fn nothing_is_made_in_a_folder_of_the_host() {
    let world = World::new();
    fs::create_dir(world.path("link")).unwrap();
    let owner = MountOwner::HostUser { uid: world.host.uid, gid: world.host.gid };
    let mut spec = world.spec(&["true"]);
    spec.mounts.push(Mount { source: world.path("link"), target: "/opt".into(), read_only: false, owner });
    spec.mounts.push(world.volume("volume", "/opt/made"));
    let error = world.try_run(&spec).unwrap_err();
    assert_eq!(
        error.to_string(),
        "can't use the path /opt/made inside: it would have to be made in a folder of the host"
    );
    assert_eq!(fs::read_dir(world.path("link")).unwrap().count(), 0);
}

fn run_exec(instance: &ply_sandbox::Instance, script: &str) -> Ran {
    let (stdio, readers) = pipes();
    let argv = ["sh", "-c", script].map(str::to_owned);
    let mut exec = ply_sandbox::exec(instance.target(), &argv, stdio).unwrap();
    let [out, err] = readers.map(read_all);
    Ran { out, err, exit: exec.wait().unwrap() }
}

fn exec_has_what_the_app_has() {
    let world = World::new();
    let facts = "for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done; pwd; env | sort | grep -v SHLVL; \
                 grep -E '^(Cap|NoNew|Seccomp|Groups|Uid|Gid|SigBlk|SigIgn)' /proc/self/status; cat /proc/self/limits /proc/self/cgroup; ls /proc/self/fd; umask";
    for (uid, capabilities) in [(0, 0), (1000, 1 << 10)] {
        let mut spec = world.spec(&["sh", "-c", &format!("({facts}); read x")]);
        spec.process.uid = uid;
        spec.process.groups = vec![9];
        spec.process.capabilities = capabilities;
        spec.process.workdir = "/srv".into();
        let (input, writer) = std::io::pipe().unwrap();
        let (out, out_end) = std::io::pipe().unwrap();
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let stdio = Stdio::Fds([input.into(), out_end.into(), null.into()]);
        let mut instance = world.launch(&spec, stdio).unwrap();
        let exec = run_exec(&instance, facts);
        drop(writer);
        instance.wait().unwrap();
        let app = read_all(out.into());
        assert_eq!(exec.out.replace("\n0\n1\n2\n3\n", "\n"), app.replace("\n0\n1\n2\n3\n", "\n"));
        assert!(app.contains("Seccomp:\t2"));
    }
    let (stdio, _out) = pipes();
    let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    assert_eq!(run_exec(&instance, "exit 42").exit, Exit::Code(42));
    assert_eq!(run_exec(&instance, "kill -9 $$").exit, Exit::Code(137));
    let (stdio, _readers) = pipes();
    let error = ply_sandbox::exec(instance.target(), &["nothing".to_owned()], stdio).unwrap_err();
    assert_eq!(
        (error.exit_code(), error.to_string().as_str()),
        (127, "the program isn't in the image: nothing")
    );
}

fn exec_of_an_ended_box_is_refused() {
    let world = World::new();
    let (stdio, _out) = pipes();
    let mut instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    let mut target = instance.target().clone();
    target.init.start_time += 1;
    let try_exec = |target| {
        let (stdio, _readers) = pipes();
        ply_sandbox::exec(target, &["true".to_owned()], stdio).unwrap_err().to_string()
    };
    assert!(try_exec(&target).contains("another process's number now"));
    instance.signal(libc::SIGKILL).unwrap();
    instance.wait().unwrap();
    assert!(try_exec(instance.target()).contains("has ended"));
}

/// Talks to a terminal until it has said all of `words`, or a minute has passed.
fn expect(terminal: &mut fs::File, words: &str) {
    let mut seen = String::new();
    let start = Instant::now();
    while !seen.contains(words) {
        let mut poll = [rustix::event::PollFd::new(terminal, rustix::event::PollFlags::IN)];
        let wait = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        assert!(start.elapsed() < Duration::from_secs(60), "{words:?} in {seen:?}");
        if rustix::event::poll(&mut poll, Some(&wait)).unwrap() == 1 {
            let mut buffer = [0; 1024];
            let got = terminal.read(&mut buffer).unwrap_or(0);
            assert!(got > 0, "it ended; {words:?} in {seen:?}");
            seen += &String::from_utf8_lossy(&buffer[..got]);
        }
    }
}

fn a_terminal_is_the_boxs_own() {
    let world = World::new();
    for uid in [0, 1000] {
        let mut spec = world.spec(&["sh"]);
        spec.process.uid = uid;
        let size = WindowSize { rows: 33, columns: 99 };
        let mut instance = world.launch(&spec, Stdio::Terminal(size)).unwrap();
        let mut terminal = fs::File::from(instance.take_terminal().unwrap());
        terminal
            .write_all(b"tty; stty size; ls /dev/pts /dev/console; echo a > /dev/tty; echo en''d\n")
            .unwrap();
        expect(&mut terminal, "end\r\n");
        terminal
            .write_all(
                b"stty -echo; tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && sh -c 'echo a\"\"ll; exec sleep 60'\n",
            )
            .unwrap();
        expect(&mut terminal, "/dev/pts/0\r\nall\r\n");
        // The keyboard's interrupt reaches what runs in front.
        terminal.write_all(b"\x03").unwrap();
        terminal.write_all(b"stty size; exit 5\n").unwrap();
        expect(&mut terminal, "33 99");
        assert_eq!(instance.wait().unwrap(), Exit::Code(5));
    }
}

fn exec_has_a_terminal_too() {
    let world = World::new();
    let (stdio, _out) = pipes();
    let mut spec = world.spec(&["sleep", "60"]);
    spec.process.uid = 1000;
    let instance = world.launch(&spec, stdio).unwrap();
    let size = WindowSize { rows: 20, columns: 70 };
    let mut exec = ply_sandbox::exec(instance.target(), &["sh".to_owned()], Stdio::Terminal(size)).unwrap();
    let mut terminal = fs::File::from(exec.take_terminal().unwrap());
    terminal.write_all(b"stty size; tty; exit 6\n").unwrap();
    expect(&mut terminal, "20 70\r\n/dev/pts/0\r\n");
    assert_eq!(exec.wait().unwrap(), Exit::Code(6));
}

fn the_workdir_is_inside() {
    let world = World::with(|tree| symlink("/proc/self/fd/7", tree.join("srv/leak")).unwrap());
    let leak = fs::File::open("/").unwrap();
    for fd in 3..30 {
        let _ = rustix::io::fcntl_dupfd_cloexec(&leak, fd);
    }
    for workdir in ["/proc/self/fd/3", "/proc/self/fd/7", "/proc/self/fd/9", "/srv/leak", "/proc/1/cwd"] {
        let mut spec = world.spec(&["sh", "-c", "pwd; ls ../../../.."]);
        spec.process.workdir = workdir.into();
        let error = world.try_run(&spec).unwrap_err();
        assert!(matches!(error, LaunchError::Workdir { .. }), "{workdir}: {error}");
    }
    let mut spec = world.spec(&["pwd"]);
    spec.process.workdir = "/srv/../var".into();
    spec.network = Network::None;
    assert_eq!(world.run(&spec).out, "/var\n");
}
