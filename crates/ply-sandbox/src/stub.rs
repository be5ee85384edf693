//! The program between us and the app: some twenty instructions in a sealed memory file.
//!
//! If the process that is still a copy of `ply` executed the app itself, an image could name `/proc/self/exe` as
//! its entrypoint, its script's interpreter or its loader, and so run, and then write, the host's own binary
//! (CVE-2019-5736). So it executes this first: from then on `/proc/self/exe` is the memory file, which can't
//! be written. The stub makes the app out of its arguments; if that fails it sends the record that says so.

use crate::error::Step;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::io;
use std::os::fd::OwnedFd;

/// The descriptor on which the stub reports.
pub(crate) const REPORT_FD: i32 = 3;
/// The descriptor from which it is executed.
pub(crate) const STUB_FD: i32 = 4;

// Entered with the stack that execve(2) lays out: argc, then the path, the app's arguments, 0, its environment.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .rodata.ply_stub, \"a\", @progbits",
    ".balign 16",
    ".globl ply_sandbox_stub_start",
    ".globl ply_sandbox_stub_end",
    "ply_sandbox_stub_start:",
    "mov eax, 72", // fcntl(3, F_SETFD, FD_CLOEXEC)
    "mov edi, 3",
    "mov esi, 2",
    "mov edx, 1",
    "syscall",
    "mov rbx, [rsp]",
    "mov rdi, [rsp + 8]",
    "lea rsi, [rsp + 16]",
    "lea rdx, [rsp + rbx * 8 + 16]",
    "mov eax, 59", // execve(path, arguments, environment)
    "syscall",
    "neg eax",
    "sub rsp, 16",
    "mov dword ptr [rsp], {head}",
    "mov dword ptr [rsp + 4], 0",
    "mov dword ptr [rsp + 8], eax",
    "mov eax, 1", // write(3, record, 12)
    "mov edi, 3",
    "mov rsi, rsp",
    "mov edx, 12",
    "syscall",
    "mov eax, 231", // exit_group(125)
    "mov edi, 125",
    "syscall",
    "ply_sandbox_stub_end:",
    ".popsection",
    head = const HEAD,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".pushsection .rodata.ply_stub, \"a\", @progbits",
    ".balign 16",
    ".globl ply_sandbox_stub_start",
    ".globl ply_sandbox_stub_end",
    "ply_sandbox_stub_start:",
    "mov x8, #25", // fcntl(3, F_SETFD, FD_CLOEXEC)
    "mov x0, #3",
    "mov x1, #2",
    "mov x2, #1",
    "svc #0",
    "ldr x9, [sp]",
    "ldr x0, [sp, #8]",
    "add x1, sp, #16",
    "add x2, x1, x9, lsl #3",
    "mov x8, #221", // execve(path, arguments, environment)
    "svc #0",
    "neg w9, w0",
    "sub sp, sp, #16",
    "mov w10, #{head}",
    "str w10, [sp]",
    "str wzr, [sp, #4]",
    "str w9, [sp, #8]",
    "mov x8, #64", // write(3, record, 12)
    "mov x0, #3",
    "mov x1, sp",
    "mov x2, #12",
    "svc #0",
    "mov x8, #94", // exit_group(125)
    "mov x0, #125",
    "svc #0",
    "ply_sandbox_stub_end:",
    ".popsection",
    head = const HEAD,
);

/// The first four bytes of a failure's record (`wire`): its kind and its step.
const HEAD: u32 = u32::from_ne_bytes([3, Step::Exec as u8, 0, 0]);

unsafe extern "C" {
    static ply_sandbox_stub_start: u8;
    static ply_sandbox_stub_end: u8;
}

fn code() -> &'static [u8] {
    let (start, end) = (&raw const ply_sandbox_stub_start, &raw const ply_sandbox_stub_end);
    // SAFETY: both labels stand in one section above, the second behind the first.
    unsafe { std::slice::from_raw_parts(start, end.offset_from_unsigned(start)) }
}

/// The whole program: an ELF header, one segment to load, one that says that the stack isn't code.
fn image() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 2 * 56;
    let code = code();
    let size = HEADERS + code.len() as u64;
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let mut image = Vec::with_capacity(size as usize);
    image.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for half in [2u16, machine] {
        image.extend_from_slice(&half.to_le_bytes());
    }
    image.extend_from_slice(&1u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        image.extend_from_slice(&word.to_le_bytes());
    }
    image.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 2, 0, 0, 0] {
        image.extend_from_slice(&half.to_le_bytes());
    }
    let mut segment = |kind: u32, flags: u32, words: [u64; 6]| {
        image.extend_from_slice(&kind.to_le_bytes());
        image.extend_from_slice(&flags.to_le_bytes());
        words.iter().for_each(|word| image.extend_from_slice(&word.to_le_bytes()));
    };
    segment(1, 5, [0, BASE, BASE, size, size, 0x1000]);
    segment(0x6474_e551, 6, [0, 0, 0, 0, 0, 16]);
    image.extend_from_slice(code);
    image
}

/// The sealed memory file. Nobody may read it, so a process that runs it isn't dumpable either
/// (CVE-2016-9962 was a process looked into between joining a box and its exec).
pub(crate) fn file() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match rustix::fs::memfd_create(c"ply-start", flags | MemfdFlags::EXEC) {
        // Before 6.3 there was no such flag, and every memory file could be executed.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(c"ply-start", flags)?,
        other => other?,
    };
    let image = image();
    if rustix::io::write(&file, &image)? != image.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o111))?;
    rustix::fs::fcntl_add_seals(
        &file,
        SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL,
    )?;
    Ok(file)
}
