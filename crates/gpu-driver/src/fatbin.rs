//! What a fat binary holds, as far as the driver's back end must know before the driver sees it.

use causeway_api::image::{Entry, EntryKind, FATBIN_MAGIC, entries, runs_on};
use causeway_gpu::unpack::unpack;

/// The name by which device code calls the driver's `printf`.
const PRINT: &[u8] = b"vprintf";
/// Images above this size are not looked through: unpacking them would cost more than is saved.
const MAX_INSPECTED_BYTES: usize = 4 << 20;
/// No entry is unpacked beyond this size.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;

/// Whether a fat binary holds machine code that runs on a device of a compute capability, times ten.
pub(crate) fn has_code_for(fatbin: &[u8], capability: u32) -> bool {
    entries(fatbin).is_ok_and(|entries| entries.iter().any(|entry| is_code_for(entry, capability)))
}

fn is_code_for(entry: &Entry<'_>, capability: u32) -> bool {
    entry.kind == EntryKind::Cubin && runs_on(entry.architecture, capability)
}

/// Whether code may print on one of the devices, whose compute capabilities, times ten, are given: whether it
/// names the function for that. What is too large to be looked through, or cannot be unpacked, may.
///
/// Unpacking is what takes the time of a load (PyTorch's libraries hold code for six generations in a fat
/// binary), so only entries that the driver may choose are unpacked.
pub(crate) fn may_print(image: &[u8], capabilities: &[u32]) -> bool {
    if image.len() > MAX_INSPECTED_BYTES {
        return true;
    }
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return names_print(image);
    }
    let Ok(entries) = entries(image) else { return true };
    let may_be_chosen = |entry: &Entry<'_>| {
        capabilities.iter().any(|capability| match entry.kind {
            EntryKind::Cubin => is_code_for(entry, *capability),
            // Compiled only where nothing has been.
            _ => !entries.iter().any(|other| is_code_for(other, *capability)),
        })
    };
    entries
        .iter()
        .filter(|entry| may_be_chosen(entry))
        .any(|entry| unpack(entry, MAX_UNPACKED_BYTES).is_none_or(|code| names_print(&code)))
}

fn names_print(code: &[u8]) -> bool {
    memchr::memmem::find(code, PRINT).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::image::Packing;
    use causeway_api::image::sample::{fatbin, plain};

    #[test]
    fn code_is_found_for_its_own_generation() {
        let bytes = fatbin(&[plain(EntryKind::Ptx, 90, b"text"), plain(EntryKind::Cubin, 75, b"code")]);
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
            let unpacked_bytes = code.len() as u64;
            let packing = Packing::Lz4;
            fatbin(&[Entry { packing, unpacked_bytes, ..plain(EntryKind::Ptx, 90, &packed) }])
        };
        assert!(may_print(&lz4(prints)) && !may_print(&lz4(silent)));
        let damaged = plain(EntryKind::Cubin, 90, b"damaged");
        assert!(may_print(&fatbin(&[Entry { packing: Packing::Zstd, unpacked_bytes: 9, ..damaged }])));
        assert!(may_print(&vec![0; MAX_INSPECTED_BYTES + 1]));
    }

    #[test]
    fn only_what_the_devices_may_run_is_looked_at() {
        let (prints, silent) = (b"call vprintf".as_slice(), b"ret".as_slice());
        let code = |for_80: &[u8], for_90: &[u8], text: &[u8]| {
            let cubin = |architecture, code| plain(EntryKind::Cubin, architecture, code);
            fatbin(&[cubin(80, for_80), cubin(90, for_90), plain(EntryKind::Ptx, 90, text)])
        };
        assert!(may_print(&code(silent, prints, silent), &[90]));
        assert!(!may_print(&code(prints, silent, prints), &[90]));
        assert!(may_print(&code(prints, silent, silent), &[90, 86]));
        assert!(may_print(&code(silent, silent, prints), &[90, 100]), "100 has the text compiled");
    }
}
