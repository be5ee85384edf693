//! Attacks on the launch itself: an image whose places are links, a folder that changes while it is used, a program that is
//! the host's own, a folder of the host's that was left open, a process on its way in that is looked into.

use crate::common::{World, pipes, read_all, unique};
use ply_sandbox::Defence::{self, *};
use ply_sandbox::{Exit, Ids, LaunchError, Mount, MountOwner, ScratchFile, Spec, without};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// Makes a test of each function twice: as root, and as an ordinary user.
macro_rules! both {
    ($($name:ident)*) => {
        mod root_box {
            $(#[test]
            fn $name() {
                if $crate::called(concat!("launch::root_box::", stringify!($name)), false) {
                    super::$name();
                }
            })*
        }
        mod rootless_box {
            $(#[test]
            fn $name() {
                if $crate::called(concat!("launch::rootless_box::", stringify!($name)), true) {
                    super::$name();
                }
            })*
        }
    };
}

both! {
    the_hosts_program_is_never_run
    a_process_on_its_way_in_is_not_looked_into
    a_working_directory_is_never_the_hosts
    a_link_where_a_file_of_ours_goes_is_replaced
    a_link_where_the_kernels_folders_go_is_refused
    nothing_is_made_in_a_folder_of_the_host
    a_target_swapped_while_launching_makes_nothing_on_the_host
}

/// Tries to run a box with some defences off.
fn attempt(world: &World, spec: &Spec, off: &[Defence]) -> Result<crate::common::Ran, LaunchError> {
    without(off, || world.try_run(spec))
}

/// An entrypoint, an interpreter or a loader that is `/proc/self/exe` would run the host's program (CVE-2019-5736).
fn the_hosts_program_is_never_run() {
    let world = World::with(|tree| {
        for (name, target) in [("of-self", "/proc/self/exe"), ("of-init", "/proc/1/exe")] {
            symlink(target, tree.join("bin").join(name)).unwrap();
            let script = tree.join(format!("bin/script-{name}"));
            fs::write(&script, format!("#!{target} --help\n")).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
    // What the host's program, which is this test, says of itself. A script has the argument in its first line.
    let is_ours = |out: &str| out.contains("--test-threads");
    let argv = |program: &str| -> Vec<String> {
        let help = (!program.starts_with("script-")).then(|| "--help".to_owned());
        [program.to_owned()].into_iter().chain(help).collect()
    };
    let run = |program: &str, init: bool, off: &[Defence]| {
        let mut spec = world.spec(&[]);
        spec.process.argv = argv(program);
        spec.init = init;
        attempt(&world, &spec, off)
    };
    let (stdio, _out) = pipes();
    let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
    let exec = |program: &str, off: &[Defence]| {
        let (stdio, [out, _err]) = pipes();
        let exec = without(off, || ply_sandbox::exec(instance.target(), &argv(program), stdio));
        let code = exec.ok().map(|mut exec| exec.wait().unwrap());
        (read_all(out), code)
    };
    for program in ["of-self", "of-init", "/proc/self/exe", "/proc/1/exe", "script-of-self", "script-of-init"]
    {
        for init in [true, false] {
            let ran = run(program, init, &[]);
            // It is refused, or it ran the sealed program, which found nothing to do.
            assert!(!ran.as_ref().is_ok_and(|ran| is_ours(&ran.out)), "{program}: {ran:?}");
            assert!(!ran.as_ref().is_ok_and(|ran| ran.exit == Exit::Code(0)), "{program}: {ran:?}");
        }
        let (out, code) = exec(program, &[]);
        assert!(!is_ours(&out) && code != Some(Exit::Code(0)), "{program}: {code:?} {out}");
    }
    // A script's interpreter is found by the kernel, so only the sealed program stands there; a program that is a link
    // isn't followed into /proc either.
    for (program, off) in [("script-of-self", &[Stub][..]), ("of-self", &[Stub, NoMagicLinks])] {
        let ran = run(program, true, off);
        assert!(ran.as_ref().is_ok_and(|ran| is_ours(&ran.out)), "{program}: {ran:?}");
        assert!(is_ours(&exec(program, off).0), "exec {program}");
    }
}

/// One that waits inside for every process that comes, and looks which program it is.
fn a_process_on_its_way_in_is_not_looked_into() {
    let world = World::with(|tree| {
        fs::copy(tree.join("bin/busybox"), tree.join("bin/busybox-visitor")).unwrap();
    });
    let seen = |ids: &Ids, program: &[&str], off: &[Defence], execs: u32| -> bool {
        let (stdio, [out, _err]) = pipes();
        let mut spec = world.spec(&["attack", "exec-watched=30"]);
        spec.ids = ids.clone();
        let mut watcher = world.launch(&spec, stdio).unwrap();
        let until = Instant::now() + Duration::from_secs(15);
        for _ in (0..execs).take_while(|_| Instant::now() < until) {
            let (stdio, _readers) = pipes();
            let argv: Vec<String> = program.iter().copied().map(str::to_owned).collect();
            match without(off, || ply_sandbox::exec(watcher.target(), &argv, stdio)) {
                Ok(mut exec) => drop(exec.wait().unwrap()),
                // It ended, which it does early only when it saw something.
                Err(_) => break,
            }
            if watcher.try_wait().unwrap().is_some() {
                break;
            }
        }
        watcher.signal(libc::SIGKILL).unwrap();
        watcher.wait().unwrap();
        read_all(out).contains("through")
    };
    let ids = world.ids();
    assert!(seen(&ids, &["/bin/busybox-visitor", "sleep", "2"], &[], 20), "it sees nothing at all");
    assert!(!seen(&ids, &["true"], &[], 60));
    // Joining a user namespace makes a process not dumpable; where there is none, only we do.
    if world.host.root {
        assert!(!seen(&Ids::Host, &["true"], &[], 60));
        assert!(seen(&Ids::Host, &["true"], &[NotDumpable], 400));
    }
}

/// A working directory through a descriptor that was left open (CVE-2024-21626).
fn a_working_directory_is_never_the_hosts() {
    let world = World::with(|tree| symlink("/proc/self/fd/7", tree.join("srv/leak")).unwrap());
    let marker = format!("marker-{}", unique());
    fs::write(world.path(&marker), "").unwrap();
    // Open, and at several numbers, as a careless parent would have it.
    let leak: std::os::fd::OwnedFd = fs::File::open(world.path("")).unwrap().into();
    for number in 7..30 {
        // SAFETY: these numbers are given to copies that are never closed; who had them isn't needed any more.
        unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&leak), libc::F_DUPFD, number) };
    }
    let there = |off: &[Defence]| -> bool {
        [8, 12, 20].into_iter().any(|number| {
            let mut spec = world.spec(&["ls"]);
            spec.process.workdir = format!("/proc/self/fd/{number}");
            attempt(&world, &spec, off).is_ok_and(|ran| ran.out.contains(&marker))
        })
    };
    assert!(!there(&[]));
    assert!(!there(&[Descriptors]));
    assert!(!there(&[NoMagicLinks]));
    assert!(there(&[Descriptors, NoMagicLinks]));
    for workdir in ["/srv/leak", "/proc/1/cwd", "/proc/1/root", "/proc/self/root/.."] {
        let mut spec = world.spec(&["ls"]);
        spec.process.workdir = workdir.into();
        let error = attempt(&world, &spec, &[]).unwrap_err();
        assert!(matches!(error, LaunchError::Workdir { .. }), "{workdir}: {error}");
    }
}

/// `/etc/hosts`, `/etc/resolv.conf` and their like are ours; an image has a link there that leads to what another would be
/// hurt by (CVE-2019-18837, CVE-2023-28642, CVE-2024-45310).
fn a_link_where_a_file_of_ours_goes_is_replaced() {
    let world = World::with(|tree| {
        fs::create_dir_all(tree.join("victim")).unwrap();
        fs::write(tree.join("victim/file"), "whole\n").unwrap();
        symlink("/victim/file", tree.join("etc/hosts")).unwrap();
    });
    let mut spec = world.spec(&["cat", "/victim/file"]);
    spec.files.push(ScratchFile { path: "/etc/hosts".into(), contents: b"ours\n".to_vec(), mode: 0o644 });
    assert_eq!(attempt(&world, &spec, &[]).unwrap().out, "whole\n");
    let off = attempt(&world, &spec, &[NewFiles]).unwrap().out;
    assert!(off.starts_with("ours"), "{off}");
}

/// `/proc`, `/sys` or `/dev` is a link in the image (CVE-2015-1335, CVE-2019-16884, CVE-2019-19921, CVE-2025-52881): what is
/// masked would be something else.
fn a_link_where_the_kernels_folders_go_is_refused() {
    for name in ["proc", "sys", "dev"] {
        let world = World::with(|tree| {
            fs::create_dir_all(tree.join("srv/elsewhere")).unwrap();
            symlink("/srv/elsewhere", tree.join(name)).unwrap();
        });
        let spec = world.spec(&["cat", "/proc/self/mounts"]);
        let error = attempt(&world, &spec, &[]).unwrap_err();
        assert!(matches!(error, LaunchError::Step { .. }), "{name}: {error}");
        match attempt(&world, &spec, &[RealFolders]) {
            Ok(ran) => assert!(ran.out.contains(" /srv/elsewhere "), "{name}: {ran:?}"),
            // What is made below it for a while isn't found again.
            Err(error) => {
                assert!(name == "dev" && matches!(error, LaunchError::Step { .. }), "{name}: {error}")
            }
        }
    }
}

fn link(source: &Path, target: &str, world: &World) -> Mount {
    let owner = MountOwner::HostUser { uid: world.host.uid, gid: world.host.gid };
    Mount { source: source.to_path_buf(), target: target.into(), read_only: false, owner }
}

/// A volume's place lies in a link, which is somebody's folder on the host (CVE-2024-42472, CVE-2024-1753).
fn nothing_is_made_in_a_folder_of_the_host() {
    let world = World::new();
    fs::create_dir(world.path("link")).unwrap();
    let mut spec = world.spec(&["true"]);
    spec.mounts.push(link(&world.path("link"), "/opt", &world));
    spec.mounts.push(world.volume("volume", "/opt/made"));
    assert!(matches!(attempt(&world, &spec, &[]), Err(LaunchError::Target { .. })));
    assert_eq!(fs::read_dir(world.path("link")).unwrap().count(), 0);
    attempt(&world, &spec, &[OwnMounts]).unwrap();
    assert!(world.path("link/made").is_dir());
}

/// Another box has the same volume, and swaps a folder in it for a link into a folder of the host's, over and over, while
/// boxes start that have a place below that folder (CVE-2021-30465, CVE-2023-27561, CVE-2025-31133).
fn a_target_swapped_while_launching_makes_nothing_on_the_host() {
    let world = World::new();
    fs::create_dir(world.path("link")).unwrap();
    let shared = world.volume("shared", "/data");
    if world.host.root {
        // Root inside is the owner of what is in it.
        fs::set_permissions(&shared.source, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::create_dir(shared.source.join("sub")).unwrap();
    symlink("/opt/link", shared.source.join("elsewhere")).unwrap();
    let mut swapper = world.spec(&["attack", "swap=/data"]);
    swapper.mounts.push(shared.clone());
    let (stdio, [out, _err]) = pipes();
    let swapping = world.launch(&swapper, stdio).unwrap();
    let mut said = BufReader::new(fs::File::from(out)).lines();
    assert_eq!(said.next().unwrap().unwrap(), "swapping");

    let mut victim = world.spec(&["true"]);
    victim.mounts.push(shared.clone());
    victim.mounts.push(link(&world.path("link"), "/opt/link", &world));
    victim.mounts.push(world.volume("own", "/data/sub/made"));
    // Some launches, or, where each takes long, as many as fit.
    let made = |off: &[Defence], launches: u32, seconds: u64| -> bool {
        let until = Instant::now() + Duration::from_secs(seconds);
        for _ in (0..launches).take_while(|_| Instant::now() < until) {
            // Whether it starts or is refused is the swapper's to say.
            let _ = attempt(&world, &victim, off);
            if fs::read_dir(world.path("link")).unwrap().count() > 0 {
                return true;
            }
            let _ = fs::remove_dir(shared.source.join("sub/made"));
            let _ = fs::remove_dir(shared.source.join("elsewhere/made"));
        }
        false
    };
    assert!(!made(&[], 60, 15), "a folder was made on the host");
    assert!(made(&[OwnMounts], 2000, 60), "the swap was never in the way of a launch");
    drop(swapping);
}
