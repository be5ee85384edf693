//! Native addons (`.node` files) for another platform: an app whose dependencies were installed on a Mac would
//! start on Linux and die at its first `require`. Found at the build instead.
//!
//! Packages that ship prebuilt sets for several platforms are fine as long as the target is among them. A set is
//! either within one package (`prebuilds/linux-x64/…`) or spread over sibling packages, one a platform
//! (`@img/sharp-darwin-arm64`, `@img/sharp-linux-x64`), which are told by the platform's words in their names.

use ply_manifest::Arch;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a native file was built for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The operating system.
    pub system: System,
    /// The processors, by the names that people know; several only in a universal macOS file.
    pub machines: Vec<String>,
}

/// An operating system that addons are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux, with the C library where the file tells.
    Linux(Option<Libc>),
    /// Android: Linux's format, another C library.
    Android,
    /// FreeBSD.
    FreeBsd,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

/// The C library of a Linux system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// glibc.
    Gnu,
    /// musl.
    Musl,
}

/// What an image is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddonTarget {
    /// The processor.
    pub arch: Arch,
    /// The base's C library, where its ABI tells.
    pub libc: Option<Libc>,
}

impl AddonTarget {
    /// The target of an image over a base with this ABI, as in `linux-x64-gnu`.
    pub fn new(arch: Arch, base_abi: Option<&str>) -> Self {
        let libc = base_abi.and_then(|abi| match abi.rsplit('-').next() {
            Some("gnu") => Some(Libc::Gnu),
            Some("musl") => Some(Libc::Musl),
            _ => None,
        });
        Self { arch, libc }
    }

    fn takes(self, platform: &Platform) -> bool {
        let System::Linux(libc) = platform.system else { return false };
        let same_libc = !matches!((libc, self.libc), (Some(a), Some(b)) if a != b);
        same_libc && platform.machines.iter().any(|m| m == self.arch.as_str())
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = match self.system {
            System::Linux(Some(Libc::Musl)) => "Linux with musl",
            System::Linux(_) => "Linux",
            System::Android => "Android",
            System::FreeBsd => "FreeBSD",
            System::MacOs => "macOS",
            System::Windows => "Windows",
        };
        write!(f, "{system} {}", self.machines.join(" and "))
    }
}

/// Whether a file is looked at.
pub fn is_addon(path: &[u8]) -> bool {
    path.ends_with(b".node")
}

/// What the bytes of a native file were built for; none where they are no native file (a placeholder, a text).
/// Never panics, whatever the bytes.
pub fn platform(data: &[u8]) -> Option<Platform> {
    match data.get(..4)? {
        b"\x7fELF" => elf_platform(data),
        [0xcf, 0xfa, 0xed, 0xfe] => {
            Some(Platform { system: System::MacOs, machines: vec![mach_machine(u32_le(data, 4)?)] })
        }
        [0xca, 0xfe, 0xba, 0xbe] => {
            let count = u32_be(data, 4)?.min(8);
            let machines = (0..count as usize).map_while(|n| u32_be(data, 8 + n * 20)).map(mach_machine);
            Some(Platform { system: System::MacOs, machines: machines.collect() })
        }
        [b'M', b'Z', ..] => {
            let header = u32_le(data, 0x3c)? as usize;
            let machine = data.get(header.checked_add(4)?..)?.get(..2)?;
            let name = match u16::from_le_bytes([machine[0], machine[1]]) {
                0x8664 => "x64".to_owned(),
                0xaa64 => "arm64".to_owned(),
                0x014c => "x86".to_owned(),
                other => format!("machine {other:#x}"),
            };
            Some(Platform { system: System::Windows, machines: vec![name] })
        }
        _ => None,
    }
}

fn u32_le(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..at.checked_add(4)?).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u32_be(data: &[u8], at: usize) -> Option<u32> {
    u32_le(data, at).map(u32::swap_bytes)
}

/// The machine of a Mach-O file by its `cputype` (mach/machine.h).
fn mach_machine(cpu: u32) -> String {
    match cpu {
        0x0100_0007 => "x64".to_owned(),
        0x0100_000c => "arm64".to_owned(),
        other => format!("machine {other:#x}"),
    }
}

fn elf_platform(data: &[u8]) -> Option<Platform> {
    let facts = crate::elf::facts(data)?;
    let needs = |what: &dyn Fn(&[u8]) -> bool| facts.needed.iter().any(|n| what(n));
    let system = if facts.freebsd {
        System::FreeBsd
    } else if needs(&|n| n == b"libc.so.6") {
        System::Linux(Some(Libc::Gnu))
    } else if needs(&|n| n.starts_with(b"libc.musl-")) {
        System::Linux(Some(Libc::Musl))
    } else if needs(&|n| n == b"libc.so")
        && needs(&|n| n == b"libdl.so" || n == b"liblog.so" || n == b"libm.so")
    {
        System::Android
    } else {
        System::Linux(None)
    };
    Some(Platform { system, machines: vec![facts.machine] })
}

/// One native file of what ships.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addon {
    /// Its path beneath the directory.
    pub path: Vec<u8>,
    /// What it was built for.
    pub platform: Platform,
}

/// The files that refuse the build: native for another platform, in a package that has none for the target.
/// `packages` are the folders that hold a `package.json`. Each as `path (macOS arm64)`, sorted.
pub fn foreign(addons: &[Addon], packages: &BTreeSet<Vec<u8>>, target: AddonTarget) -> Vec<String> {
    let mut sets: BTreeMap<Vec<u8>, Vec<&Addon>> = BTreeMap::new();
    for addon in addons {
        sets.entry(set_of(&addon.path, packages)).or_default().push(addon);
    }
    let without = sets.values().filter(|set| !set.iter().any(|a| target.takes(&a.platform)));
    let mut files: Vec<String> =
        without.flatten().map(|a| format!("{} ({})", String::from_utf8_lossy(&a.path), a.platform)).collect();
    files.sort();
    files
}

/// The set that a file belongs to: its package, or the package's name without the platform where it has one.
fn set_of(path: &[u8], packages: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    if let Some(at) = parts.iter().rposition(|p| *p == b"node_modules") {
        let scoped = parts.get(at + 1).is_some_and(|p| p.starts_with(b"@"));
        let end = (at + 2 + usize::from(scoped)).min(parts.len());
        let name = parts[at + 1..end].join(&b'/');
        // The siblings may lie in folders of their own (pnpm), so the name alone makes the set.
        return match without_platform(&name) {
            Some(family) => family,
            None => parts[..end].join(&b'/'),
        };
    }
    let folders = (0..parts.len()).rev().map(|n| parts[..n].join(&b'/'));
    folders.into_iter().find(|f| packages.contains(f)).unwrap_or_default()
}

/// The words in names of packages that stand for a platform.
const PLATFORM_WORDS: [&str; 37] = [
    "linux",
    "linuxmusl",
    "darwin",
    "macos",
    "osx",
    "win32",
    "windows",
    "freebsd",
    "openbsd",
    "netbsd",
    "android",
    "sunos",
    "wasm32",
    "wasi",
    "x64",
    "x86",
    "64",
    "ia32",
    "amd64",
    "arm64",
    "arm64ec",
    "arm",
    "armv6",
    "armv7",
    "armv7l",
    "aarch64",
    "riscv64",
    "ppc64",
    "ppc64le",
    "s390x",
    "universal",
    "gnu",
    "glibc",
    "musl",
    "msvc",
    "eabi",
    "gnueabihf",
];

/// `@img/sharp-linux-x64` → `@img/sharp`; none where the name ends in no platform. Names of the form
/// `@scope/linux-x64` give the scope alone.
fn without_platform(name: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(name).ok()?;
    let (scope, bare) = text.rsplit_once('/').unwrap_or(("", text));
    let mut words: Vec<&str> = bare.split(['-', '_']).collect();
    let before = words.len();
    while words.last().is_some_and(|w| PLATFORM_WORDS.contains(w) || *w == "musleabihf") {
        words.pop();
    }
    // One word alone ("node-arm") is a name, not a platform: a platform is system and processor.
    if before - words.len() < 2 {
        return None;
    }
    // A NUL keeps a family apart from every folder of that name.
    Some(format!("\0{scope}/{}", words.join("-")).into_bytes())
}

#[cfg(test)]
#[path = "addons_tests.rs"]
mod tests;
