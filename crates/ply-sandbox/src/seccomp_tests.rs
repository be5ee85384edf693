//! The filter is run here by a small interpreter, call by call, against what the table says.

use super::*;

/// Runs the filter as the kernel does.
fn run(filter: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = [0u8; 64];
    data[..4].copy_from_slice(&number.to_ne_bytes());
    data[4..8].copy_from_slice(&architecture.to_ne_bytes());
    for (index, argument) in arguments.iter().enumerate() {
        data[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut at, mut value) = (0usize, 0u32);
    loop {
        let Instruction { code, yes, no, k } = filter[at];
        at += 1;
        let mut jump = |holds: bool| at += usize::from(if holds { yes } else { no });
        match code {
            LOAD => value = u32::from_ne_bytes(data[k as usize..k as usize + 4].try_into().unwrap()),
            JUMP => at += k as usize,
            IF_EQUAL => jump(value == k),
            IF_AT_LEAST => jump(value >= k),
            IF_ANY_BIT => jump(value & k != 0),
            AND => value &= k,
            RETURN => return k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

fn number(name: &str, column: Column) -> u32 {
    let row = SYSCALLS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}"));
    u32::try_from(row.1[column as usize]).unwrap_or_else(|_| panic!("{name} isn't there"))
}

fn ask(capabilities: u64, name: &str, arguments: [u64; 6]) -> u32 {
    let (architecture, column) = ARCHITECTURES[0];
    run(filter(capabilities), architecture, number(name, column), arguments)
}

#[test]
fn every_call_stands_in_exactly_one_group() {
    let mut seen = BTreeMap::new();
    for group in GROUPS {
        assert!(group.reason.len() > 3);
        for name in group.names.split_ascii_whitespace() {
            assert!(SYSCALLS.iter().any(|(known, _)| *known == name), "{name} is no call");
            assert!(seen.insert(name, group.reason).is_none(), "{name} stands twice");
        }
    }
    for (name, _) in SYSCALLS {
        assert!(seen.contains_key(name), "{name} stands nowhere");
    }
}

#[test]
fn both_tables_say_what_the_groups_say_for_every_number() {
    for capabilities in [0, 1 << 21, u64::MAX] {
        let filter = filter(capabilities);
        assert!(filter.len() < 4096);
        for (architecture, column) in ARCHITECTURES {
            let mut known = BTreeMap::new();
            for group in GROUPS {
                for name in group.names.split_ascii_whitespace() {
                    let row = SYSCALLS.iter().find(|(known, _)| *known == name).unwrap();
                    if let Ok(number) = u32::try_from(row.1[column as usize]) {
                        known.insert(number, action(group.rule, capabilities));
                    }
                }
            }
            for number in (0..1200).chain(0xf0000..0xf0010).chain([0x4000_0000, 0x4000_0208, u32::MAX]) {
                let expected = match known.get(&number) {
                    Some(Action::Return(value)) => *value,
                    // With all arguments 0 the checked ones pass.
                    Some(_) => ALLOW,
                    None => ENOSYS,
                };
                assert_eq!(run(filter, architecture, number, [0; 6]), expected, "{number} of {column:?}");
            }
        }
    }
}

#[test]
fn another_architecture_is_killed() {
    assert_eq!(run(filter(0), 0x8000_0016, 1, [0; 6]), KILL_PROCESS);
}

#[test]
fn namespaces_are_refused_whatever_else_is_in_the_flags() {
    let kinds = [0x0200_0000u64, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    // A new mount namespace, and a sibling.
    for flag in kinds.into_iter().chain([0x0002_0000, 0x8000]) {
        assert_eq!(ask(0, "clone", [flag | 17, 0, 0, 0, 0, 0]), EPERM, "{flag:#x}");
        // The upper half of the register means nothing to the kernel.
        assert_eq!(ask(0, "clone", [flag | 1 << 40, 0, 0, 0, 0, 0]), EPERM, "{flag:#x}");
    }
    // What a thread is made with.
    assert_eq!(ask(0, "clone", [0x003d_0f00, 0, 0, 0, 0, 0]), ALLOW);
    let admin = 1 << 21;
    assert_eq!(ask(admin, "clone", [0x0002_0000, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(ask(admin, "clone", [0x1002_0000, 0, 0, 0, 0, 0]), EPERM);
    assert_eq!(ask(admin, "clone", [0x8011, 0, 0, 0, 0, 0]), EPERM);
    assert_eq!(ask(admin, "unshare", [0x1000_0000, 0, 0, 0, 0, 0]), EPERM);
    assert_eq!(ask(0, "unshare", [0; 6]), EPERM);
}

#[test]
fn arguments_that_matter_are_looked_at() {
    for (name, arguments, expected) in [
        ("ioctl", [0, 0x5412, 0, 0, 0, 0], EPERM),
        ("ioctl", [0, 0x1_0000_5412, 0, 0, 0, 0], EPERM),
        ("ioctl", [0, 0x541c, 0, 0, 0, 0], EPERM),
        ("ioctl", [0, 0x5401, 0, 0, 0, 0], ALLOW),
        ("socket", [40, 0, 0, 0, 0, 0], EPERM),
        ("socket", [38, 0, 0, 0, 0, 0], EPERM),
        ("socket", [2, 0, 0, 0, 0, 0], ALLOW),
        ("mknodat", [0, 0, 0o020_666, 0, 0, 0], EPERM),
        ("mknodat", [0, 0, 0o060_666, 0, 0, 0], EPERM),
        ("mknodat", [0, 0, 0o010_666, 0, 0, 0], ALLOW),
        ("personality", [0x0004_0000, 0, 0, 0, 0, 0], EPERM),
        ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW),
        ("io_uring_setup", [0; 6], EPERM),
        ("clone3", [0; 6], ENOSYS),
        ("fsopen", [0; 6], ENOSYS),
        ("mount", [0; 6], EPERM),
        ("bpf", [0; 6], EPERM),
    ] {
        assert_eq!(ask(0, name, arguments), expected, "{name} {arguments:x?}");
    }
}

#[test]
fn a_mount_is_changed_only_by_taking_away() {
    let admin = 1 << 21;
    for (flags, expected) in [
        (0, ALLOW),
        (0x1000, ALLOW),        // bind
        (0x20, EPERM),          // remount
        (0x1020, EPERM),        // remount, bind
        (0x1021, EPERM),        // and read-only
        (0x1027, ALLOW),        // and nosuid, nodev
        (0x1_0000_1020, EPERM), // the upper half means nothing
    ] {
        assert_eq!(ask(admin, "mount", [0, 0, 0, flags, 0, 0]), expected, "{flags:#x}");
        assert_eq!(ask(0, "mount", [0, 0, 0, flags, 0, 0]), EPERM, "{flags:#x}");
    }
    for name in ["mount_setattr", "open_tree_attr"] {
        assert_eq!(ask(u64::MAX, name, [0; 6]), ENOSYS, "{name}");
    }
}

#[test]
fn calls_whose_arguments_no_filter_sees_are_missing_whatever_is_kept() {
    for (name, column) in [("socketcall", 1), ("clone3", 0), ("clone3", 1)] {
        for capabilities in [0, u64::MAX] {
            let (architecture, column) = ARCHITECTURES[column];
            let answer = run(filter(capabilities), architecture, number(name, column), [0; 6]);
            assert_eq!(answer & 0xffff, libc::ENOSYS as u32, "{name}");
        }
    }
}
