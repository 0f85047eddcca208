//! Programs: what images hold, compiled once for each text.

use super::image;
use causeway_api::sys::CUresult;
use causeway_api::types::{JitOptions, JitReport};
use causeway_gpu::CuResult;
use causeway_gpu::device_code::Reports;
use causeway_ptx::{CompileError, CompileOptions, Program};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

/// PTX of programs that are kept although no module uses them any more.
const CACHED_PTX_BYTES: usize = 64 << 20;

/// Programs by their texts, the ones used least lately first.
#[derive(Default)]
struct ProgramCache {
    programs: VecDeque<(Vec<String>, Arc<Program>)>,
    bytes: usize,
}

impl ProgramCache {
    fn get(&mut self, texts: &[String]) -> Option<Arc<Program>> {
        let index = self.programs.iter().position(|(key, _)| key == texts)?;
        let found = self.programs.remove(index)?;
        let program = Arc::clone(&found.1);
        self.programs.push_back(found);
        Some(program)
    }

    fn insert(&mut self, texts: Vec<String>, program: Arc<Program>) {
        let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
        self.bytes += bytes(&texts);
        self.programs.push_back((texts, program));
        while self.bytes > CACHED_PTX_BYTES {
            let Some((oldest, _)) = self.programs.pop_front() else { break };
            self.bytes -= bytes(&oldest);
        }
    }
}

/// Compiles programs for a device.
pub(super) struct Programs {
    cache: Mutex<ProgramCache>,
    /// The devices' compute capability times ten.
    capability: u32,
    /// The last version of PTX that is taken, major times ten plus minor.
    newest_ptx: u32,
    /// What compiling them gave to say.
    pub(super) reports: Reports,
}

impl Programs {
    /// None compiled yet.
    pub(super) fn new(capability: u32, newest_ptx: u32) -> Self {
        Self { cache: Mutex::default(), capability, newest_ptx, reports: Reports::default() }
    }

    /// Compiles the program of an image and reports on it.
    pub(super) fn program(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Arc<Program>> {
        if !options.symbols.is_empty() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let started = Instant::now();
        let compiled = self.compiled(form, image);
        let errors = compiled.as_ref().err().map(|(_, text)| text.clone()).unwrap_or_default();
        if compiled.is_err() {
            tracing::error!("cannot load a module: {errors}");
        }
        let information = compiled.as_ref().map(|program| unsupported_kernels(program)).unwrap_or_default();
        let milliseconds = started.elapsed().as_secs_f32() * 1e3;
        let report = JitReport { information, errors, milliseconds, ..JitReport::default() };
        self.reports.put(options.report, report);
        compiled.map_err(|(code, _)| code)
    }

    /// Compiles the program of an image. Every instruction is checked here; machine code is made when a
    /// kernel is first launched.
    fn compiled(&self, form: u32, image: &[u8]) -> Result<Arc<Program>, (CUresult, String)> {
        let texts = texts(form, image, self.capability, self.newest_ptx)?;
        if let Some(program) = self.cache.lock().get(&texts) {
            return Ok(program);
        }
        let program = compile(&texts).map_err(|error| (code_of(&error), error.to_string()))?;
        let program = Arc::new(program);
        self.cache.lock().insert(texts, Arc::clone(&program));
        Ok(program)
    }
}

/// The PTX of an image for a device of `capability` (times ten) that takes PTX up to a version, major times ten plus minor.
pub(super) fn texts(
    form: u32,
    image: &[u8],
    capability: u32,
    newest_ptx: u32,
) -> Result<Vec<String>, (CUresult, String)> {
    let texts = image::ptx_of(form, image, capability).map_err(|error| (error.code(), error.to_string()))?;
    let versions = texts.iter().filter_map(|text| image::ptx_version(text));
    match versions.into_iter().find(|version| *version > newest_ptx) {
        None => Ok(texts),
        Some(version) => {
            let text = format!(
                "PTX of version {}.{} needs a later driver; this one takes {}.{} at most",
                version / 10,
                version % 10,
                newest_ptx / 10,
                newest_ptx % 10
            );
            Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, text))
        }
    }
}

/// Links the texts into one program, and checks every instruction.
pub(super) fn compile(texts: &[String]) -> Result<Program, CompileError> {
    let sources: Vec<&str> = texts.iter().map(String::as_str).collect();
    Program::compile(&sources, &CompileOptions::default())
}

/// A line for each kernel that this device cannot run.
fn unsupported_kernels(program: &Program) -> String {
    let mut lines = String::new();
    for kernel in program.kernels() {
        if let Some(error) = &kernel.unsupported {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "kernel `{}` cannot run: {error}", kernel.name);
        }
    }
    lines
}

/// What the driver answers when PTX cannot be compiled. Valid PTX of which this device lacks something is
/// told from PTX that no device takes.
pub(super) fn code_of(error: &CompileError) -> CUresult {
    match error {
        CompileError::LaterVersion { .. } => CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CompileError::Machine(_) => CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        _ => CUresult::CUDA_ERROR_INVALID_PTX,
    }
}
