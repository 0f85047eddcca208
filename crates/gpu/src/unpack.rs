//! Unpacks the entries of fat binaries.

use causeway_api::image::{Entry, Packing};
use std::borrow::Cow;
use std::io::Read;

/// The bytes of an entry, unpacked; nothing when they are damaged or more than `most`.
pub fn unpack<'a>(entry: &Entry<'a>, most: u64) -> Option<Cow<'a, [u8]>> {
    match entry.packing {
        Packing::Plain => (entry.payload.len() as u64 <= most).then_some(Cow::Borrowed(entry.payload)),
        Packing::Lz4 => {
            let bytes =
                usize::try_from(entry.unpacked_bytes).ok().filter(|_| entry.unpacked_bytes <= most)?;
            lz4_flex::block::decompress(entry.payload, bytes).ok().map(Cow::Owned)
        }
        Packing::Zstd => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(entry.payload).ok()?;
            let mut unpacked = Vec::new();
            let bytes = decoder.take(most.saturating_add(1)).read_to_end(&mut unpacked).ok()?;
            (bytes as u64 <= most).then_some(Cow::Owned(unpacked))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::image::EntryKind;

    fn entry(packing: Packing, payload: &[u8], unpacked_bytes: u64) -> Entry<'_> {
        Entry { kind: EntryKind::Ptx, architecture: 90, packing, payload, unpacked_bytes }
    }

    #[test]
    fn every_packing_is_undone_within_its_limit() {
        let lz4 = lz4_flex::block::compress(b"text text text text");
        let zstd = ruzstd::encoding::compress_to_vec(
            &b"text text text text"[..],
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        for (packing, payload) in
            [(Packing::Plain, &b"text text text text"[..]), (Packing::Lz4, &lz4), (Packing::Zstd, &zstd)]
        {
            assert_eq!(
                unpack(&entry(packing, payload, 19), 19).as_deref(),
                Some(&b"text text text text"[..])
            );
            assert_eq!(unpack(&entry(packing, payload, 19), 18), None);
        }
    }

    #[test]
    fn damaged_entries_unpack_to_nothing() {
        assert_eq!(unpack(&entry(Packing::Zstd, b"no zstd frame", 100), 100), None);
        assert_eq!(unpack(&entry(Packing::Lz4, b"\0", u64::MAX), 100), None);
        assert_eq!(unpack(&entry(Packing::Lz4, b"\xff", 100), 100), None);
    }
}
