//! Finds the PTX in module images.

use causeway_api::image::texts::texts_of;
use causeway_api::image::{ELF_MAGIC, Entry, EntryKind, FATBIN_MAGIC, Form, entries, split_linked};
use causeway_api::sys::CUresult;
use causeway_gpu::device_code::unpack;
use thiserror::Error;

/// PTX longer than this is refused: nvcc's is far shorter, and hostile data unpacks to anything.
const MAX_PTX_BYTES: u64 = 256 << 20;

/// The PTX version, major times ten plus minor, that the drivers of a CUDA version take (13000 is 13.0), as
/// NVIDIA's release notes of the PTX ISA list them.
pub(super) fn newest_ptx(cuda: i32) -> u32 {
    const NEWEST: &[(i32, u32)] = &[
        (12000, 80),
        (12010, 81),
        (12020, 82),
        (12030, 83),
        (12040, 84),
        (12050, 85),
        (12070, 86),
        (12080, 87),
        (12090, 88),
        (13000, 90),
        (13010, 91),
        (13020, 92),
        (13030, 93),
        (13040, 94),
        (13050, 95),
    ];
    NEWEST.iter().rev().find(|(since, _)| *since <= cuda).map_or(78, |(_, version)| *version)
}

/// What `.version` of a PTX text says, major times ten plus minor.
pub(super) fn ptx_version(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let number = line.trim_start().split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let (major, minor) = number.split_once('.')?;
    major.parse::<u32>().ok()?.checked_mul(10)?.checked_add(minor.parse().ok()?)
}

/// Why no PTX was found in an image.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ImageError {
    /// The image is of no known form.
    #[error("the image is neither a fat binary nor PTX text: {0}")]
    Unknown(&'static str),
    /// A fat binary contradicts itself.
    #[error("the fat binary is damaged: {0}")]
    Damaged(&'static str),
    /// A text is for devices that this one is none of.
    #[error(
        "the PTX requires compute capability {}.{}; the device has {}.{}", .target / 10, .target % 10, .capability / 10,
        .capability % 10
    )]
    OtherTarget {
        /// The text's compute capability times ten.
        target: u32,
        /// The device's.
        capability: u32,
    },
    /// There is machine code for NVIDIA's processors only, or PTX for later ones.
    #[error(
        "the image contains no PTX that a device of compute capability {}.{} can run (found: {found}); build \
         with `-gencode arch=compute_75,code=compute_75`, or at least without `code=sm_..` alone", .capability / 10,
        .capability % 10
    )]
    NoPtx {
        /// The device's compute capability times ten.
        capability: u32,
        /// What there is instead.
        found: String,
    },
}

impl ImageError {
    /// What the driver answers in this case.
    pub(super) fn code(&self) -> CUresult {
        match self {
            Self::Unknown(_) | Self::Damaged(_) => CUresult::CUDA_ERROR_INVALID_IMAGE,
            Self::OtherTarget { .. } => CUresult::CUDA_ERROR_INVALID_PTX,
            Self::NoPtx { .. } => CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
        }
    }
}

/// The PTX texts that make up the program of an image, for a device of `capability` (times ten).
pub(super) fn ptx_of(form: u32, image: &[u8], capability: u32) -> Result<Vec<String>, ImageError> {
    match Form::from_number(form).ok_or(ImageError::Unknown("its form has no known number"))? {
        Form::Single if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) => {
            best_of(image, capability).map(|text| vec![text])
        }
        Form::Single if image.starts_with(&ELF_MAGIC) => texts_of(image)
            .map(|texts| texts.map_err(ImageError::Damaged))
            .unwrap_or_else(|| Err(ImageError::NoPtx { capability, found: "a cubin".into() })),
        Form::Single => {
            let text = text(image).map_err(|_| ImageError::Unknown("it is not valid UTF-8"))?;
            if !text.contains(".version") {
                return Err(ImageError::Unknown("it has no `.version`"));
            }
            match target_of(&text) {
                Some((target, targets)) if !targets.includes(target, capability) => {
                    Err(ImageError::OtherTarget { target, capability })
                }
                _ => Ok(vec![text]),
            }
        }
        Form::Linked => ptx_of_parts(image, capability),
    }
}

/// The PTX of a program that was linked from several objects. Each object has its own; the one that the
/// device linker made has PTX only when it was asked to keep that, and is of use when the objects have none.
///
/// Objects without PTX for this device are left out: NVIDIA's device runtime, which every such program is
/// linked with, is one. If something refers to them after all, linking the others says so.
fn ptx_of_parts(image: &[u8], capability: u32) -> Result<Vec<String>, ImageError> {
    let fatbins = split_linked(image).ok_or(ImageError::Damaged("it does not end where its parts end"))?;
    let Some((linked, objects)) = fatbins.split_first() else {
        return Err(ImageError::Damaged("it has no parts"));
    };
    let mut texts = Vec::new();
    for object in objects {
        match best_of(object, capability) {
            Ok(ptx) if texts.contains(&ptx) => {}
            Ok(ptx) => texts.push(ptx),
            Err(ImageError::NoPtx { found, .. }) => {
                tracing::debug!("object omitted from a program: {found}")
            }
            Err(damaged) => return Err(damaged),
        }
    }
    if texts.is_empty() { best_of(linked, capability).map(|text| vec![text]) } else { Ok(texts) }
}

/// The entry's text, unpacked.
fn ptx(entry: &Entry<'_>) -> Result<String, ImageError> {
    let bytes = unpack(entry, MAX_PTX_BYTES)
        .ok_or(ImageError::Damaged("an entry cannot be unpacked, or is larger than 256 MiB"))?;
    text(&bytes).map_err(|_| ImageError::Damaged("its PTX is not valid UTF-8"))
}

/// Text up to its first NUL, if there is one.
fn text(bytes: &[u8]) -> Result<String, core::str::Utf8Error> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    core::str::from_utf8(&bytes[..end]).map(str::to_owned)
}

/// The PTX for the highest compute capability that the device has too, of several for one capability the one
/// that is for the fewest devices, as NVIDIA's driver chooses: the program may count on what such a text
/// alone does.
fn best_of(fatbin: &[u8], capability: u32) -> Result<String, ImageError> {
    let entries = entries(fatbin).map_err(ImageError::Damaged)?;
    let is_ptx = |entry: &Entry<'_>| entry.kind == EntryKind::Ptx;
    let mut candidates: Vec<_> =
        entries.iter().filter(|entry| is_ptx(entry) && entry.architecture <= capability).collect();
    candidates.sort_by_key(|entry| core::cmp::Reverse(entry.architecture));
    let mut best: Option<(u32, TargetSet, String)> = None;
    for candidate in candidates {
        if best.as_ref().is_some_and(|(architecture, ..)| *architecture > candidate.architecture) {
            break;
        }
        let ptx = ptx(candidate)?;
        let targets = target_of(&ptx).map_or(TargetSet::Later, |(_, targets)| targets);
        let better = best.as_ref().is_none_or(|(_, found, _)| targets < *found);
        if better && targets.includes(candidate.architecture, capability) {
            best = Some((candidate.architecture, targets, ptx));
        }
    }
    if let Some((.., ptx)) = best {
        return Ok(ptx);
    }
    let found: Vec<_> = entries
        .iter()
        .map(|entry| {
            let kind = if is_ptx(entry) { "PTX" } else { "machine code" };
            format!("{kind} for {}.{}", entry.architecture / 10, entry.architecture % 10)
        })
        .collect();
    let found = if found.is_empty() { "nothing".into() } else { found.join(", ") };
    Err(ImageError::NoPtx { capability, found })
}

/// Which devices a PTX text is for, the fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TargetSet {
    /// Those of exactly its capability: `sm_90a`.
    One,
    /// Those of its capability or a later one with the same first number: `sm_100f`.
    Family,
    /// Those of its capability or a later one: `sm_90`.
    Later,
}

impl TargetSet {
    /// Whether a text for `target` with these targets runs on a device of `capability`, both times ten.
    fn includes(self, target: u32, capability: u32) -> bool {
        match self {
            Self::One => target == capability,
            Self::Family => target <= capability && target / 10 == capability / 10,
            Self::Later => target <= capability,
        }
    }
}

/// What the `.target` of a PTX text says: the capability times ten, and the devices that it is for.
fn target_of(ptx: &str) -> Option<(u32, TargetSet)> {
    let target = ptx.lines().find_map(|line| line.trim_start().strip_prefix(".target"))?;
    let name = target.trim_start().split([',', ' ', '\t', '\r']).next()?;
    let number = name.strip_prefix("sm_").or(name.strip_prefix("compute_"))?;
    let targets = match number.chars().last() {
        Some('a') => TargetSet::One,
        Some('f') => TargetSet::Family,
        _ => TargetSet::Later,
    };
    Some((number.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).parse().ok()?, targets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::image::Packing;
    use causeway_api::image::sample::{fatbin, plain};

    fn ptx(architecture: u32, text: &[u8]) -> Entry<'_> {
        plain(EntryKind::Ptx, architecture, text)
    }

    fn packed(architecture: u32, packing: Packing, payload: &[u8], unpacked_bytes: u64) -> Entry<'_> {
        Entry { packing, unpacked_bytes, ..ptx(architecture, payload) }
    }

    const SINGLE: u32 = 0;
    const LINKED: u32 = 1;

    #[test]
    fn the_best_ptx_is_taken() {
        let lz4 = lz4_flex::block::compress(b".target sm_80\n// packed");
        let image = fatbin(&[
            plain(EntryKind::Cubin, 90, b"machine code"),
            ptx(75, b".target sm_75"),
            packed(80, Packing::Lz4, &lz4, 23),
            ptx(90, b".version 8.0\n.target sm_90a, debug"),
            ptx(100, b".target sm_100"),
        ]);
        assert_eq!(ptx_of(SINGLE, &image, 89), Ok(vec![".target sm_80\n// packed".to_owned()]));
        assert_eq!(
            ptx_of(SINGLE, &image, 90),
            Ok(vec![".version 8.0\n.target sm_90a, debug".to_owned()]),
            "for this one device"
        );
        assert_eq!(
            ptx_of(SINGLE, &image, 100),
            Ok(vec![".target sm_100".to_owned()]),
            "the text for 9.0 alone is not for later devices"
        );
        assert_eq!(ptx_of(SINGLE, &image, 75), Ok(vec![".target sm_75".to_owned()]));
        let refused = ptx_of(SINGLE, &image, 50).unwrap_err();
        assert_eq!(refused.code(), CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        assert!(refused.to_string().contains("machine code for 9.0"), "{refused}");
    }

    #[test]
    fn suffixes_of_targets_say_which_devices_they_are_for() {
        let names = ["sm_100a", "sm_100f", "sm_103f", "sm_90a"];
        let texts = names.map(|name| format!(".version 9.0\n.target {name}"));
        let image = fatbin(&[
            ptx(100, texts[0].as_bytes()),
            ptx(100, texts[1].as_bytes()),
            ptx(103, texts[2].as_bytes()),
            ptx(90, texts[3].as_bytes()),
        ]);
        let chosen = |capability| {
            let texts = ptx_of(SINGLE, &image, capability).ok()?;
            texts[0].rsplit_once(' ').map(|(_, target)| target.to_owned())
        };
        let wanted =
            [(89, None), (90, Some("sm_90a")), (100, Some("sm_100a")), (103, Some("sm_103f")), (120, None)];
        for (capability, target) in wanted {
            assert_eq!(chosen(capability).as_deref(), target, "{capability}");
        }
        let both = fatbin(&[ptx(90, texts[3].as_bytes()), ptx(90, b".target sm_90")]);
        assert_eq!(ptx_of(SINGLE, &both, 90), Ok(vec![texts[3].clone()]), "the one for fewer devices");
    }

    #[test]
    fn text_ends_at_its_nul_and_cubins_are_named() {
        assert_eq!(ptx_of(SINGLE, b".version 8.0\0rest", 90), Ok(vec![".version 8.0".to_owned()]));
        assert_eq!(
            ptx_of(SINGLE, b"\x7fELF....", 90).unwrap_err().code(),
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        );
        for (target, runs) in
            [("sm_90", true), ("compute_80", true), ("sm_90a", true), ("sm_80a", false), ("sm_100", false)]
        {
            let text = format!(".version 9.0\n.target {target}, debug");
            let found = ptx_of(SINGLE, text.as_bytes(), 90);
            let code = found.err().map(|error| error.code());
            assert_eq!(code, (!runs).then_some(CUresult::CUDA_ERROR_INVALID_PTX), "{target}");
        }
        assert_eq!(ptx_of(SINGLE, b"hello", 90).unwrap_err().code(), CUresult::CUDA_ERROR_INVALID_IMAGE);
        assert_eq!(ptx_of(SINGLE, b"\xff\xfe", 90).unwrap_err().code(), CUresult::CUDA_ERROR_INVALID_IMAGE);
        assert_eq!(ptx_of(7, b"", 90).unwrap_err().code(), CUresult::CUDA_ERROR_INVALID_IMAGE);
    }

    #[test]
    fn linked_images_give_the_parts_ptx() {
        let object = |text: &[u8]| fatbin(&[ptx(75, text)]);
        let cubin_only = fatbin(&[plain(EntryKind::Cubin, 90, b"code")]);
        let image =
            [fatbin(&[]), object(b"one"), cubin_only.clone(), object(b"two"), object(b"one")].concat();
        assert_eq!(ptx_of(LINKED, &image, 90), Ok(vec!["one".to_owned(), "two".to_owned()]));
        let image = [object(b"linked"), cubin_only].concat();
        assert_eq!(ptx_of(LINKED, &image, 90), Ok(vec!["linked".to_owned()]));
        assert!(ptx_of(LINKED, &[], 90).is_err());
    }

    #[test]
    fn versions_of_ptx_belong_to_versions_of_cuda() {
        assert_eq!([11080, 12060, 13000, 13030, 13050, 13090].map(newest_ptx), [78, 85, 90, 93, 95, 95]);
        assert_eq!(ptx_version("// comment\n  .version 8.7\n.target sm_75"), Some(87));
        assert_eq!(ptx_version(".target sm_75"), None);
        assert_eq!(ptx_version(".version nine"), None);
    }

    #[test]
    fn damaged_images_are_refused() {
        let zstd_garbage = fatbin(&[packed(75, Packing::Zstd, b"no zstd frame", 100)]);
        assert!(ptx_of(SINGLE, &zstd_garbage, 90).is_err());
        let liar = fatbin(&[packed(75, Packing::Lz4, b"\x00", u64::MAX)]);
        assert!(ptx_of(SINGLE, &liar, 90).is_err());
        let good = fatbin(&[ptx(75, b".target sm_75")]);
        for length in 4..good.len() {
            assert!(ptx_of(SINGLE, &good[..length], 90).is_err(), "{length} bytes");
        }
    }
}
