//! Libraries, which belong to no context: a server gets one when it is first needed there.

use super::function::{self, as_function, forget_function, insert_kernel};
use super::modules::{self, Variable, insert_module, note_variable};
use crate::locks::{OnceMap, rank};
use crate::model::handles::RawHandle as _;
use crate::model::memory::{self, Origin};
use crate::model::{context, device, handles};
use crate::remote::image::Image;
use crate::remote::{mirrored, session};
use crate::submit::module::image::{ImageLifetime, LibraryImage};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Kernel, Library, Module};
use causeway_api::sys::{CUdevice, CUlibrary, CUresult};
use causeway_api::types::JitOptions;
use std::sync::Arc;

/// What the client keeps of a library.
pub struct LibraryState {
    handle: Handle<Library>,
    kernels: OnceMap<rank::LibraryKernels, String, Handle<Kernel>>,
    /// The library's module in each context that asked for it.
    modules: OnceMap<rank::LibraryModules, Handle<Context>, Handle<Module>>,
    variables: OnceMap<rank::LibraryVariables, (Handle<Context>, String), Variable>,
    /// Its `__managed__` variables, which all contexts share.
    managed: OnceMap<rank::LibraryManaged, String, Variable>,
    /// Which servers have it, and what the others get.
    image: Arc<LibraryImage>,
}

impl handles::Object for LibraryState {
    type Kind = Library;
}

/// Loads a library, which belongs to no context. The server of the current context has it at once. The others
/// get it when they need it, if its bytes stay where they are, and else now, too.
pub fn load_library(
    image: &Image<'_>,
    lifetime: ImageLifetime,
    options: &JitOptions,
) -> Result<Handle<Library>, CUresult> {
    let library = handles::create::<Library>();
    let loaded = LibraryImage::load(library, image, lifetime, options)?;
    let state = LibraryState {
        handle: library,
        kernels: OnceMap::new(),
        modules: OnceMap::new(),
        variables: OnceMap::new(),
        managed: OnceMap::new(),
        image: Arc::new(loaded),
    };
    handles::insert(library, Arc::new(state));
    Ok(library)
}

/// The library that the program passed.
pub fn resolve_library(raw: CUlibrary) -> Result<Arc<LibraryState>, CUresult> {
    handles::get::<LibraryState>(Handle::from_raw(raw))
}

/// Unloads a library.
pub fn unload_library(raw: CUlibrary) -> Result<(), CUresult> {
    let state =
        handles::remove::<LibraryState>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(state.handle);
    // The program's bytes may be gone after this call.
    state.image.wait_for_pending();
    state
        .kernels
        .extract(|_, _| true)
        .into_iter()
        .for_each(|(_, kernel)| forget_function(as_function(kernel)));
    for ((context, _), (address, _)) in state.variables.extract(|_, _| true) {
        memory::forget_variable(context.server(), address);
    }
    for (_, (address, _)) in state.managed.extract(|_, _| true) {
        let _ = memory::remove(address, Origin::ManagedVariable);
        mirrored::forget(address as usize)?;
    }
    state.modules.extract(|_, _| true).into_iter().for_each(|(_, module)| modules::forget(module));
    let mut outcome = Ok(());
    for session in session::all().filter(|session| state.image.is_on(session.server())) {
        let context = context::anywhere_on(session.server());
        outcome = outcome.and(send::post_in(context, &calls::library_unload { library: state.handle }));
    }
    outcome
}

/// Forgets what libraries have in a context that ends.
pub(super) fn context_ends(context: Handle<Context>) {
    for (_, library) in handles::select::<LibraryState>(|_| true) {
        library.modules.extract(|owner, _| *owner == context);
        library.variables.extract(|(owner, _), _| *owner == context);
        for kernel in library.kernels.values() {
            function::forget_in(kernel, context);
        }
    }
}

impl LibraryState {
    /// Makes sure that the server of the current context has it; gives that context, which may be a null one.
    fn here(&self) -> Result<Handle<Context>, CUresult> {
        let context = context::current_or_none();
        self.image.require_on(context.server()).map(|()| context)
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Result<Handle<Kernel>, CUresult> {
        self.kernels.get_or_make(name, || {
            let kernel = handles::create::<Kernel>();
            let request = calls::library_kernel { kernel, library: self.handle, name };
            let context = self.here()?;
            let info = send::call_in(context, &request)?;
            insert_kernel(kernel, self.handle, Arc::clone(&self.image), context.server(), info);
            Ok(kernel)
        })
    }

    /// The names of its kernels.
    pub fn kernel_names(&self) -> Result<Vec<String>, CUresult> {
        let request = calls::library_kernel_names { library: self.handle };
        send::call_in(self.here()?, &request)
    }

    /// Its module in the current context.
    pub fn module(&self) -> Result<Handle<Module>, CUresult> {
        let context = context::current()?;
        self.modules.get_or_make(&context, || {
            self.here()?;
            let module = handles::create::<Module>();
            send::post_in(context, &calls::library_module { module, library: self.handle })?;
            insert_module(module, context);
            Ok(module)
        })
    }

    /// The variable of this name in the current context.
    pub fn variable(&self, name: &str) -> Result<Variable, CUresult> {
        let key = (context::current()?, name.to_owned());
        self.variables.get_or_make(&key, || {
            self.here()?;
            let variable = send::call_in(key.0, &calls::library_global { library: self.handle, name })?;
            note_variable(variable, key.0).map(|()| variable)
        })
    }

    /// The `__managed__` variable of this name.
    pub fn managed_variable(&self, name: &str) -> Result<Variable, CUresult> {
        self.managed.get_or_make(name, || {
            let request = calls::managed_variable { library: self.handle, name };
            let context = self.here()?;
            let (address, size) = send::call_in(context, &request)?;
            mirrored::regions::adopt_variable(context.server(), address, size)?;
            // All devices of the server use it; the first stands for them.
            let nowhere = Handle::null_of(context.server());
            let first = device::all().iter().position(|device| device.server == context.server());
            let first = first.unwrap_or(0) as CUdevice;
            memory::add(address, size as u64, nowhere, first, Origin::ManagedVariable)?;
            Ok((address, size))
        })
    }
}
