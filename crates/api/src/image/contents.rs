//! Contents of a fat binary or a cubin, from its headers: nothing is unpacked here, and only headers
//! are read.
//!
//! The layout of fat binaries is not documented by NVIDIA; it is taken from what `fatbinary` 13.0 writes and
//! agrees with what public tools that read such files say.

use super::{ELF_MAGIC, FATBIN_HEADER_BYTES, fatbin_bytes};

/// Bytes of an entry's header that are understood; there may be more.
pub(super) const ENTRY_HEADER_BYTES: usize = 64;
pub(super) const FLAG_LZ4: u64 = 0x2000;
pub(super) const FLAG_ZSTD: u64 = 0x8000;

/// What an entry of a fat binary is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// PTX text.
    Ptx,
    /// Machine code.
    Cubin,
    /// Something else, by its number.
    Other(u16),
}

/// How the bytes of an entry are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// As they are.
    Plain,
    /// An LZ4 block.
    Lz4,
    /// A zstd frame.
    Zstd,
}

/// One entry of a fat binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// The compute capability that it is for, times ten: 90 is 9.0.
    pub architecture: u32,
    /// How its bytes are packed.
    pub packing: Packing,
    /// Its bytes, as they are packed.
    pub payload: &'a [u8],
    /// How many bytes it has when unpacked, as its header says; of no meaning for a plain one.
    pub unpacked_bytes: u64,
}

/// The entries of a fat binary, or what is wrong with it.
pub fn entries(fatbin: &[u8]) -> Result<Vec<Entry<'_>>, &'static str> {
    let header: &[u8; FATBIN_HEADER_BYTES] = fatbin.first_chunk().ok_or("it is shorter than its header")?;
    let total = fatbin_bytes(header).and_then(|total| usize::try_from(total).ok());
    let start = usize::from(u16::from_le_bytes([header[6], header[7]]));
    let mut rest = total
        .and_then(|total| fatbin.get(start..total))
        .ok_or("its header gives a size that is not there")?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (entry, after) = entry(rest).ok_or("an entry reaches beyond its end")?;
        found.push(entry);
        rest = after;
    }
    Ok(found)
}

/// The first entry of `bytes` and what follows it.
///
/// An entry is `{u16 kind, u16, u32 header bytes, u64 payload bytes, u32 packed bytes, .., u32 architecture
/// at 28, .., u64 flags at 40, .., u64 unpacked bytes at 56}` and its payload, which is padded when it is
/// packed.
fn entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let header = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
    let u32_at = |offset: usize| header[offset..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let u64_at = |offset: usize| header[offset..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let header_bytes = usize::try_from(u32_at(4)?).ok().filter(|bytes| *bytes >= ENTRY_HEADER_BYTES)?;
    let padded = usize::try_from(u64_at(8)?).ok()?;
    let (padded, after) = bytes.get(header_bytes..)?.split_at_checked(padded)?;
    let flags = u64_at(40)?;
    let packing = match (flags & FLAG_ZSTD != 0, flags & FLAG_LZ4 != 0) {
        (true, _) => Packing::Zstd,
        (false, true) => Packing::Lz4,
        (false, false) => Packing::Plain,
    };
    let payload = match packing {
        Packing::Plain => padded,
        _ => padded.get(..usize::try_from(u32_at(16)?).ok()?)?,
    };
    let kind = match u16::from_le_bytes([header[0], header[1]]) {
        1 => EntryKind::Ptx,
        2 => EntryKind::Cubin,
        other => EntryKind::Other(other),
    };
    Some((Entry { kind, architecture: u32_at(28)?, packing, payload, unpacked_bytes: u64_at(56)? }, after))
}

/// Whether machine code for `architecture` runs on a device of a compute capability, both times ten: code
/// runs on later devices of its own generation.
pub fn runs_on(architecture: u32, capability: u32) -> bool {
    architecture / 10 == capability / 10 && architecture <= capability
}

/// The compute capability, times ten, that a cubin is for, as the flags of its ELF header say; nothing when
/// it is no cubin of a known layout.
///
/// Cubins of ABI version 7 have it in the lowest byte of the flags, those of version 8 in the second (LLVM's
/// `BinaryFormat/ELF.h` names them `EF_CUDA_SM` and `EF_CUDA_SM_MASK`).
pub fn cubin_architecture(header: &[u8; 64]) -> Option<u32> {
    const ABI_VERSION: usize = 8;
    const FLAGS: usize = 48;
    if !header.starts_with(&ELF_MAGIC) {
        return None;
    }
    let flags = u32::from_le_bytes(*header[FLAGS..].first_chunk()?);
    match header[ABI_VERSION] {
        7 => Some(flags & 0xff),
        8 => Some(flags >> 8 & 0xff),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::sample::{fatbin, plain};

    #[test]
    fn entries_are_found_with_their_kind_and_packing() {
        let packed =
            Entry { packing: Packing::Zstd, unpacked_bytes: 9, ..plain(EntryKind::Cubin, 90, b"co") };
        let other = Entry { packing: Packing::Lz4, ..plain(EntryKind::Other(7), 90, b"ab") };
        let written = [plain(EntryKind::Ptx, 75, b"ptx text"), packed, other];
        assert_eq!(entries(&fatbin(&written)).unwrap(), written);
    }

    #[test]
    fn damaged_fat_binaries_are_refused() {
        let mut image = fatbin(&[plain(EntryKind::Ptx, 75, b"text")]);
        for length in 0..image.len() {
            assert!(entries(&image[..length]).is_err(), "{length} bytes");
        }
        image[16 + 4..16 + 16].fill(0);
        assert!(entries(&image).is_err(), "an entry without a header would never end");
    }

    #[test]
    fn code_runs_on_its_own_generation() {
        assert!(runs_on(90, 90) && runs_on(80, 86) && !runs_on(86, 80) && !runs_on(89, 90));
        let mut header = [0; 64];
        header[..4].copy_from_slice(&ELF_MAGIC);
        (header[8], header[48]) = (7, 90);
        assert_eq!(cubin_architecture(&header), Some(90));
        (header[8], header[49]) = (8, 100);
        assert_eq!(cubin_architecture(&header), Some(100));
        header[8] = 1;
        assert_eq!(cubin_architecture(&header), None);
    }
}
