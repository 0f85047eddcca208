//! Modules, libraries and their functions: which there are.

use super::context::{Context, ContextId};
use super::function::Function;
use super::handles;
use super::module::{Library, Module};
use super::programs::Programs;
use causeway_api::handle::Native;
use causeway_api::sys::CUresult;
use causeway_api::types::{FunctionInfo, JitOptions};
use causeway_gpu::CuResult;
use causeway_gpu::device_code::{CodeMemory, CodeOwner};
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{Global, Program};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// All modules, libraries and functions of a device.
pub(super) struct Modules {
    space: Arc<AddressSpace>,
    modules: RwLock<HashMap<u64, Arc<Module>>>,
    libraries: RwLock<HashMap<u64, Arc<Library>>>,
    functions: RwLock<HashMap<u64, Arc<Function>>>,
    /// The devices' compute capability times ten.
    capability: u32,
    /// Where the variables of the next module that is loaded are to lie.
    next_addresses: Mutex<Option<Vec<u64>>>,
    /// What they are made of.
    pub(super) programs: Programs,
}

impl Modules {
    /// Nothing loaded.
    pub(super) fn new(space: Arc<AddressSpace>, capability: u32, newest_ptx: u32) -> Self {
        Self {
            space,
            modules: RwLock::default(),
            libraries: RwLock::default(),
            functions: RwLock::default(),
            capability,
            next_addresses: Mutex::default(),
            programs: Programs::new(capability, newest_ptx),
        }
    }

    /// Loads a module into a context.
    pub(super) fn load_module(
        &self,
        context: &Context,
        form: u32,
        options: &JitOptions,
        image: &[u8],
    ) -> CuResult<u64> {
        let addresses = self.next_addresses.lock().take();
        let program = self.programs.program(form, options, image)?;
        let module = Module::load(&program, None, context, &self.space, addresses.as_deref())?;
        let id = module.id;
        self.modules.write().insert(id, module);
        Ok(id)
    }

    /// Where the variables of loaded code lie.
    pub(super) fn code_memory(&self) -> Result<Vec<CodeMemory>, String> {
        if self.space.allocated_by_kernels() > 0 {
            return Err("kernels have memory of their own `malloc`, whose owners are unknown".to_owned());
        }
        let of = |owner: CodeOwner, module: &Module| CodeMemory {
            owner,
            context: Native::from_value(module.context),
            ranges: module.loaded.ranges(),
            variables: Vec::new(),
        };
        let mut found = Vec::new();
        let mut of_libraries = Vec::new();
        for library in self.libraries.read().values() {
            for module in library.modules() {
                found.push(of(CodeOwner::Library(Native::from_value(library.id)), &module));
                of_libraries.push(module.id);
            }
        }
        let modules = self.modules.read();
        let own = modules.values().filter(|module| !of_libraries.contains(&module.id));
        found.extend(own.map(|module| of(CodeOwner::Module(Native::from_value(module.id)), module)));
        Ok(found)
    }

    /// The variables of the next module that is loaded lie at these addresses.
    pub(super) fn fix_next_addresses(&self, addresses: Vec<u64>) {
        *self.next_addresses.lock() = Some(addresses);
    }

    /// Loads a library into a context, with its variables at these addresses.
    pub(super) fn load_library_into(
        &self,
        library: u64,
        context: &Context,
        addresses: &[u64],
    ) -> CuResult<()> {
        self.library(library)?.module_at(context, &self.space, Some(addresses)).map(drop)
    }

    /// Unloads a module; launches of it that a stream holds are still done.
    pub(super) fn unload_module(&self, id: u64) -> CuResult<()> {
        let module = self.modules.write().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        self.functions.write().retain(|_, function| !function.is_of_module(module.id));
        Ok(())
    }

    /// Loads a library.
    pub(super) fn load_library(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<u64> {
        let program = self.programs.program(form, options, image)?;
        let library = Library::new(program);
        let id = library.id;
        self.libraries.write().insert(id, Arc::new(library));
        Ok(id)
    }

    /// Unloads a library with its kernels and its modules in all contexts.
    pub(super) fn unload_library(&self, id: u64) -> CuResult<()> {
        let library = self.libraries.write().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let modules = library.module_ids();
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
            gone.extend(library.leave(context));
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
        let (id, info) = (handles::next(), function.info(self.capability, 0));
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

    /// The context of a module, and the address of its texture or surface reference of this name.
    pub(super) fn module_reference(
        &self,
        module: u64,
        name: &str,
        surface: bool,
    ) -> CuResult<(ContextId, u64)> {
        let module = self.module(module)?;
        let loaded = &module.loaded;
        let found = if surface { loaded.surface_reference(name) } else { loaded.texture_reference(name) };
        Ok((module.context, found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?))
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

fn names(program: &Program) -> Vec<String> {
    program.kernels().iter().map(|kernel| kernel.name.clone()).collect()
}
