//! What a fat binary holds, as far as the driver's back end must know before the driver sees it.

use crate::unpack::unpack;
use causeway_api::image::{Entry, EntryKind, FATBIN_MAGIC, entries, runs_on};

/// The name by which device code calls the driver's `printf`.
const PRINT: &[u8] = b"vprintf";
/// Images above this size are not looked through: unpacking them would cost more than is saved.
const MOST_INSPECTED: usize = 4 << 20;
/// No entry is unpacked beyond this size.
const MOST_UNPACKED: u64 = 64 << 20;

/// Whether a fat binary holds machine code that runs on a device of a compute capability, times ten.
pub(super) fn has_code_for(fatbin: &[u8], capability: u32) -> bool {
    entries(fatbin).is_ok_and(|entries| {
        entries.iter().any(|entry| entry.kind == EntryKind::Cubin && runs_on(entry.architecture, capability))
    })
}

/// Whether code may print on one of the devices, whose compute capabilities, times ten, are given: whether it names the
/// function for that. What is too large to be looked through, or cannot be unpacked, may.
///
/// Unpacking is what takes the time of a load (PyTorch's libraries hold code for six generations in a fat binary), so
/// only entries that the driver may choose are unpacked.
pub(super) fn may_print(image: &[u8], capabilities: &[u32]) -> bool {
    if image.len() > MOST_INSPECTED {
        return true;
    }
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return names_print(image);
    }
    let Ok(entries) = entries(image) else { return true };
    let may_be_chosen = |entry: &Entry<'_>| {
        let is_code = |entry: &Entry<'_>| entry.kind == EntryKind::Cubin;
        capabilities.iter().any(|capability| match entry.kind {
            EntryKind::Cubin => runs_on(entry.architecture, *capability),
            // Compiled only where nothing has been.
            _ => !entries.iter().any(|other| is_code(other) && runs_on(other.architecture, *capability)),
        })
    };
    entries
        .iter()
        .filter(|entry| may_be_chosen(entry))
        .any(|entry| unpack(entry, MOST_UNPACKED).is_none_or(|code| names_print(&code)))
}

fn names_print(code: &[u8]) -> bool {
    memchr::memmem::find(code, PRINT).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LZ4: u64 = 0x2000;
    const ZSTD: u64 = 0x8000;

    fn fatbin(entries: &[(u16, u32, u64, &[u8], usize)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, architecture, flags, payload, unpacked) in entries {
            let mut entry = [0; 64];
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
    fn code_is_found_for_its_own_generation() {
        let bytes = fatbin(&[(1, 90, 0, b"text", 0), (2, 75, 0, b"code", 0)]);
        assert!(has_code_for(&bytes, 75) && !has_code_for(&bytes, 70) && !has_code_for(&bytes, 90));
        assert!(!has_code_for(b"short", 90));
    }

    #[test]
    fn printing_is_seen_through_compression() {
        let may_print = |image: &[u8]| may_print(image, &[90]);
        assert!(may_print(b".extern .func vprintf (") && !may_print(b".version 8.0"));
        let (prints, silent) = (b"call vprintf, call vprintf", b"ret ret ret ret ret ret");
        let lz4 = |code: &[u8]| {
            let packed = lz4_flex::block::compress(code);
            fatbin(&[(1, 90, LZ4, &packed, code.len())])
        };
        assert!(may_print(&lz4(prints)) && !may_print(&lz4(silent)));
        assert!(may_print(&fatbin(&[(2, 90, ZSTD, b"damaged", 9)])));
        assert!(may_print(&vec![0; MOST_INSPECTED + 1]));
    }

    #[test]
    fn only_what_the_devices_may_run_is_looked_at() {
        let (prints, silent) = (b"call vprintf".as_slice(), b"ret".as_slice());
        let code = |for_80: &[u8], for_90: &[u8], text: &[u8]| {
            fatbin(&[(2, 80, 0, for_80, 0), (2, 90, 0, for_90, 0), (1, 90, 0, text, 0)])
        };
        assert!(may_print(&code(silent, prints, silent), &[90]));
        assert!(!may_print(&code(prints, silent, prints), &[90]));
        assert!(may_print(&code(prints, silent, silent), &[90, 86]));
        assert!(may_print(&code(silent, silent, prints), &[90, 100]), "100 has the text compiled");
    }
}
