//! Cubins: their kernels, from the table of symbols, and the reader of ELF files that variables use, too. Only headers,
//! symbols and names are read.

use super::ELF_MAGIC;

const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// The type of the section with the symbols (`SHT_SYMTAB`).
const SYMBOL_TABLE: u32 = 2;
/// The type of a symbol that is a function (`STT_FUNC`).
pub(super) const FUNCTION: u8 = 2;
/// What the byte `st_other` of a kernel has set (`STO_CUDA_ENTRY`): the host can launch it.
const ENTRY: u8 = 0x10;

/// The most kernels of a cubin, and the longest name: no compiler makes as many or as long ones, and names of a hostile file may
/// overlap each other.
const MAX_KERNELS: usize = 1 << 16;
pub(super) const MAX_NAME_BYTES: usize = 16 << 10;

/// An ELF file of 64 bits. What is not where a header says is none.
#[derive(Clone, Copy)]
pub(super) struct Elf<'a> {
    file: &'a [u8],
    header: &'a [u8; HEADER_BYTES],
}

/// The header of a section.
pub(super) type Section = [u8; SECTION_HEADER_BYTES];
/// A symbol (`Elf64_Sym`).
pub(super) type Symbol = [u8; SYMBOL_BYTES];

impl<'a> Elf<'a> {
    /// The file; nothing when it is no ELF file of 64 bits.
    pub(super) fn new(file: &'a [u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = file.first_chunk()?;
        (header.starts_with(&ELF_MAGIC) && header[4] == 2).then_some(Self { file, header })
    }

    /// How many sections it has; with 65,280 or more the count is 0 and stands elsewhere.
    pub(super) fn sections(self) -> usize {
        u16_at(self.header, 60).into()
    }

    pub(super) fn section(self, index: usize) -> Option<&'a Section> {
        let start = long(self.header, 40)?.checked_add(index.checked_mul(SECTION_HEADER_BYTES)?)?;
        self.file.get(start..)?.first_chunk()
    }

    pub(super) fn content(self, section: &Section) -> Option<&'a [u8]> {
        let start = long(section, 24)?;
        self.file.get(start..start.checked_add(long(section, 32)?)?)
    }

    /// The names of the sections.
    pub(super) fn section_names(self) -> Option<&'a [u8]> {
        self.content(self.section(u16_at(self.header, 62).into())?)
    }

    /// Hands over each symbol with the names of its table; nothing when one of them is not there, or `take` says so.
    pub(super) fn each_symbol(self, mut take: impl FnMut(&'a Symbol, &'a [u8]) -> Option<()>) -> Option<()> {
        for index in 0..self.sections() {
            let table = self.section(index)?;
            if u32_at(table, 4)? != SYMBOL_TABLE {
                continue;
            }
            let names = self.content(self.section(u32_at(table, 40)? as usize)?)?;
            let (symbols, _) = self.content(table)?.as_chunks();
            symbols.iter().try_for_each(|symbol| take(symbol, names))?;
        }
        Some(())
    }
}

/// The names of a cubin's kernels, mangled as the compiler left them, in the order of its symbols; nothing when it is no
/// ELF file of 64 bits, or a table is not where its header says or larger than any.
pub fn cubin_kernels(cubin: &[u8]) -> Option<Vec<&str>> {
    let mut kernels = Vec::new();
    Elf::new(cubin)?.each_symbol(|symbol, names| {
        if symbol[4] & 0xf == FUNCTION && symbol[5] & ENTRY != 0 {
            if kernels.len() == MAX_KERNELS {
                return None;
            }
            kernels.push(text(names, u32_at(symbol, 0)? as usize)?);
        }
        Some(())
    })?;
    Some(kernels)
}

/// The text at an offset, before its NUL.
pub(super) fn text(names: &[u8], at: usize) -> Option<&str> {
    let name = names.get(at..)?;
    let end = name.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0)?;
    core::str::from_utf8(&name[..end]).ok()
}

fn u16_at(header: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([header[at], header[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::sample::cubin;

    #[test]
    fn kernels_are_functions_that_the_host_can_launch() {
        let file = cubin(&["_Z3addPf", "scale"], &["helper"]);
        assert_eq!(cubin_kernels(&file), Some(vec!["_Z3addPf", "scale"]));
        assert_eq!(cubin_kernels(&cubin(&[], &[])), Some(vec![]));
    }

    #[test]
    fn damaged_cubins_are_none() {
        let file = cubin(&["_Z3addPf"], &["helper"]);
        for length in 0..file.len() {
            assert_eq!(cubin_kernels(&file[..length]), None, "{length} bytes");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0xff;
            // Whatever comes out, nothing outside is read.
            let _ = cubin_kernels(&damaged);
        }
        assert_eq!(cubin_kernels(b"no ELF file"), None);
        assert_eq!(cubin_kernels(&cubin(&["k"; MAX_KERNELS + 1], &[])), None, "too many");
        assert_eq!(cubin_kernels(&cubin(&[&"k".repeat(MAX_NAME_BYTES)], &[])), None, "too long");
    }
}
