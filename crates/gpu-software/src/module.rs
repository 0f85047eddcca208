//! Modules, libraries and their functions.

use super::context::{Context, ContextId};
use super::function::Function;
use super::{handles, image};
use causeway_api::sys::CUresult;
use causeway_api::types::{FunctionInfo, JitOptions, JitReport};
use causeway_gpu::CuResult;
use causeway_gpu::reports::Reports;
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{CompileError, CompileOptions, Global, LoadError, Loaded, Program};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// PTX of programs that are kept although no module uses them any more.
const CACHED_PTX_BYTES: usize = 64 << 20;

/// A program in a context, with variables of its own.
pub(super) struct Module {
    pub(super) id: u64,
    pub(super) context: ContextId,
    pub(super) loaded: Loaded,
}

impl Module {
    fn load(
        program: &Program,
        shared: Option<&Loaded>,
        context: &Context,
        space: &Arc<AddressSpace>,
    ) -> CuResult<Arc<Self>> {
        let loaded = program.load(space, shared).map_err(|error| refused(&error))?;
        Ok(Arc::new(Self { id: handles::next(), context: context.id, loaded }))
    }

    fn global(&self, name: &str) -> CuResult<(u64, usize)> {
        let (address, size) = self.loaded.global(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        Ok((address, size as usize))
    }
}

/// A program that becomes a module of each context that uses it.
pub(super) struct Library {
    id: u64,
    program: Arc<Program>,
    /// Holds the `__managed__` variables, which all contexts share.
    shared: OnceLock<Loaded>,
    modules: Mutex<HashMap<ContextId, Arc<Module>>>,
}

impl Library {
    /// The library's module in a context, loaded when it is first asked for.
    pub(super) fn module_in(&self, context: &Context, space: &Arc<AddressSpace>) -> CuResult<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        let shared = if self.has_managed() { Some(self.shared(space)?) } else { None };
        let module = Module::load(&self.program, shared, context, space)?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }
}

impl Library {
    fn has_managed(&self) -> bool {
        self.program.globals().iter().any(|variable| variable.managed)
    }

    /// The program with the variables that all contexts share.
    fn shared(&self, space: &Arc<AddressSpace>) -> CuResult<&Loaded> {
        if self.shared.get().is_none() {
            let loaded = self.program.load(space, None).map_err(|error| refused(&error))?;
            // If another thread was faster, its variables are the ones.
            let _ = self.shared.set(loaded);
        }
        self.shared.get().ok_or(CUresult::CUDA_ERROR_UNKNOWN)
    }
}

fn refused(error: &LoadError) -> CUresult {
    tracing::error!("a module could not be loaded: {error}");
    CUresult::CUDA_ERROR_OUT_OF_MEMORY
}

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

/// All modules, libraries and functions of a device.
pub(super) struct Modules {
    space: Arc<AddressSpace>,
    cache: Mutex<ProgramCache>,
    modules: RwLock<HashMap<u64, Arc<Module>>>,
    libraries: RwLock<HashMap<u64, Arc<Library>>>,
    functions: RwLock<HashMap<u64, Arc<Function>>>,
    /// The devices' compute capability times ten.
    capability: u32,
    /// The last version of PTX that is taken, major times ten plus minor.
    newest_ptx: u32,
    pub(super) reports: Reports,
}

impl Modules {
    /// Nothing loaded.
    pub(super) fn new(space: Arc<AddressSpace>, capability: u32, newest_ptx: u32) -> Self {
        Self {
            space,
            cache: Mutex::default(),
            modules: RwLock::default(),
            libraries: RwLock::default(),
            functions: RwLock::default(),
            capability,
            newest_ptx,
            reports: Reports::default(),
        }
    }

    /// Compiles the program of an image and reports on it.
    fn program(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Arc<Program>> {
        if !options.symbols.is_empty() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let begun = Instant::now();
        let compiled = self.compiled(form, image);
        let errors = compiled.as_ref().err().map(|(_, text)| text.clone()).unwrap_or_default();
        if compiled.is_err() {
            tracing::error!("a module cannot be loaded: {errors}");
        }
        let information = compiled.as_ref().map(|program| unsupported_kernels(program)).unwrap_or_default();
        let milliseconds = begun.elapsed().as_secs_f32() * 1e3;
        let report = JitReport { information, errors, milliseconds, ..JitReport::default() };
        self.reports.put(options.report, report);
        compiled.map_err(|(code, _)| code)
    }

    /// Compiles the program of an image. Every instruction is checked here; machine code is made when a kernel is
    /// first launched.
    fn compiled(&self, form: u32, image: &[u8]) -> Result<Arc<Program>, (CUresult, String)> {
        let texts =
            image::ptx_of(form, image, self.capability).map_err(|error| (error.code(), error.to_string()))?;
        if let Some(program) = self.cache.lock().get(&texts) {
            return Ok(program);
        }
        let newest = self.newest_ptx;
        if let Some(version) = texts.iter().filter_map(|text| image::ptx_version(text)).find(|v| *v > newest)
        {
            let text = format!(
                "PTX of version {}.{} needs a later driver; this one takes {}.{} at most",
                version / 10,
                version % 10,
                newest / 10,
                newest % 10
            );
            return Err((CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, text));
        }
        let sources: Vec<&str> = texts.iter().map(String::as_str).collect();
        let program = Program::compile(&sources, &CompileOptions::default())
            .map_err(|error| (code_of(&error), error.to_string()))?;
        let program = Arc::new(program);
        self.cache.lock().insert(texts, Arc::clone(&program));
        Ok(program)
    }

    /// Loads a module into a context.
    pub(super) fn load_module(
        &self,
        context: &Context,
        form: u32,
        options: &JitOptions,
        image: &[u8],
    ) -> CuResult<u64> {
        let module = Module::load(&*self.program(form, options, image)?, None, context, &self.space)?;
        let id = module.id;
        self.modules.write().insert(id, module);
        Ok(id)
    }

    /// Unloads a module; launches of it that a stream holds are still done.
    pub(super) fn unload_module(&self, id: u64) -> CuResult<()> {
        let module = self.modules.write().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        self.functions.write().retain(|_, function| !function.is_of_module(module.id));
        Ok(())
    }

    /// Loads a library.
    pub(super) fn load_library(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<u64> {
        let program = self.program(form, options, image)?;
        let library =
            Library { id: handles::next(), program, shared: OnceLock::new(), modules: Mutex::default() };
        let id = library.id;
        self.libraries.write().insert(id, Arc::new(library));
        Ok(id)
    }

    /// Unloads a library with its kernels and its modules in all contexts.
    pub(super) fn unload_library(&self, id: u64) -> CuResult<()> {
        let library = self.libraries.write().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let modules: Vec<u64> = library.modules.lock().values().map(|module| module.id).collect();
        self.modules.write().retain(|id, _| !modules.contains(id));
        self.functions.write().retain(|_, function| {
            !function.is_of_library(id) && !modules.iter().any(|module| function.is_of_module(*module))
        });
        Ok(())
    }

    /// Unloads everything that a context has left.
    pub(super) fn unload_all_of(&self, context: ContextId) {
        let mut gone = Vec::new();
        self.modules.write().retain(|_, module| {
            if module.context != context {
                return true;
            }
            gone.push(Arc::clone(module));
            false
        });
        for library in self.libraries.read().values() {
            gone.extend(library.modules.lock().remove(&context));
        }
        self.functions
            .write()
            .retain(|_, function| !gone.iter().any(|module| function.is_of_module(module.id)));
    }

    /// The module's function of this name.
    pub(super) fn module_function(&self, module: u64, name: &str) -> CuResult<(u64, FunctionInfo)> {
        let function = Function::of_module(&self.module(module)?, name)?;
        Ok(self.insert_function(function))
    }

    /// The library's kernel of this name.
    pub(super) fn library_kernel(&self, library: u64, name: &str) -> CuResult<(u64, FunctionInfo)> {
        let library = self.library(library)?;
        let function = Function::of_library(&library, library.id, &library.program, name)?;
        Ok(self.insert_function(function))
    }

    /// What a library's kernel is in a context.
    pub(super) fn kernel_function(&self, kernel: u64, context: &Context) -> CuResult<u64> {
        let function = self.function(kernel)?.in_context(context, &self.space)?;
        Ok(self.insert_function(function).0)
    }

    fn insert_function(&self, function: Function) -> (u64, FunctionInfo) {
        let (id, info) = (handles::next(), function.info(self.capability));
        self.functions.write().insert(id, Arc::new(function));
        (id, info)
    }

    /// The function or kernel of this number.
    pub(super) fn function(&self, id: u64) -> CuResult<Arc<Function>> {
        self.functions.read().get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// The module of a function in a context.
    pub(super) fn module_of(&self, function: &Function, context: &Context) -> CuResult<Arc<Module>> {
        function.module_in(context, &self.space)
    }

    /// The library's module in a context, as a module of its own name.
    pub(super) fn library_module(&self, library: u64, context: &Context) -> CuResult<u64> {
        let module = self.library(library)?.module_in(context, &self.space)?;
        let id = module.id;
        self.modules.write().insert(id, module);
        Ok(id)
    }

    /// Address and size of a module's variable.
    pub(super) fn module_global(&self, module: u64, name: &str) -> CuResult<(u64, usize)> {
        self.module(module)?.global(name)
    }

    /// Address and size of a library's variable in a context.
    pub(super) fn library_global(
        &self,
        library: u64,
        name: &str,
        context: &Context,
    ) -> CuResult<(u64, usize)> {
        self.library(library)?.module_in(context, &self.space)?.global(name)
    }

    /// Address and size of a library's `__managed__` variable.
    pub(super) fn managed_variable(&self, library: u64, name: &str) -> CuResult<(u64, usize)> {
        let library = self.library(library)?;
        let is_managed = |variable: &Global| variable.managed && variable.name == name;
        if !library.program.globals().iter().any(is_managed) {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        let (address, size) =
            library.shared(&self.space)?.global(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        Ok((address, size as usize))
    }

    /// The names of a module's functions, in the order of the source.
    pub(super) fn module_names(&self, module: u64) -> CuResult<Vec<String>> {
        Ok(names(self.module(module)?.loaded.program()))
    }

    /// The names of a library's kernels, in the order of the source.
    pub(super) fn library_names(&self, library: u64) -> CuResult<Vec<String>> {
        Ok(names(&self.library(library)?.program))
    }

    fn module(&self, id: u64) -> CuResult<Arc<Module>> {
        self.modules.read().get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn library(&self, id: u64) -> CuResult<Arc<Library>> {
        self.libraries.read().get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
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

fn names(program: &Program) -> Vec<String> {
    program.kernels().iter().map(|kernel| kernel.name.clone()).collect()
}

/// What the driver answers when PTX cannot be compiled. Valid PTX of which this device lacks something is told from
/// PTX that no device takes.
pub(super) fn code_of(error: &CompileError) -> CUresult {
    match error {
        CompileError::LaterVersion { .. } => CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CompileError::Machine(_) => CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        _ => CUresult::CUDA_ERROR_INVALID_PTX,
    }
}
