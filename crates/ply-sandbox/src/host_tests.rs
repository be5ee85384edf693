//! What is read out of the kernel's files, on texts.

use super::*;

#[test]
fn releases_give_their_version() {
    for (release, expected) in [
        ("6.18.44-fc", (6, 18)),
        ("6.1.0-18-amd64", (6, 1)),
        ("5.15", (5, 15)),
        ("7", (7, 0)),
        ("", (0, 0)),
        ("6.x", (6, 0)),
    ] {
        assert_eq!(version(release), expected, "{release}");
    }
}

#[test]
fn cgroup_mounts_are_told_apart() {
    let v2 = "30 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    let pids = "40 24 0:40 / /sys/fs/cgroup/pids rw shared:7 - cgroup cgroup rw,pids\n";
    let cpu = "41 24 0:41 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
    let beside = "42 24 0:42 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
    assert_eq!(cgroup_kind(v2), CgroupKind::V2 { mount: "/sys/fs/cgroup".into() });
    assert_eq!(
        cgroup_kind(&format!("{cpu}{pids}{beside}")),
        CgroupKind::V1 {
            pids: Some("/sys/fs/cgroup/pids".into()),
            unified: Some("/sys/fs/cgroup/unified".into())
        }
    );
    assert_eq!(cgroup_kind(cpu), CgroupKind::V1 { pids: None, unified: None });
    assert_eq!(cgroup_kind("torn line\n"), CgroupKind::None);
}

/// A host that can do everything, for the tests that take one thing away.
fn whole() -> Host {
    Host {
        uid: 1000,
        gid: 1000,
        root: false,
        kernel: Kernel {
            release: "6.18.0".into(),
            version: (6, 18),
            user_namespaces: Ok(()),
            overlay: true,
            squashfs: true,
            loop_devices: true,
            squashfs_idmap: true,
            overlay_idmap: true,
            overlay_detached: true,
            tmpfs_user_xattr: true,
            openat2: true,
            seccomp: true,
        },
        sub_ids: SubIds { uids: vec![(100_000, 65_536)], gids: vec![(100_000, 65_536)] },
        newuidmap: Some("/usr/bin/newuidmap".into()),
        newgidmap: Some("/usr/bin/newgidmap".into()),
        cgroup: CgroupKind::V2 { mount: "/sys/fs/cgroup".into() },
        cgroup_place: CgroupPlace::Delegated("user.slice/web.scope".into()),
        cgroup_writable: true,
        cgroup_refusal: None,
        enforced: Enforced { pids: true, memory: true, cpu: true },
        memory_bytes: 1 << 30,
    }
}

#[test]
fn a_whole_host_has_nothing_to_say() {
    let host = whole();
    assert!(host.check().is_ok());
    assert_eq!(host.notices(), Vec::<String>::new());
    assert_eq!(serde_json::from_str::<Host>(&serde_json::to_string(&host).unwrap()).unwrap(), host);
}

#[test]
fn ids_follow_from_what_the_host_can() {
    let lease = (1_000_000, 65_536);
    let ranges = vec![(100_000, 65_536)];
    let rootless = |sub_uids, sub_gids| Ids::Rootless { uid: 1000, gid: 1000, sub_uids, sub_gids };
    assert_eq!(whole().ids(lease), rootless(ranges.clone(), ranges));
    assert_eq!(Host { newgidmap: None, ..whole() }.ids(lease), rootless(vec![], vec![]));
    let root = Host { root: true, uid: 0, gid: 0, ..whole() };
    assert_eq!(root.ids(lease), Ids::Leased { start: 1_000_000, count: 65_536 });
    assert!(!root.needs_trees());
    let mut debian12 = root.clone();
    debian12.kernel.squashfs_idmap = false;
    assert!(debian12.needs_trees());
    debian12.kernel.release = "6.1.0-18-amd64".into();
    assert_eq!(
        debian12.notices(),
        [
            "layers are used as extracted folders, not as images (Linux 6.1.0-18-amd64 can't id-map squashfs, 6.2 can)"
        ]
    );
    for (change, why) in [
        ((|kernel| kernel.squashfs = false) as fn(&mut Kernel), "the kernel has no squashfs"),
        (|kernel| kernel.loop_devices = false, "the kernel has no loop devices"),
    ] {
        let mut without = root.clone();
        change(&mut without.kernel);
        assert!(without.needs_trees() && without.check().is_ok());
        assert_eq!(
            without.notices(),
            [format!("layers are used as extracted folders, not as images ({why})")]
        );
    }
    let mut off = root;
    off.kernel.user_namespaces = Err("sysctl user.max_user_namespaces is 0".into());
    assert_eq!(off.ids(lease), Ids::Host);
    assert!(!off.needs_trees());
    assert!(off.check().is_ok());
    assert_eq!(
        off.notices(),
        ["root inside is root of this host: no user namespace (sysctl user.max_user_namespaces is 0)"]
    );
}

#[test]
fn what_is_missing_is_one_sentence_with_a_hint() {
    let say = |change: fn(&mut Host)| {
        let mut host = whole();
        change(&mut host);
        let error = host.check().unwrap_err();
        format!("{error} / {}", error.hint().unwrap())
    };
    for (said, expected) in [
        (
            say(|host| host.kernel.overlay = false),
            "this host can't run the box: its kernel has no overlay filesystem / load it as root: modprobe overlay",
        ),
        (
            say(|host| host.kernel.seccomp = false),
            "this host can't run the box: its kernel has no system call filters / it needs CONFIG_SECCOMP_FILTER",
        ),
        (
            say(|host| {
                host.kernel.version = (5, 4);
                host.kernel.release = "5.4.0".into();
            }),
            "this host can't run the box: its kernel is too old: 5.4.0 / Linux 5.12 is the oldest that has all the \
             mount calls; 6.6 or newer gives everything",
        ),
        (
            say(|host| host.kernel.user_namespaces = Err("sysctl user.max_user_namespaces is 0".into())),
            "this host can't run the box: user namespaces are off for this user (sysctl user.max_user_namespaces \
             is 0) / run ply as root, or let users make user namespaces",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn limits_that_do_not_hold_are_one_line() {
    let mut host = whole();
    host.enforced = Enforced { pids: true, ..Enforced::default() };
    host.cgroup = CgroupKind::V1 { pids: Some("/p".into()), unified: None };
    assert_eq!(host.notices(), ["not enforced on this host: mem, cpu (cgroup v2 has no controllers here)"]);
    host.cgroup = CgroupKind::V2 { mount: "/sys/fs/cgroup".into() };
    assert_eq!(host.notices(), ["not enforced on this host: mem, cpu (the cgroup lacks their controllers)"]);
    (host.cgroup_writable, host.enforced) = (false, Enforced::default());
    assert_eq!(
        host.notices(),
        ["not enforced on this host: pids, mem, cpu (no systemd of this user's delegates a cgroup)"]
    );
    host.root = true;
    assert_eq!(host.notices(), ["not enforced on this host: pids, mem, cpu (the cgroup can't be written)"]);
    host.cgroup_refusal = Some("Permission denied".into());
    assert_eq!(host.notices(), ["not enforced on this host: pids, mem, cpu (Permission denied)"]);
}
