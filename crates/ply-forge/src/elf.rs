//! What an ELF file needs to start: its interpreter, the libraries that it names and where it looks for them.
//! Read from the program headers, since sections may be stripped; with the `object` crate, which expects lies.

use crate::error::{ForgeError, Result};
use crate::files::Data;
use object::elf::{
    DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, EM_AARCH64, EM_X86_64, ET_DYN,
    ET_EXEC, FileHeader64, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadRef, StringTable};
use object::{Endianness, ReadCache};
use ply_manifest::Arch;
use std::fs::File;

/// The parts of an ELF file that matter for finding its libraries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Elf {
    /// `PT_INTERP`, without the leading slash.
    pub(crate) interpreter: Option<String>,
    /// `DT_SONAME`.
    pub(crate) soname: Option<String>,
    /// `DT_NEEDED`, in order.
    pub(crate) needed: Vec<String>,
    /// The folders of `DT_RUNPATH`, else `DT_RPATH`, as written.
    pub(crate) search: Vec<String>,
}

/// The longest name of an interpreter or library that is believed.
const NAME_MAX: u64 = 4096;

impl Elf {
    /// Reads a program or shared object for `arch`. `None` for anything else: no ELF, another machine's, a
    /// relocatable object, or one too broken to start.
    pub(crate) fn read(data: &Data, arch: Arch) -> Result<Option<Self>> {
        if data.head(4)? != b"\x7fELF" {
            return Ok(None);
        }
        Ok(match data {
            Data::Bytes(bytes) => parse(&bytes[..], arch),
            Data::Spooled(path) => {
                let file =
                    File::open(path.as_path()).map_err(ForgeError::file("cannot read", path.as_path()))?;
                parse(&ReadCache::new(file), arch)
            }
        })
    }
}

fn parse<'data, R: ReadRef<'data>>(data: R, arch: Arch) -> Option<Elf> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let machine = match arch {
        Arch::X64 => EM_X86_64,
        Arch::Arm64 => EM_AARCH64,
    };
    if header.e_machine(endian) != machine || !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return None;
    }
    let mut elf = Elf::default();
    let segments = header.program_headers(endian, data).ok()?;
    let offset_of = |address: u64| {
        segments.iter().find_map(|s| {
            let start: u64 = s.p_vaddr(endian);
            let size: u64 = s.p_filesz(endian);
            let inside = s.p_type(endian) == PT_LOAD && (start..start.checked_add(size)?).contains(&address);
            inside.then(|| s.p_offset(endian).checked_add(address - start)).flatten()
        })
    };
    for segment in segments {
        if let Ok(Some(path)) = segment.interpreter(endian, data) {
            let path = path.strip_prefix(b"/").unwrap_or(path);
            elf.interpreter = std::str::from_utf8(path).ok().map(str::to_owned);
        }
        let Ok(Some(dynamic)) = segment.dynamic(endian, data) else { continue };
        let (mut table, mut size) = (None, 0);
        for entry in dynamic.iter().take_while(|d| d.d_tag(endian) != DT_NULL) {
            match entry.d_tag(endian) {
                DT_STRTAB => table = offset_of(entry.d_val(endian)),
                DT_STRSZ => size = entry.d_val(endian),
                _ => {}
            }
        }
        let table = table?;
        let strings = StringTable::new(data, table, table.checked_add(size)?);
        let text = |value: u64| -> Option<String> {
            let name = strings.get(u32::try_from(value).ok()?).ok()?;
            (name.len() as u64 <= NAME_MAX).then(|| String::from_utf8(name.to_vec()).ok())?
        };
        let (mut run, mut old) = (None, None);
        for entry in dynamic.iter().take_while(|d| d.d_tag(endian) != DT_NULL) {
            let value = entry.d_val(endian);
            match entry.d_tag(endian) {
                DT_NEEDED => elf.needed.extend(text(value)),
                DT_SONAME => elf.soname = text(value),
                DT_RUNPATH => run = text(value),
                DT_RPATH => old = text(value),
                _ => {}
            }
        }
        let search = run.or(old).unwrap_or_default();
        elf.search = search.split(':').filter(|d| !d.is_empty()).map(str::to_owned).collect();
    }
    Some(elf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_running_program_is_read_and_other_machines_are_left_alone() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let other = if Arch::HOST == Arch::X64 { Arch::Arm64 } else { Arch::X64 };
        let data = Data::from(own);
        assert!(Elf::read(&data, Arch::HOST).unwrap().is_some());
        assert_eq!(Elf::read(&data, other).unwrap(), None);
        assert_eq!(Elf::read(&Data::from(b"#!/bin/sh\n".to_vec()), Arch::HOST).unwrap(), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 64..600), at in 0_usize..600) {
            // A header that is believed, with everything behind it wild.
            let head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0";
            bytes[..head.len()].copy_from_slice(head);
            bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
            bytes[54..58].copy_from_slice(&[56, 0, 2, 0]);
            bytes.truncate(at.max(64));
            let _ = Elf::read(&Data::from(bytes), Arch::X64);
        }
    }
}
