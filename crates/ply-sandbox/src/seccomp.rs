//! From the table to a filter (seccomp(2)): a binary search over the numbers of the native and of the 32-bit
//! architecture. Written here and not by a library, because three answers are needed: yes, EPERM, ENOSYS.

use crate::seccomp_table::{GROUPS, Rule};
use crate::syscalls::{Column, SYSCALLS};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// One instruction, as the kernel wants it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const EPERM: u32 = ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The low half of an argument: the kernel's own handlers look at no more for those we check (CVE-2019-10063
/// was a check of all 64 bits).
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: [(u32, Column); 2] = [(0xc000_003e, Column::X86_64), (0x4000_0003, Column::I386)];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: [(u32, Column); 2] = [(0xc000_00b7, Column::Aarch64), (0x4000_0028, Column::Arm)];

const NEW_USER: u32 = libc::CLONE_NEWUSER as u32;
/// Every CLONE_NEW* flag; CLONE_NEWTIME has the place of a signal number and works with clone3 and unshare only.
const NEW_ANY: u32 = 0x7e02_0000;
/// A sibling instead of a child: one of a process that was started from outside would have its parent outside.
const SIBLING: u32 = libc::CLONE_PARENT as u32;

/// The filter for a process that keeps `capabilities`. Made once for each set.
pub(crate) fn filter(capabilities: u64) -> &'static [Instruction] {
    static MADE: Mutex<BTreeMap<u64, &'static [Instruction]>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    made.entry(capabilities).or_insert_with(|| Box::leak(compile(capabilities).into_boxed_slice()))
}

/// What is done with a call once the capabilities are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Return(u32),
    Clone(u32),
    Personality,
    Socket,
    Ioctl,
    Mount,
    Mknod(u8),
}

fn action(rule: Rule, capabilities: u64) -> Action {
    let kept = |list: &[u8]| list.iter().any(|cap| capabilities >> cap & 1 == 1);
    match rule {
        Rule::Allow => Action::Return(ALLOW),
        Rule::Eperm => Action::Return(EPERM),
        Rule::Missing => Action::Return(ENOSYS),
        Rule::IfCapable(list) => Action::Return(if kept(list) { ALLOW } else { EPERM }),
        Rule::MissingUnlessCapable(list) => Action::Return(if kept(list) { ALLOW } else { ENOSYS }),
        Rule::CloneFlags => Action::Clone(SIBLING | if kept(&[21]) { NEW_USER } else { NEW_ANY }),
        Rule::Personality => Action::Personality,
        Rule::Socket => Action::Socket,
        Rule::Ioctl => Action::Ioctl,
        Rule::Mount => {
            if kept(&[21]) {
                Action::Mount
            } else {
                Action::Return(EPERM)
            }
        }
        Rule::Mknod(argument) => Action::Mknod(argument),
    }
}

fn compile(capabilities: u64) -> Vec<Instruction> {
    // By the place of the name in the table, which is sorted.
    let mut actions = vec![None; SYSCALLS.len()];
    for group in GROUPS {
        let action = action(group.rule, capabilities);
        for name in group.names.split_ascii_whitespace() {
            // unshare with CAP_SYS_ADMIN: every kind but a user namespace, as clone.
            let action = match (name, action) {
                ("unshare", Action::Return(ALLOW)) => Action::Clone(NEW_USER),
                (_, action) => action,
            };
            if let Ok(at) = SYSCALLS.binary_search_by_key(&name, |(known, _)| known) {
                actions[at] = Some(action);
            }
        }
    }
    let mut program = Program(Vec::with_capacity(600));
    program.push(LOAD, ARCHITECTURE);
    for (architecture, column) in ARCHITECTURES {
        let mut numbers: Vec<(u32, Action)> = SYSCALLS
            .iter()
            .zip(&actions)
            .filter_map(|((_, row), action)| Some((u32::try_from(row[column as usize]).ok()?, (*action)?)))
            .collect();
        numbers.sort_unstable_by_key(|(number, _)| *number);
        let other = program.branch(IF_EQUAL, architecture);
        program.push(LOAD, NUMBER);
        program.search(&ranges(&numbers));
        program.here(other);
    }
    program.push(RETURN, KILL_PROCESS);
    program.0
}

/// From every number on, what is done: sorted, gaps filled with ENOSYS, neighbours that are alike joined.
fn ranges(numbers: &[(u32, Action)]) -> Vec<(u32, Action)> {
    let mut ranges = vec![(0, Action::Return(ENOSYS))];
    let mut next = 0;
    let mut add = |from: u32, action: Action| match ranges.last_mut() {
        Some(last) if last.0 == from => last.1 = action,
        Some(last) if last.1 == action => {}
        _ => ranges.push((from, action)),
    };
    for &(number, action) in numbers {
        if number > next {
            add(next, Action::Return(ENOSYS));
        }
        add(number, action);
        next = number + 1;
    }
    add(next, Action::Return(ENOSYS));
    ranges
}

struct Program(Vec<Instruction>);

impl Program {
    fn push(&mut self, code: u16, k: u32) {
        self.0.push(Instruction { code, yes: 0, no: 0, k });
    }

    /// Goes on behind it if the test holds; else to the place that [`Self::here`] fixes. The far jump stands
    /// alone, because a test's own are at most 255 wide.
    fn branch(&mut self, test: u16, k: u32) -> usize {
        self.0.push(Instruction { code: test, yes: 1, no: 0, k });
        self.push(JUMP, 0);
        self.0.len() - 1
    }

    fn here(&mut self, jump: usize) {
        self.0[jump].k = (self.0.len() - jump - 1) as u32;
    }

    fn search(&mut self, ranges: &[(u32, Action)]) {
        if let [(_, action)] = ranges {
            return self.act(*action);
        }
        let (low, high) = ranges.split_at(ranges.len() / 2);
        let below = self.branch(IF_AT_LEAST, high[0].0);
        self.search(high);
        self.here(below);
        self.search(low);
    }

    /// If the test holds for what is loaded, `then`; else it goes on behind.
    fn test(&mut self, test: u16, k: u32, then: u32) {
        self.0.push(Instruction { code: test, yes: 0, no: 1, k });
        self.push(RETURN, then);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Return(value) => return self.push(RETURN, value),
            Action::Clone(flags) => {
                self.push(LOAD, argument(0));
                self.test(IF_ANY_BIT, flags, EPERM);
            }
            Action::Personality => {
                self.push(LOAD, argument(0));
                for fine in [0, 0x8, 0x2_0000, 0x2_0008, u32::MAX] {
                    self.test(IF_EQUAL, fine, ALLOW);
                }
                return self.push(RETURN, EPERM);
            }
            Action::Socket => {
                self.push(LOAD, argument(0));
                for family in [libc::AF_ALG, libc::AF_VSOCK] {
                    self.test(IF_EQUAL, family as u32, EPERM);
                }
            }
            Action::Ioctl => {
                self.push(LOAD, argument(1));
                for request in [libc::TIOCSTI, libc::TIOCLINUX] {
                    self.test(IF_EQUAL, request as u32, EPERM);
                }
            }
            Action::Mount => {
                // The numbers of mount(2): MS_RDONLY, MS_NOSUID and MS_NODEV; MS_REMOUNT.
                const TAKEN: u32 = 0x1 | 0x2 | 0x4;
                const CHANGE: u32 = 0x20;
                self.push(LOAD, argument(3));
                self.push(AND, CHANGE | TAKEN);
                self.test(IF_EQUAL, CHANGE | TAKEN, ALLOW);
                self.test(IF_ANY_BIT, CHANGE, EPERM);
            }
            Action::Mknod(mode) => {
                self.push(LOAD, argument(u32::from(mode)));
                self.push(AND, libc::S_IFMT);
                for kind in [libc::S_IFCHR, libc::S_IFBLK] {
                    self.test(IF_EQUAL, kind, EPERM);
                }
            }
        }
        self.push(RETURN, ALLOW);
    }
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
