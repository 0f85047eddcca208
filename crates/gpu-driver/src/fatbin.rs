//! What a fat binary holds, as far as the driver's back end must know before the driver sees it.

use causeway_api::image::{ELF_MAGIC, Entry, EntryKind, FATBIN_MAGIC, entries, runs_on};
use causeway_gpu::device_code::unpack;
use std::borrow::Cow;

/// The name by which device code calls the driver's `printf`.
const PRINT: &[u8] = b"vprintf";
/// Images above this size are not looked through: unpacking them would cost more than is saved.
const MAX_INSPECTED_BYTES: usize = 4 << 20;
/// No entry is unpacked beyond this size.
const MAX_UNPACKED_BYTES: u64 = 64 << 20;

/// No code whose variables are listed is unpacked beyond this size.
const MAX_CODE_BYTES: u64 = 2 << 30;

/// Code as it is for a device.
pub(crate) enum ChosenCode<'a> {
    /// Machine code.
    Cubin(Cow<'a, [u8]>),
    /// What the driver compiles.
    Ptx(Cow<'a, [u8]>),
}

/// What the driver loads of an image for a device of a compute capability, times ten: several where it is not known which of
/// them, none where a fat binary has nothing for the device. Nothing when it is not of a form that is understood.
pub(crate) fn chosen_code(image: &[u8], capability: u32) -> Option<Vec<ChosenCode<'_>>> {
    if image.starts_with(&ELF_MAGIC) {
        return Some(vec![ChosenCode::Cubin(image.into())]);
    }
    if !image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        return Some(vec![ChosenCode::Ptx(image.into())]);
    }
    let entries = entries(image).ok()?;
    let of_kind = |kind: EntryKind, fits: &dyn Fn(u32) -> bool| {
        let of_kind = || entries.iter().filter(|entry| entry.kind == kind && fits(entry.architecture));
        let best = of_kind().map(|entry| entry.architecture).max()?;
        Some(of_kind().filter(move |entry| entry.architecture == best).collect::<Vec<_>>())
    };
    if let Some(cubins) = of_kind(EntryKind::Cubin, &|architecture| runs_on(architecture, capability)) {
        return cubins
            .into_iter()
            .map(|entry| unpack(entry, MAX_CODE_BYTES).map(ChosenCode::Cubin))
            .collect();
    }
    match of_kind(EntryKind::Ptx, &|architecture| architecture <= capability) {
        Some(texts) => texts
            .into_iter()
            .map(|entry| {
                let text = unpack(entry, MAX_CODE_BYTES)?;
                // Fat binaries end the text by a NUL.
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                Some(ChosenCode::Ptx(text[..end].to_vec().into()))
            })
            .collect(),
        // What is not known may be code for the device.
        None if entries.iter().any(|entry| matches!(entry.kind, EntryKind::Other(_))) => None,
        None => Some(Vec::new()),
    }
}

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
    fn the_best_code_for_a_device_is_chosen() {
        let image = fatbin(&[
            plain(EntryKind::Ptx, 75, b"old text"),
            plain(EntryKind::Ptx, 80, b"text\0\0"),
            plain(EntryKind::Cubin, 90, b"code"),
            plain(EntryKind::Cubin, 100, b"other"),
        ]);
        let chosen = |capability| chosen_code(&image, capability).unwrap();
        assert!(matches!(&chosen(90)[..], [ChosenCode::Cubin(code)] if code.starts_with(b"code")));
        assert!(matches!(&chosen(89)[..], [ChosenCode::Ptx(text)] if **text == *b"text"));
        assert!(chosen(70).is_empty());
        assert!(chosen_code(&fatbin(&[plain(EntryKind::Other(9), 90, b"?")]), 90).is_none());
        let twice = fatbin(&[plain(EntryKind::Cubin, 90, b"a"), plain(EntryKind::Cubin, 90, b"b")]);
        assert_eq!(chosen_code(&twice, 90).unwrap().len(), 2);
        assert!(matches!(&chosen_code(b".version 8.0", 90).unwrap()[..], [ChosenCode::Ptx(_)]));
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
