//! What a fat binary holds, as far as the driver's back end must know before the driver sees it.

use causeway_api::image::{FATBIN_HEADER_BYTES, FATBIN_MAGIC};
use std::io::Read;

/// The name by which device code calls the driver's `printf`.
const PRINT: &[u8] = b"vprintf";
/// Images above this size are not looked through: unpacking them would cost more than is saved.
const MOST_INSPECTED: usize = 4 << 20;
/// No entry is unpacked beyond this size.
const MOST_UNPACKED: u64 = 64 << 20;

/// Bytes of an entry's header that are read; there may be more.
const ENTRY_HEADER_BYTES: usize = 64;
const KIND_CUBIN: u16 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;

/// A device's compute capability.
#[derive(Clone, Copy)]
pub(super) struct Capability {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// One image in a fat binary.
struct Entry<'a> {
    kind: u16,
    /// 90 is 9.0.
    architecture: u32,
    flags: u64,
    unpacked_bytes: u64,
    payload: &'a [u8],
}

/// The entries of a fat binary, up to the first one that does not make sense.
///
/// An entry is `{u16 kind, u16, u32 header bytes, u64 payload bytes, u32 packed bytes, .., u32 architecture at 28,
/// .., u64 flags at 40, .., u64 unpacked bytes at 56}` and its payload.
fn entries(fatbin: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = fatbin.get(FATBIN_HEADER_BYTES..).unwrap_or_default();
    core::iter::from_fn(move || {
        let header = rest.first_chunk::<ENTRY_HEADER_BYTES>()?;
        let u32_at = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let u64_at = |at: usize| header[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let payload_at = usize::try_from(u32_at(4)?).ok().filter(|bytes| *bytes >= ENTRY_HEADER_BYTES)?;
        let (entry, after) =
            rest.split_at_checked(payload_at.checked_add(usize::try_from(u64_at(8)?).ok()?)?)?;
        let (flags, packed) = (u64_at(40)?, usize::try_from(u32_at(16)?).ok()?);
        let payload = entry.get(payload_at..)?;
        let payload = if flags & (FLAG_LZ4 | FLAG_ZSTD) != 0 { payload.get(..packed)? } else { payload };
        let kind = u32_at(0)? as u16;
        rest = after;
        Some(Entry { kind, architecture: u32_at(28)?, flags, unpacked_bytes: u64_at(56)?, payload })
    })
}

/// Whether a fat binary holds machine code that runs on a device.
pub(super) fn has_code_for(fatbin: &[u8], device: Capability) -> bool {
    entries(fatbin).any(|entry| {
        let (major, minor) = (entry.architecture / 10, entry.architecture % 10);
        entry.kind == KIND_CUBIN && major == device.major && minor <= device.minor
    })
}

/// Whether code may print: whether it names the function for that. What is too large to be looked through, or
/// cannot be unpacked, may.
pub(super) fn may_print(image: &[u8]) -> bool {
    if image.len() > MOST_INSPECTED {
        return true;
    }
    if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        entries(image).any(|entry| entry.may_print())
    } else {
        names_print(image)
    }
}

fn names_print(code: &[u8]) -> bool {
    code.windows(PRINT.len()).any(|window| window == PRINT)
}

impl Entry<'_> {
    fn may_print(&self) -> bool {
        if self.flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
            return names_print(self.payload);
        }
        self.unpacked().is_none_or(|code| names_print(&code))
    }

    /// The unpacked payload; nothing when it is damaged or too large.
    fn unpacked(&self) -> Option<Vec<u8>> {
        if self.flags & FLAG_LZ4 != 0 {
            let bytes =
                usize::try_from(self.unpacked_bytes).ok().filter(|bytes| *bytes as u64 <= MOST_UNPACKED)?;
            return lz4_flex::block::decompress(self.payload, bytes).ok();
        }
        let decoder = ruzstd::decoding::StreamingDecoder::new(self.payload).ok()?;
        let mut code = Vec::new();
        let bytes = decoder.take(MOST_UNPACKED + 1).read_to_end(&mut code).ok()?;
        (bytes as u64 <= MOST_UNPACKED).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatbin(entries: &[(u16, u32, u64, &[u8], usize)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, architecture, flags, payload, unpacked) in entries {
            let mut entry = [0; ENTRY_HEADER_BYTES];
            entry[0..2].copy_from_slice(&kind.to_le_bytes());
            entry[4..8].copy_from_slice(&64u32.to_le_bytes());
            entry[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            entry[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            entry[28..32].copy_from_slice(&architecture.to_le_bytes());
            entry[40..48].copy_from_slice(&flags.to_le_bytes());
            entry[56..64].copy_from_slice(&(*unpacked as u64).to_le_bytes());
            body.extend(entry);
            body.extend(*payload);
        }
        let mut bytes = FATBIN_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn code_runs_on_its_own_generation() {
        let bytes = fatbin(&[(1, 90, 0, b"text", 0), (2, 75, 0, b"code", 0)]);
        let runs = |bytes: &[u8], major, minor| has_code_for(bytes, Capability { major, minor });
        assert!(runs(&bytes, 7, 5) && !runs(&bytes, 7, 0) && !runs(&bytes, 9, 0));
        assert!(runs(&fatbin(&[(2, 75, 0, b"", 0), (2, 90, 0, b"", 0)]), 9, 0));
        assert!(!runs(b"short", 9, 0));
        let mut endless = bytes.clone();
        endless[16 + 4..16 + 16].fill(0);
        assert!(!runs(&endless, 7, 5));
    }

    #[test]
    fn printing_is_seen_through_compression() {
        assert!(may_print(b".extern .func vprintf (") && !may_print(b".version 8.0"));
        let (prints, silent) = (b"call vprintf, call vprintf", b"ret ret ret ret ret ret");
        let lz4 = |code: &[u8]| {
            let packed = lz4_flex::block::compress(code);
            fatbin(&[(1, 90, FLAG_LZ4, &packed, code.len())])
        };
        assert!(may_print(&lz4(prints)) && !may_print(&lz4(silent)));
        let zstd = |code: &[u8]| {
            let packed =
                ruzstd::encoding::compress_to_vec(code, ruzstd::encoding::CompressionLevel::Uncompressed);
            fatbin(&[(2, 90, FLAG_ZSTD, &packed, code.len())])
        };
        assert!(may_print(&zstd(prints)) && !may_print(&zstd(silent)));
        assert!(may_print(&fatbin(&[(2, 90, FLAG_ZSTD, b"damaged", 9)])));
        assert!(may_print(&fatbin(&[(2, 90, FLAG_LZ4, b"damaged", usize::MAX)])));
        assert!(may_print(&vec![0; MOST_INSPECTED + 1]));
    }
}
