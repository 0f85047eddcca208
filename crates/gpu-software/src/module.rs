//! One module, and one library, which is a module of each context that uses it.

use super::context::{Context, ContextId};
use super::handles;
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_ptx::memory::AddressSpace;
use causeway_ptx::{LoadError, Loaded, Program};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// A program in a context, with variables of its own.
pub(super) struct Module {
    pub(super) id: u64,
    pub(super) context: ContextId,
    pub(super) loaded: Loaded,
}

impl Module {
    /// Loads a program into a context, with the variables of `shared` in place of its own `__managed__` ones.
    pub(super) fn load(
        program: &Program,
        shared: Option<&Loaded>,
        context: &Context,
        space: &Arc<AddressSpace>,
        addresses: Option<&[u64]>,
    ) -> CuResult<Arc<Self>> {
        let loaded = program.load_at(space, shared, addresses).map_err(|error| refused(&error))?;
        Ok(Arc::new(Self { id: handles::next(), context: context.id, loaded }))
    }

    /// Address and size of a variable.
    pub(super) fn global(&self, name: &str) -> CuResult<(u64, usize)> {
        let (address, size) = self.loaded.global(name).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        Ok((address, size as usize))
    }
}

/// A program that becomes a module of each context that uses it.
pub(super) struct Library {
    pub(super) id: u64,
    pub(super) program: Arc<Program>,
    /// Holds the `__managed__` variables, which all contexts share.
    shared: OnceLock<Loaded>,
    modules: Mutex<HashMap<ContextId, Arc<Module>>>,
}

impl Library {
    /// A library of a program, which no context uses yet.
    pub(super) fn new(program: Arc<Program>) -> Self {
        Self { id: handles::next(), program, shared: OnceLock::new(), modules: Mutex::default() }
    }

    /// The numbers of its modules.
    pub(super) fn module_ids(&self) -> Vec<u64> {
        self.modules.lock().values().map(|module| module.id).collect()
    }

    /// Its modules.
    pub(super) fn modules(&self) -> Vec<Arc<Module>> {
        self.modules.lock().values().cloned().collect()
    }

    /// Takes its module in a context out.
    pub(super) fn leave(&self, context: ContextId) -> Option<Arc<Module>> {
        self.modules.lock().remove(&context)
    }

    /// The library's module in a context, loaded when it is first asked for.
    pub(super) fn module_in(&self, context: &Context, space: &Arc<AddressSpace>) -> CuResult<Arc<Module>> {
        self.module_at(context, space, None)
    }

    /// The same; if it is not there yet, its variables get these addresses.
    pub(super) fn module_at(
        &self,
        context: &Context,
        space: &Arc<AddressSpace>,
        addresses: Option<&[u64]>,
    ) -> CuResult<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        let shared = if self.has_managed() { Some(self.shared(space)?) } else { None };
        let module = Module::load(&self.program, shared, context, space, addresses)?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }

    fn has_managed(&self) -> bool {
        self.program.globals().iter().any(|variable| variable.managed)
    }

    /// The program with the variables that all contexts share.
    pub(super) fn shared(&self, space: &Arc<AddressSpace>) -> CuResult<&Loaded> {
        if self.shared.get().is_none() {
            let loaded = self.program.load(space, None).map_err(|error| refused(&error))?;
            // If another thread was faster, its variables are the ones.
            let _ = self.shared.set(loaded);
        }
        self.shared.get().ok_or(CUresult::CUDA_ERROR_UNKNOWN)
    }
}

fn refused(error: &LoadError) -> CUresult {
    tracing::error!("cannot load a module: {error}");
    CUresult::CUDA_ERROR_OUT_OF_MEMORY
}
