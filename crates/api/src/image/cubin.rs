//! Kernels of a cubin, from its table of symbols. Only headers, symbols and names are read.

use super::ELF_MAGIC;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const SECTION_HEADER_BYTES: usize = 64;
pub(super) const SYMBOL_BYTES: usize = 24;
/// The type of the section with the symbols (`SHT_SYMTAB`).
pub(super) const SYMBOL_TABLE: u32 = 2;
/// The type of a symbol that is a function (`STT_FUNC`).
const FUNCTION: u8 = 2;
/// What the byte `st_other` of a kernel has set (`STO_CUDA_ENTRY`): the host can launch it.
const ENTRY: u8 = 0x10;

/// The most kernels of a cubin, and the longest name: no compiler makes as many or as long ones, and names of a hostile file may
/// overlap each other.
const MAX_KERNELS: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 16 << 10;

/// The names of a cubin's kernels, mangled as the compiler left them, in the order of its symbols; nothing when it is no
/// ELF file of 64 bits, or a table is not where its header says or larger than any.
pub fn cubin_kernels(cubin: &[u8]) -> Option<Vec<&str>> {
    let header: &[u8; HEADER_BYTES] = cubin.first_chunk()?;
    if !header.starts_with(&ELF_MAGIC) || header[4] != 2 {
        return None;
    }
    let sections = long(header, 40)?;
    let section = |index: usize| {
        let start = sections.checked_add(index.checked_mul(SECTION_HEADER_BYTES)?)?;
        cubin.get(start..)?.first_chunk::<SECTION_HEADER_BYTES>()
    };
    let content = |header: &[u8; SECTION_HEADER_BYTES]| {
        let start = long(header, 24)?;
        cubin.get(start..start.checked_add(long(header, 32)?)?)
    };
    let count = usize::from(u16::from_le_bytes([header[60], header[61]]));
    let mut kernels = Vec::new();
    for index in 0..count {
        let table = section(index)?;
        if u32_at(table, 4)? != SYMBOL_TABLE {
            continue;
        }
        let names = content(section(u32_at(table, 40)? as usize)?)?;
        for symbol in content(table)?.chunks_exact(SYMBOL_BYTES) {
            if symbol[4] & 0xf == FUNCTION && symbol[5] & ENTRY != 0 {
                let name = names.get(u32_at(symbol, 0)? as usize..)?;
                let end = name.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0)?;
                if kernels.len() == MAX_KERNELS {
                    return None;
                }
                kernels.push(core::str::from_utf8(&name[..end]).ok()?);
            }
        }
    }
    Some(kernels)
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
