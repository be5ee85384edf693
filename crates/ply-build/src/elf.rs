//! The few facts of an ELF file that a build asks for. Nothing is allocated by what a header claims, and no bytes
//! panic.

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// What an ELF file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// The processor, by the name that people know: `x64`, `arm64`, `x86`, …
    pub(crate) machine: String,
    /// Whether its header names FreeBSD.
    pub(crate) freebsd: bool,
    /// Whether it is a program or a shared object, not an object file or a core.
    pub(crate) loadable: bool,
    /// The loader that it asks for (`PT_INTERP`); a static program and a library have none.
    pub(crate) interpreter: Option<String>,
    /// Whether it has an entry point.
    pub(crate) starts: bool,
    /// The libraries that it needs (`DT_NEEDED`).
    pub(crate) needed: Vec<Vec<u8>>,
}

/// The facts of `data`, or none where it is no ELF file. What is damaged beyond its header counts as absent.
pub(crate) fn facts(data: &[u8]) -> Option<ElfFacts> {
    if data.get(..4)? != b"\x7fELF" {
        return None;
    }
    // Class and byte order stand in front of everything that depends on them.
    let (class, order, abi) = (*data.get(4)?, *data.get(5)?, *data.get(7)?);
    let half = |at: usize| {
        let raw = data.get(at..at + 2).map(|b| [b[0], b[1]])?;
        Some(if order == 2 { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
    };
    let (kind, machine) = (half(16)?, half(18)?);
    let machine = match (elf::Machine(machine), class) {
        (elf::EM_X86_64, 2) => "x64".to_owned(),
        (elf::EM_AARCH64, 2) => "arm64".to_owned(),
        (elf::EM_386, _) => "x86".to_owned(),
        (elf::EM_ARM, _) => "arm".to_owned(),
        (elf::EM_RISCV, 2) => "riscv64".to_owned(),
        (elf::EM_PPC64, _) => "ppc64".to_owned(),
        (elf::EM_S390, _) => "s390x".to_owned(),
        _ => format!("machine {machine:#x}"),
    };
    let (interpreter, starts, needed) = segments(data).unwrap_or_default();
    Some(ElfFacts {
        machine,
        freebsd: elf::OsAbi(abi) == elf::ELFOSABI_FREEBSD,
        loadable: matches!(elf::FileType(kind), elf::ET_EXEC | elf::ET_DYN),
        interpreter,
        starts,
        needed,
    })
}

/// Interpreter, whether there is an entry point, needed libraries: of a 64-bit file.
fn segments(data: &[u8]) -> Option<(Option<String>, bool, Vec<Vec<u8>>)> {
    type Header = elf::FileHeader64<Endianness>;
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let starts = header.e_entry(endian) != 0;
    let segments = header.program_headers(endian, data).ok()?;
    let until_nul = |text: &[u8]| text.iter().take_while(|b| **b != 0).copied().collect::<Vec<u8>>();
    let interpreter = segments
        .iter()
        .find_map(|s| s.interpreter(endian, data).ok().flatten())
        .map(|i| String::from_utf8_lossy(&until_nul(i)).into_owned());
    let dynamic = segments.iter().find_map(|s| s.dynamic(endian, data).ok().flatten()).unwrap_or(&[]);
    let value = |tag| dynamic.iter().find(|d| d.tag(endian) == tag).map(|d| d.d_val(endian));
    let strings = value(elf::DT_STRTAB).zip(value(elf::DT_STRSZ)).and_then(|(address, size)| {
        segments.iter().find_map(|s| s.data_range(endian, data, address, size).ok().flatten())
    });
    let needed = dynamic
        .iter()
        .filter(|d| d.tag(endian) == elf::DT_NEEDED)
        .filter_map(|d| strings?.get(usize::try_from(d.d_val(endian)).ok()?..).map(until_nul))
        .collect();
    Some((interpreter, starts, needed))
}
