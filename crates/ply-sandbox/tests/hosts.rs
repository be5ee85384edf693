//! Other hosts: older kernels, no user namespaces, no id range, played by taking abilities out of the facts; and
//! what processes share on one host.

mod common;

use common::{World, pipes, unique};
use ply_sandbox::{Exit, Ids, LaunchError, Layer, Mount, MountOwner, in_user_namespace, remove_all};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

both! {
    the_topmost_layer_wins
    a_kernel_that_takes_paths_only
    a_privileged_box_keeps_everything
    folders_of_mapped_ids_are_made_and_removed
    a_link_shows_the_owners_files_as_the_users
}

/// A second layer on top: one file changed, one added, one folder replaced by a file.
fn two_layers(world: &mut World) {
    let tree = world.path("top");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::create_dir_all(tree.join("opt")).unwrap();
    fs::write(tree.join("etc/motd"), "top\n").unwrap();
    fs::write(tree.join("opt/new"), "new\n").unwrap();
    let image = world.path("top.img");
    if world.host.root {
        let packed = std::process::Command::new("mksquashfs")
            .args([&tree, &image])
            .args(["-noappend", "-noI", "-noD", "-noF", "-quiet", "-no-progress", "-all-root"])
            .output()
            .unwrap();
        assert!(packed.status.success(), "{packed:?}");
    }
    let layer = Layer { digest: format!("sha256:top-{}", unique()), image, tree: Some(tree) };
    world.layers.insert(0, layer);
}

const LAYERS: &str = "cat /etc/motd /opt/new; [ -x /bin/busybox ] && rm -r /opt && mkdir /opt && ls -A /opt; echo x > /etc/motd; cat /etc/motd";

fn the_topmost_layer_wins() {
    let mut world = World::new();
    two_layers(&mut world);
    assert_eq!(world.sh(LAYERS), "top\nnew\nx\n");
}

fn a_kernel_that_takes_paths_only() {
    let mut world = World::new();
    two_layers(&mut world);
    world.host.kernel.overlay_detached = false;
    assert_eq!(world.sh(LAYERS), "top\nnew\nx\n");
    let mounts = world.sh("cat /proc/mounts");
    assert!(mounts.lines().any(|line| line.contains(" / overlay rw,nosuid,nodev")), "{mounts}");
    assert_eq!(mounts.lines().filter(|line| line.contains(" /sys ")).count(), 1, "{mounts}");
}

fn a_privileged_box_keeps_everything() {
    let world = World::new();
    let mut spec = world.spec(&["sh", "-c", "mount -t tmpfs none /srv && unshare -m true && grep -E 'CapEff|Seccomp:|NoNewPrivs' /proc/self/status"]);
    spec.privileged = true;
    let ran = world.run(&spec);
    let all = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap().trim().parse::<u32>().unwrap();
    assert_eq!(
        ran.out,
        format!("CapEff:\t{:016x}\nNoNewPrivs:\t0\nSeccomp:\t0\n", (1u64 << (all + 1)) - 1),
        "{ran:?}"
    );
}

fn folders_of_mapped_ids_are_made_and_removed() {
    let world = World::new();
    let folder = world.path("mapped");
    let made: Result<u32, String> = in_user_namespace(&world.ids(), || {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "x").unwrap();
        std::os::unix::fs::chown(folder.join("file"), Some(1000), Some(1000)).unwrap();
        std::os::unix::fs::chown(&folder, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        Ok(rustix::process::geteuid().as_raw())
    })
    .unwrap();
    assert_eq!(made, Ok(0));
    let outside = match world.ids() {
        Ids::Rootless { sub_uids, .. } => sub_uids[0].0 + 999,
        _ => 1000,
    };
    assert_eq!(fs::metadata(&folder).unwrap().uid(), outside);
    remove_all(&world.ids(), &folder).unwrap();
    assert!(!folder.exists());
    remove_all(&world.ids(), &folder).unwrap();
    if !world.host.root {
        // What goes wrong inside comes back.
        let wrong = in_user_namespace(&world.ids(), || -> u32 { std::process::exit(3) });
        assert!(wrong.unwrap_err().to_string().contains("ended with 3"));
    }
}

fn a_link_shows_the_owners_files_as_the_users() {
    let world = World::new();
    let source = world.path("home");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("mine"), "x").unwrap();
    let (uid, gid) = if world.host.root { (4321, 8765) } else { (world.host.uid, world.host.gid) };
    if world.host.root {
        for path in [&source, &source.join("mine")] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
        }
    }
    let mut spec = world.spec(&["sh", "-c", "stat -c '%u %g' /opt/home/mine; echo y > /opt/home/made"]);
    // Rootless, the owner's files are root's inside, who is the caller.
    let (user, group) = if world.host.root { (1000, 1001) } else { (0, 0) };
    spec.process.uid = user;
    spec.process.gid = group;
    let owner = MountOwner::HostUser { uid, gid };
    spec.mounts.push(Mount { source: source.clone(), target: "/opt/home".into(), read_only: false, owner });
    let ran = world.run(&spec);
    assert_eq!((ran.exit, ran.out), (Exit::Code(0), format!("{user} {group}\n")), "{}", ran.err);
    let made = fs::metadata(source.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (uid, gid));
    // What belongs to anybody else can't be made to look like it.
    if world.host.root {
        fs::write(source.join("others"), "x").unwrap();
        spec.process.argv = ["stat", "-c", "%u", "/opt/home/others"].map(str::to_owned).to_vec();
        assert_eq!(world.run(&spec).out, "65534\n");
    }
}

mod root_hosts {
    use super::*;

    #[test]
    fn root_where_squashfs_cannot_be_mapped_the_trees_are() {
        let mut world = World::new();
        world.host.kernel.squashfs_idmap = false;
        assert!(world.host.needs_trees());
        assert_eq!(world.sh("stat -c %u /bin /etc/motd; echo x > /etc/motd; cat /etc/motd"), "0\n0\nx\n");
        let tree = fs::read_to_string(world.path("tree/etc/motd")).unwrap();
        assert_eq!(tree, "hello\n");
        // Both at once, as Debian 12's kernel is.
        world.host.kernel.overlay_detached = false;
        assert_eq!(world.sh("stat -c %u /bin /etc/motd"), "0\n0\n");
        let mut spec = world.spec(&["true"]);
        spec.layers[0].tree = None;
        let error = world.try_run(&spec).unwrap_err();
        assert!(matches!(error, LaunchError::NotExtracted(_)), "{error}");
    }

    #[test]
    fn root_without_user_namespaces_keeps_nothing_either() {
        let mut world = World::new();
        world.host.kernel.user_namespaces = Err("switched off".into());
        assert_eq!(world.ids(), Ids::Host);
        let said = world.sh(
            "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; readlink /proc/self/ns/user; stat -c %u /bin",
        );
        assert_eq!(said.matches("0000000000000000").count(), 5, "{said}");
        assert!(said.contains("Seccomp:\t2") && said.contains("NoNewPrivs:\t1"), "{said}");
        assert!(said.contains(fs::read_link("/proc/self/ns/user").unwrap().to_str().unwrap()));
        let said = world
            .sh("attack mount-tmpfs init-program init-memory mknod-device core-pattern sysrq ptrace-init");
        assert!(!said.contains("through"), "{said}");
        let (stdio, _out) = pipes();
        let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
        let (stdio, [out, _err]) = pipes();
        let mut exec = ply_sandbox::exec(instance.target(), &["id".to_owned()], stdio).unwrap();
        assert_eq!(exec.wait().unwrap(), Exit::Code(0));
        assert!(common::read_all(out).starts_with("uid=0"));
    }

    #[test]
    fn root_limits_change_while_it_runs() {
        let world = World::new();
        let (stdio, _out) = pipes();
        let spec = world.spec(&["sleep", "60"]);
        let instance = world.launch(&spec, stdio).unwrap();
        let usage = instance.target().usage();
        assert_eq!(usage.pids_limit, Some(u64::from(spec.limits.pids)), "{usage:?}");
        assert!(usage.pids.is_some_and(|pids| pids >= 2), "init and the app: {usage:?}");
        let pids = 3;
        instance.set_limits(&ply_sandbox::Limits { pids, ..spec.limits }).unwrap();
        assert_eq!(instance.target().usage().pids_limit, Some(u64::from(pids)));
        // Two are there: one more fits, and a second does not.
        let fork = "true & exec true".split(' ').map(str::to_owned);
        let argv: Vec<String> = ["sh".to_owned(), "-c".to_owned(), fork.collect::<Vec<_>>().join(" ")].into();
        let (stdio, [_out, err]) = pipes();
        let mut exec = ply_sandbox::exec(instance.target(), &argv, stdio).unwrap();
        let exit = exec.wait().unwrap();
        assert!(common::read_all(err).contains("fork"), "{exit:?}");
        let target = instance.target().clone();
        drop(instance);
        let gone = target.usage();
        assert_eq!((gone.pids, gone.cpu_usec, gone.memory_bytes), (None, None, None));
    }

    #[test]
    fn root_many_launches_at_once_share_one_mount() {
        let world = World::new();
        // What a reboot leaves: an ordinary file where the pin was.
        fs::write(world.path("run/layers"), "").unwrap();
        let before = loops(&world);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(world.sh("cat /etc/motd"), "hello\n"));
            }
        });
        assert_eq!((before, loops(&world)), (0, 1));
        // Other processes of the same world, at the same moment; the layers' mounts taken away meanwhile.
        let children: Vec<_> = (0..4)
            .map(|_| {
                std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["root_hosts::root_child_that_launches", "--exact", "--ignored", "--nocapture"])
                    .env("PLY_TEST_WORLD", world.path(""))
                    .spawn()
                    .unwrap()
            })
            .collect();
        for _ in 0..30 {
            ply_sandbox::gc(&world.path("run"), &Default::default()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let digest = world.layers[0].digest.clone();
        world.sh("true");
        let kept = ply_sandbox::gc(&world.path("run"), &[digest.clone()].into()).unwrap();
        assert_eq!(kept.unmounted, Vec::<String>::new());
        let gone = ply_sandbox::gc(&world.path("run"), &Default::default()).unwrap();
        assert_eq!(gone.unmounted, [digest]);
        assert!(!world.path("run/layers").exists());
        let table = fs::read_to_string("/proc/mounts").unwrap();
        assert!(!table.contains(world.path("run").to_str().unwrap()));
    }

    /// Namespaces are numbered, a pin needs a number above its own place's, and processors number apart.
    #[test]
    fn root_in_a_mount_namespace_of_its_own() {
        for _ in 0..4 {
            let world = World::new();
            let ran = std::process::Command::new("unshare")
                .args(["--mount", "--"])
                .arg(std::env::current_exe().unwrap())
                .args(["root_hosts::root_child_that_launches", "--exact", "--ignored", "--nocapture"])
                .env("PLY_TEST_WORLD", world.path(""))
                .output()
                .unwrap();
            assert!(ran.status.success(), "{ran:?}");
        }
    }

    /// A namespace can't be bound below a shared mount, which is what systemd makes of all mounts.
    #[test]
    fn root_where_mounts_are_shared() {
        let world = World::new();
        let script = "mount --bind \"$1\" \"$1\" && mount --make-shared \"$1\" && shift && exec \"$@\"";
        let ran = std::process::Command::new("unshare")
            .args(["--mount", "--", "sh", "-c", script, "sh"])
            .arg(world.path("run"))
            .arg(std::env::current_exe().unwrap())
            .args(["root_hosts::root_child_that_pins", "--exact", "--ignored", "--nocapture"])
            .env("PLY_TEST_WORLD", world.path(""))
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
    }

    #[test]
    #[ignore = "started by another test"]
    fn root_child_that_pins() {
        let world = World::open(std::env::var_os("PLY_TEST_WORLD").unwrap().into());
        for _ in 0..2 {
            assert_eq!(world.sh("cat /etc/motd"), "hello\n");
        }
        assert_eq!(loops(&world), 1);
        let gone = ply_sandbox::gc(&world.path("run"), &Default::default()).unwrap();
        assert_eq!(gone.unmounted, [world.layers[0].digest.clone()]);
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!table.contains("/run/layers"), "{table}");
    }

    /// The loop devices over this world's image.
    fn loops(world: &World) -> usize {
        let image = world.path("image.img");
        let entries = fs::read_dir("/sys/block").unwrap().flatten();
        entries
            .filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok())
            .filter(|file| std::path::Path::new(file.trim_end()) == image)
            .count()
    }

    #[test]
    #[ignore = "started by another test"]
    fn root_child_that_launches() {
        let world = World::open(std::env::var_os("PLY_TEST_WORLD").unwrap().into());
        for _ in 0..20 {
            assert_eq!(world.sh("cat /etc/motd"), "hello\n");
        }
    }
}

mod rootless_hosts {
    use super::*;
    use crate::common::as_user;

    #[test]
    fn rootless_scratch_in_a_folder_goes_with_the_box() {
        if !as_user("rootless_hosts::rootless_scratch_in_a_folder_goes_with_the_box") {
            return;
        }
        let mut world = World::new();
        world.host.kernel.tmpfs_user_xattr = false;
        let script = "rm -r /bin/../srv && mkdir /srv && ls -A /srv; echo y > /new; mkdir /deep; chmod 0 /deep; cat /new";
        for by_path in [false, true] {
            world.host.kernel.overlay_detached &= !by_path;
            assert_eq!(world.sh(script), "y\n");
            assert_eq!(fs::read_dir(world.path("data/scratch")).unwrap().count(), 0);
        }
        // A dead maker's is swept; a living one's stays.
        let dead = world.path("data/scratch/x.4000000-1");
        fs::create_dir_all(dead.join("work/work")).unwrap();
        assert_eq!(ply_sandbox::sweep_scratch(&world.ids(), &world.path("data")).unwrap(), 1);
        assert!(!dead.exists());
    }

    #[test]
    fn rootless_without_a_range_there_is_root_alone() {
        if !as_user("rootless_hosts::rootless_without_a_range_there_is_root_alone") {
            return;
        }
        let mut world = World::new();
        world.host.sub_ids = Default::default();
        assert_eq!(
            world.sh("id -u; wc -l < /proc/self/uid_map; grep Groups /proc/self/status; attack setgroups"),
            "0\n1\nGroups:\t \nsetgroups 1\n"
        );
        let mut spec = world.spec(&["true"]);
        spec.process.uid = 1000;
        assert_eq!(
            world.try_run(&spec).unwrap_err().to_string(),
            "the user 1000 has no id outside: this user has no delegated range, so only root exists inside"
        );
        spec.process.uid = 0;
        spec.process.groups = vec![7];
        assert!(matches!(world.try_run(&spec), Err(LaunchError::Unmapped { what: "group", id: 7, .. })));
        let (stdio, _out) = pipes();
        let instance = world.launch(&world.spec(&["sleep", "60"]), stdio).unwrap();
        let (stdio, [out, _err]) = pipes();
        let mut exec =
            ply_sandbox::exec(instance.target(), &["id".to_owned(), "-u".to_owned()], stdio).unwrap();
        assert_eq!(exec.wait().unwrap(), Exit::Code(0));
        assert_eq!(common::read_all(out), "0\n");
        // A range that the system didn't delegate is refused by its helper, in its words.
        let mut spec = world.spec(&["true"]);
        spec.ids = Ids::Rootless {
            uid: world.host.uid,
            gid: world.host.gid,
            sub_uids: vec![(1, 1000)],
            sub_gids: vec![(1, 1000)],
        };
        let error = world.try_run(&spec).unwrap_err().to_string();
        assert!(error.starts_with("newuidmap or newgidmap refused the id maps: "), "{error}");
    }
}
