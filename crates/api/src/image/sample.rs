//! Fat binaries for the tests of those who read them, laid out as nvcc does.

use super::contents::{ENTRY_HEADER_BYTES, FLAG_LZ4, FLAG_ZSTD};
use super::{ELF_MAGIC, Entry, EntryKind, FATBIN_MAGIC, Packing};

/// An entry that is not packed.
pub fn plain(kind: EntryKind, architecture: u32, payload: &[u8]) -> Entry<'_> {
    Entry { kind, architecture, packing: Packing::Plain, payload, unpacked_bytes: 0 }
}

/// A fat binary with these entries; each payload is padded to eight bytes.
pub fn fatbin(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for entry in entries {
        let kind = match entry.kind {
            EntryKind::Ptx => 1,
            EntryKind::Cubin => 2,
            EntryKind::Other(number) => number,
        };
        let flags = match entry.packing {
            Packing::Plain => 0,
            Packing::Lz4 => FLAG_LZ4,
            Packing::Zstd => FLAG_ZSTD,
        };
        let padded = entry.payload.len().next_multiple_of(8);
        let mut header = [0; ENTRY_HEADER_BYTES];
        header[0..2].copy_from_slice(&kind.to_le_bytes());
        header[2..4].copy_from_slice(&0x0101_u16.to_le_bytes());
        header[4..8].copy_from_slice(&(ENTRY_HEADER_BYTES as u32).to_le_bytes());
        header[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        header[16..20].copy_from_slice(&(entry.payload.len() as u32).to_le_bytes());
        header[28..32].copy_from_slice(&entry.architecture.to_le_bytes());
        header[40..48].copy_from_slice(&flags.to_le_bytes());
        header[56..64].copy_from_slice(&entry.unpacked_bytes.to_le_bytes());
        body.extend(header);
        body.extend(entry.payload);
        body.resize(body.len() + padded - entry.payload.len(), 0);
    }
    fatbin_around(&body)
}

/// A fat binary with these bytes behind its header.
pub fn fatbin_around(body: &[u8]) -> Vec<u8> {
    let mut bytes = FATBIN_MAGIC.to_le_bytes().to_vec();
    bytes.extend([1, 0, 16, 0]);
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A cubin that has these kernels and other functions as symbols, and no code.
pub fn cubin(kernels: &[&str], functions: &[&str]) -> Vec<u8> {
    const HEADER_BYTES: usize = 64;
    let (mut names, mut symbols) = (vec![0], vec![0; 24]);
    let entries = kernels.iter().map(|name| (name, 0x10)).chain(functions.iter().map(|name| (name, 0)));
    for (name, other) in entries {
        symbols.extend((names.len() as u32).to_le_bytes());
        // A global function of the first section.
        symbols.extend([0x12, other, 1, 0]);
        symbols.extend([0; 16]);
        names.extend(name.bytes().chain([0]));
    }
    let (names_at, symbols_at) = (HEADER_BYTES, HEADER_BYTES + names.len());
    let sections_at = symbols_at + symbols.len();
    let mut file = vec![0; HEADER_BYTES];
    file[..4].copy_from_slice(&ELF_MAGIC);
    // 64 bits, little endian, of NVIDIA's GPUs (`EM_CUDA`), for compute capability 9.0.
    (file[4], file[5], file[6], file[8], file[18], file[48]) = (2, 1, 1, 7, 190, 90);
    file[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
    (file[58], file[60]) = (64, 3);
    file.extend(&names);
    file.extend(&symbols);
    for (kind, offset, bytes, link) in
        [(0_u32, 0, 0, 0_u32), (3, names_at, names.len(), 0), (2, symbols_at, symbols.len(), 1)]
    {
        let mut section = [0; 64];
        section[4..8].copy_from_slice(&kind.to_le_bytes());
        section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
        section[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
        section[40..44].copy_from_slice(&link.to_le_bytes());
        file.extend(section);
    }
    file
}

/// A variable of [`cubin_with`]; `other` is its symbol's `st_other`.
pub struct SampleVariable<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its offset in its section.
    pub offset: u64,
    /// Its size.
    pub bytes: u64,
    /// Flags of its symbol.
    pub other: u8,
}

/// A cubin with these variables in one section, the third, in which words at these offsets are relocated;
/// with code that calls `malloc` if it says so.
pub fn cubin_with(variables: &[SampleVariable<'_>], relocated: &[u64], has_heap: bool) -> Vec<u8> {
    const HEADER_BYTES: usize = 64;
    let (mut names, mut symbols) = (vec![0], vec![0; 24]);
    let mut add = |name: &str, kind: u8, other: u8, section: u8, value: u64, bytes: u64| {
        symbols.extend((names.len() as u32).to_le_bytes());
        symbols.extend([kind, other, section, 0]);
        symbols.extend(value.to_le_bytes());
        symbols.extend(bytes.to_le_bytes());
        names.extend(name.bytes().chain([0]));
    };
    for variable in variables {
        add(variable.name, 0x11, variable.other, 3, variable.offset, variable.bytes);
    }
    if has_heap {
        add("malloc", 0x12, 0, 0, 0, 0);
    }
    let section_name = names.len();
    names.extend(b".nv.global.init\0");
    let relocations: Vec<u8> =
        relocated.iter().flat_map(|at| [*at, 2, 0].into_iter().flat_map(u64::to_le_bytes)).collect();
    let (names_at, symbols_at) = (HEADER_BYTES, HEADER_BYTES + names.len());
    let relocations_at = symbols_at + symbols.len();
    let sections_at = relocations_at + relocations.len();
    let mut file = vec![0; HEADER_BYTES];
    file[..4].copy_from_slice(&ELF_MAGIC);
    (file[4], file[5], file[6], file[8], file[18], file[48]) = (2, 1, 1, 7, 190, 90);
    file[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
    (file[58], file[60], file[62]) = (64, 5, 1);
    file.extend(&names);
    file.extend(&symbols);
    file.extend(&relocations);
    for (name, kind, offset, bytes, link, info) in [
        (0, 0_u32, 0, 0, 0_u32, 0_u32),
        (0, 3, names_at, names.len(), 0, 0),
        (0, 2, symbols_at, symbols.len(), 1, 0),
        (section_name as u32, 8, 0, 0, 0, 0),
        (0, 4, relocations_at, relocations.len(), 2, 3),
    ] {
        let mut section = [0; 64];
        section[..4].copy_from_slice(&u32::to_le_bytes(name));
        section[4..8].copy_from_slice(&kind.to_le_bytes());
        section[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
        section[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
        section[40..44].copy_from_slice(&link.to_le_bytes());
        section[44..48].copy_from_slice(&info.to_le_bytes());
        file.extend(section);
    }
    file
}
