//! Check of an image: what the software GPU lacks for the code of a program. No device is made, and nothing is run.

use crate::options::Options;
use crate::{image, programs};
use causeway_api::image::{
    ELF_MAGIC, EntryKind, FATBIN_MAGIC, Form, cubin_architecture, cubin_kernels, entries, split_linked,
};
use causeway_gpu::device_code::unpack;
use causeway_ptx::CompileError;
use std::collections::BTreeSet;

/// Machine code longer than this is not unpacked for its kernels' names.
const MAX_CUBIN_BYTES: u64 = 256 << 20;

/// The most bytes of names that are listed for an image without PTX.
const MAX_NAMES_BYTES: usize = 64 << 20;

/// A reason or an instruction is cut behind so many characters.
const MAX_TEXT: usize = 2000;

/// Calls that the client would forward, and that only a real GPU and its driver answer: what the traits of
/// [`causeway_gpu::calls`] have and `calls` does not.
pub const UNANSWERED_CALLS: [&str; 12] = [
    "cuArrayGetPlane",
    "cuArrayGetSparseProperties",
    "cuCtxGetExecAffinity",
    "cuDeviceGetP2PAtomicCapabilities",
    "cuFlushGPUDirectRDMAWrites",
    "cuLogsCurrent",
    "cuMemBatchDecompressAsync",
    "cuMipmappedArrayGetMemoryRequirements",
    "cuMipmappedArrayGetSparseProperties",
    "cuParamSetTexRef",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeIm2colWide",
];

/// What the software GPU makes of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageCheck {
    /// The code in it.
    pub code: BTreeSet<Code>,
    /// The versions of the PTX that would be taken, major times ten plus minor.
    pub ptx_versions: BTreeSet<u32>,
    /// Its kernels: of the PTX that would be taken, and of the machine code where there is none.
    pub kernels: Vec<String>,
    /// Why kernels cannot be launched; all others can.
    pub refused_kernels: Vec<RefusedKernel>,
    /// Why the image cannot be loaded at all.
    pub refusal: Option<ImageRefusal>,
}

/// Code for devices of one compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Code {
    /// Whether it is PTX; else it is machine code.
    pub is_ptx: bool,
    /// The compute capability times ten: of these devices and, for PTX, later ones.
    pub capability: u32,
}

/// A kernel that cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKernel {
    /// Its name, mangled as the compiler left it.
    pub name: String,
    /// The line of the PTX, from 1.
    pub line: Option<u32>,
    /// The instruction or directive, as written.
    pub instruction: Option<String>,
    /// A sentence that says all of this but the name.
    pub reason: String,
}

/// Why an image cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRefusal {
    /// Whether it has code, and none of it is PTX for this device.
    pub lacks_ptx: bool,
    /// A sentence.
    pub reason: String,
}

/// Checks an image as a device with these options would when it loads it.
pub fn check_image(form: Form, image: &[u8], options: &Options) -> ImageCheck {
    let mut check = ImageCheck { code: code_in(form, image), ..ImageCheck::default() };
    if check.code.is_empty() && form == Form::Single && entries(image).is_ok() {
        // Intermediate code for a later link, or nothing: no program loads it.
        return check;
    }
    let texts = match programs::texts(form.number(), image, options.capability, options.newest_ptx) {
        Ok(texts) => texts,
        Err((_, reason)) => {
            let has_ptx = check.code.iter().any(|code| code.is_ptx && code.capability <= options.capability);
            let lacks_ptx = !has_ptx && !check.code.is_empty();
            let kernels = kernels_of_machine_code(form, image);
            // The device linker leaves modules without kernels behind, which no program loads.
            let is_needed = !lacks_ptx || kernels.as_ref().is_none_or(|kernels| !kernels.is_empty());
            check.refusal = is_needed.then(|| ImageRefusal { lacks_ptx, reason: cut(&reason) });
            check.kernels = kernels.unwrap_or_default().into_iter().collect();
            return check;
        }
    };
    check.ptx_versions.extend(texts.iter().filter_map(|text| image::ptx_version(text)));
    match programs::compile(&texts) {
        Ok(program) => {
            for kernel in program.kernels() {
                check.kernels.push(kernel.name.clone());
                check
                    .refused_kernels
                    .extend(kernel.unsupported.as_ref().map(|error| refused(&kernel.name, error)));
            }
        }
        Err(error) => {
            check.refusal = Some(ImageRefusal { lacks_ptx: false, reason: cut(&error.to_string()) });
        }
    }
    check
}

/// The fat binaries of an image; one that is no such has none.
fn fatbins(form: Form, image: &[u8]) -> Vec<&[u8]> {
    match form {
        Form::Linked => split_linked(image).unwrap_or_default(),
        Form::Single if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) => vec![image],
        Form::Single => Vec::new(),
    }
}

fn code_in(form: Form, image: &[u8]) -> BTreeSet<Code> {
    if form == Form::Single && image.starts_with(&ELF_MAGIC) {
        let capability = image.first_chunk().and_then(cubin_architecture);
        return capability.map(|capability| Code { is_ptx: false, capability }).into_iter().collect();
    }
    let all = fatbins(form, image).into_iter().filter_map(|fatbin| entries(fatbin).ok()).flatten();
    all.filter_map(|entry| match entry.kind {
        EntryKind::Ptx => Some(Code { is_ptx: true, capability: entry.architecture }),
        EntryKind::Cubin => Some(Code { is_ptx: false, capability: entry.architecture }),
        EntryKind::Other(_) => None,
    })
    .collect()
}

/// The names of the kernels of all machine code in an image, each once; nothing when some of it cannot be read.
fn kernels_of_machine_code(form: Form, image: &[u8]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut remaining = MAX_NAMES_BYTES;
    let mut add = |cubin: &[u8]| {
        for name in cubin_kernels(cubin)? {
            remaining = remaining.saturating_sub(name.len());
            if remaining > 0 {
                names.insert(name.to_owned());
            }
        }
        Some(())
    };
    if form == Form::Single && image.starts_with(&ELF_MAGIC) {
        add(image)?;
    }
    for fatbin in fatbins(form, image) {
        for entry in entries(fatbin).ok()?.iter().filter(|entry| entry.kind == EntryKind::Cubin) {
            add(&unpack(entry, MAX_CUBIN_BYTES)?)?;
        }
    }
    Some(names)
}

fn refused(name: &str, error: &CompileError) -> RefusedKernel {
    let (line, instruction) = match error {
        CompileError::UnsupportedInstruction { line, instruction, .. } => (Some(*line), Some(instruction)),
        CompileError::UnsupportedDirective { line, directive, .. } => (Some(*line), Some(directive)),
        _ => (None, None),
    };
    let (name, instruction) = (name.to_owned(), instruction.map(|text| cut(text)));
    RefusedKernel { name, line, instruction, reason: cut(&error.to_string()) }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::coverage::{FUNCTIONS, Kind};
    use causeway_api::image::sample::{cubin, fatbin, plain};
    use std::path::Path;

    const GOOD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry good()\n{\nret;\n}\n";

    fn single(image: &[u8]) -> ImageCheck {
        check_image(Form::Single, image, &Options::default())
    }

    #[test]
    fn refused_instructions_have_kernel_and_line() {
        let text = format!(
            "{GOOD}.visible .entry bad()\n{{\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;\nret;\n}}\n"
        );
        let check = single(&fatbin(&[plain(EntryKind::Ptx, 75, text.as_bytes())]));
        assert_eq!((check.kernels.len(), &check.refusal), (2, &None));
        let [refused] = &check.refused_kernels[..] else { panic!("{check:?}") };
        assert_eq!((refused.name.as_str(), refused.line), ("bad", Some(10)));
        assert!(refused.instruction.as_ref().unwrap().starts_with("tcgen05"), "{refused:?}");
        assert_eq!(check.ptx_versions, BTreeSet::from([80]));
    }

    #[test]
    fn machine_code_alone_is_refused_and_its_kernels_are_named() {
        let code = cubin(&["scale", "add"], &["helper"]);
        let image = fatbin(&[plain(EntryKind::Cubin, 90, &code)]);
        for image in [&image, &code] {
            let check = single(image);
            assert!(check.refusal.as_ref().is_some_and(|refusal| refusal.lacks_ptx), "{check:?}");
            assert_eq!(check.kernels, ["add", "scale"]);
            assert_eq!(check.code, BTreeSet::from([Code { is_ptx: false, capability: 90 }]));
        }
        let beside =
            fatbin(&[plain(EntryKind::Cubin, 90, &code), plain(EntryKind::Ptx, 75, GOOD.as_bytes())]);
        assert_eq!(single(&beside).refusal, None);
        let linked = [fatbin(&[plain(EntryKind::Cubin, 90, &code)]), beside].concat();
        let check = check_image(Form::Linked, &linked, &Options::default());
        assert_eq!((check.refusal, check.kernels), (None, vec!["good".to_owned()]));
    }

    #[test]
    fn other_refusals_say_why() {
        let later = GOOD.replace("8.0", "9.9");
        let reason = |image: &[u8]| single(image).refusal.map(|refusal| (refusal.lacks_ptx, refusal.reason));
        let (lacks_ptx, text) = reason(&fatbin(&[plain(EntryKind::Ptx, 75, later.as_bytes())])).unwrap();
        assert!(!lacks_ptx && text.contains("9.9"), "{text}");
        let (lacks_ptx, text) = reason(b"\x50\xed\x55\xba damaged").unwrap();
        assert!(!lacks_ptx && text.contains("damaged"), "{text}");
        assert!(reason(b"no image").is_some());
        assert_eq!(reason(&fatbin(&[])), None, "nothing to load");
        let without_kernels = fatbin(&[plain(EntryKind::Cubin, 90, &cubin(&[], &["helper"]))]);
        assert_eq!(reason(&without_kernels), None, "nothing to launch");
        let unknown = reason(&fatbin(&[plain(EntryKind::Cubin, 90, b"no cubin")]));
        assert!(unknown.is_some_and(|(lacks_ptx, _)| lacks_ptx));
    }

    /// The list follows from the declaration list and from the sources of `calls`: one that a call is added to, or that
    /// learns to answer one, changes with it.
    #[test]
    fn unanswered_calls_are_those_that_no_source_answers() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calls");
        let mut sources = String::new();
        for file in std::fs::read_dir(folder).unwrap() {
            sources += &std::fs::read_to_string(file.unwrap().path()).unwrap();
        }
        let forwarded =
            FUNCTIONS.iter().filter(|function| matches!(function.kind, Kind::Called | Kind::Posted));
        let mut missing: Vec<_> = forwarded
            .map(|function| function.symbol)
            .filter(|symbol| !sources.contains(&format!("fn {symbol}(")))
            .collect();
        missing.sort_unstable();
        assert_eq!(missing, UNANSWERED_CALLS);
    }
}
