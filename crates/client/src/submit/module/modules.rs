//! Modules, which belong to a context, and what is in them.

use super::function::{Owner, forget_function, insert_function};
use crate::locks::{OnceMap, rank};
use crate::model::context;
use crate::model::handles::{self, RawHandle as _};
use crate::model::memory::{self, Origin};
use crate::remote::image::Image;
use crate::remote::session;
use crate::submit::context::work;
use crate::submit::module::image::{ImageLifetime, send_image};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle, Module};
use causeway_api::sys::{CUdeviceptr, CUmodule, CUresult};
use causeway_api::types::JitOptions;
use std::sync::Arc;

/// A variable of a module: address and size.
pub type Variable = (CUdeviceptr, usize);

/// What the client keeps of a module.
pub struct ModuleState {
    handle: Handle<Module>,
    context: Handle<Context>,
    functions: OnceMap<rank::ModuleFunctions, String, Handle<Function>>,
    variables: OnceMap<rank::ModuleVariables, String, Variable>,
}

impl handles::Object for ModuleState {
    type Kind = Module;
}

/// Loads a module into the current context.
pub fn load(image: &Image<'_>, options: &JitOptions) -> Result<Handle<Module>, CUresult> {
    let context = context::current()?;
    let module = handles::create::<Module>();
    send_image(session::of(context)?, image, ImageLifetime::Call, options, |payload, posted| {
        let form = image.form().number();
        let request = calls::module_load { module, form, options: options.clone(), image: payload };
        if posted { send::post_in(context, &request) } else { send::call_in(context, &request) }
    })?;
    insert_module(module, context);
    Ok(module)
}

/// Notes a module that a server has, or is about to get.
pub(super) fn insert_module(handle: Handle<Module>, context: Handle<Context>) {
    let (functions, variables) = (OnceMap::new(), OnceMap::new());
    handles::insert(handle, Arc::new(ModuleState { handle, context, functions, variables }));
}

/// The module that the program passed.
pub fn resolve(raw: CUmodule) -> Result<Arc<ModuleState>, CUresult> {
    handles::get::<ModuleState>(Handle::from_raw(raw))
}

/// Unloads a module, after all work of its context.
pub fn unload(raw: CUmodule) -> Result<(), CUresult> {
    let state =
        handles::remove::<ModuleState>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let waited = work::synchronize(state.context);
    handles::drop_handle(state.handle);
    forget_contents(&state);
    send::post_in(state.context, &calls::module_unload { module: state.handle }).and(waited)
}

/// Forgets a module that goes with something else; no command frees it, so its slot is not used again.
pub(super) fn forget(module: Handle<Module>) {
    if let Some(state) = handles::remove::<ModuleState>(module) {
        handles::suspend(module);
        forget_contents(&state);
    }
}

fn forget_contents(state: &ModuleState) {
    state.functions.extract(|_, _| true).into_iter().for_each(|(_, function)| forget_function(function));
    let server = state.context.server();
    for (_, (address, _)) in state.variables.extract(|_, _| true) {
        memory::forget_variable(server, address);
    }
}

/// Forgets the modules of a context that ends.
pub(super) fn context_ends(context: Handle<Context>) {
    for (module, _) in handles::select::<ModuleState>(|module| module.context == context) {
        forget(module);
    }
}

impl ModuleState {
    /// The function of this name.
    pub fn function(&self, name: &str) -> Result<Handle<Function>, CUresult> {
        self.functions.get_or_make(name, || {
            let function = handles::create::<Function>();
            let request = calls::module_function { function, module: self.handle, name };
            let info = send::call_in(self.context, &request)?;
            insert_function(function, Owner::Module(self.handle), self.context, info);
            Ok(function)
        })
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Result<Variable, CUresult> {
        self.variables.get_or_make(name, || {
            let variable = send::call_in(self.context, &calls::module_global { module: self.handle, name })?;
            note_variable(variable, self.context).map(|()| variable)
        })
    }

    /// The names of its functions.
    pub fn function_names(&self) -> Result<Vec<String>, CUresult> {
        send::call_in(self.context, &calls::module_function_names { module: self.handle })
    }
}

/// Notes the memory of a variable in a context.
pub(super) fn note_variable((address, size): Variable, context: Handle<Context>) -> Result<(), CUresult> {
    let device = context::state(context)?.device;
    memory::add(address, size as u64, context, device, Origin::Variable)
}
