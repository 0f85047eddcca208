//! The linker of the software GPU: it gathers PTX, and returns it in a file that `module` takes for a
//! program.
//!
//! Programs expect an ELF file, whose size can be found by looking at it. So the texts are the one section of
//! one.

use super::image;
use super::programs::code_of;
use causeway_api::image::Form;
use causeway_api::image::texts::container;
use causeway_api::sys::{CUjitInputType, CUresult};
use causeway_api::types::{JitOptions, JitReport};
use causeway_gpu::CuResult;
use causeway_gpu::device_code::Reports;
use causeway_ptx::{CompileError, CompileOptions, Program};
use parking_lot::Mutex;
use std::collections::HashMap;

/// More source text than this is not gathered.
const MAX_BYTES: usize = 256 << 20;
/// The longest piece of a result that is given at once, in bytes.
const MAX_PIECE_BYTES: usize = 8 << 20;

#[derive(Default)]
struct Link {
    texts: Vec<String>,
    report: u64,
    result: Option<Vec<u8>>,
}

/// All linkers of a device.
pub(super) struct Links {
    /// The devices' compute capability times ten.
    capability: u32,
    links: Mutex<HashMap<u64, Link>>,
}

impl Links {
    /// None yet, for devices of a compute capability.
    pub(super) fn new(capability: u32) -> Self {
        Self { capability, links: Mutex::default() }
    }

    /// Makes a linker.
    pub(super) fn create(&self, options: &JitOptions) -> u64 {
        let id = super::handles::next();
        self.links.lock().insert(id, Link { report: options.report, ..Link::default() });
        id
    }

    /// Adds what is to be linked: PTX, or a fat binary with PTX.
    pub(super) fn add(&self, id: u64, kind: CUjitInputType, data: &[u8], reports: &Reports) -> CuResult<()> {
        self.with(id, |link| {
            let is_known = matches!(
                kind,
                CUjitInputType::CU_JIT_INPUT_PTX
                    | CUjitInputType::CU_JIT_INPUT_FATBINARY
                    | CUjitInputType::CU_JIT_INPUT_CUBIN
            );
            if !is_known {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            let texts = image::ptx_of(Form::Single.number(), data, self.capability).map_err(|error| {
                let errors = error.to_string();
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                error.code()
            })?;
            // Each text by itself, so that the call which brings a bad one is the one that fails.
            check_alone(&texts).map_err(|(code, errors)| {
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                code
            })?;
            let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
            if bytes(&link.texts) + bytes(&texts) > MAX_BYTES {
                return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
            link.texts.extend(texts);
            Ok(())
        })
    }

    /// Links everything and gives the size of the result.
    pub(super) fn complete(&self, id: u64, reports: &Reports) -> CuResult<usize> {
        self.with(id, |link| {
            let sources: Vec<&str> = link.texts.iter().map(String::as_str).collect();
            Program::compile(&sources, &CompileOptions::default()).map_err(|error| {
                let errors = error.to_string();
                reports.put(link.report, JitReport { errors, ..JitReport::default() });
                code_of(&error)
            })?;
            let result = link.result.insert(container(&link.texts));
            Ok(result.len())
        })
    }

    /// A piece of the result.
    pub(super) fn piece(&self, id: u64, start: usize, length: usize) -> CuResult<Vec<u8>> {
        self.with(id, |link| {
            let end = start.checked_add(length).filter(|_| length <= MAX_PIECE_BYTES);
            let piece = link.result.as_ref().zip(end).and_then(|(result, end)| result.get(start..end));
            piece.map(<[u8]>::to_vec).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
        })
    }

    /// Destroys a linker.
    pub(super) fn destroy(&self, id: u64) -> CuResult<()> {
        self.links.lock().remove(&id).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn with<T>(&self, id: u64, work: impl FnOnce(&mut Link) -> CuResult<T>) -> CuResult<T> {
        work(self.links.lock().get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?)
    }
}

/// Compiles each text by itself; what it needs of other texts may be missing still.
fn check_alone(texts: &[String]) -> Result<(), (CUresult, String)> {
    texts.iter().try_for_each(|text| match Program::compile(&[text], &CompileOptions::default()) {
        Ok(_) | Err(CompileError::Unresolved(_)) => Ok(()),
        Err(error) => Err((code_of(&error), error.to_string())),
    })
}
