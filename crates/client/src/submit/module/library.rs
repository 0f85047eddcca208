//! Libraries, which belong to no context: a server gets one when it is first needed there.

use super::function::{self, Owner, as_function, forget_function, insert_function};
use super::load::{Keeper, offer};
use super::servers::Servers;
use super::{Variable, insert_module, note_variable};
use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::model::device;
use crate::model::handles::RawHandle as _;
use crate::model::handles::{self, Registry};
use crate::model::memory::{self, Origin};
use crate::remote::image::Image;
use crate::remote::image::offers::Offer;
use crate::remote::session::{self, Session};
use crate::remote::visible;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Kernel, Library, Module};
use causeway_api::sys::{CUdevice, CUlibrary, CUresult};
use causeway_api::types::JitOptions;
use std::collections::HashMap;
use std::sync::Arc;

/// What the client keeps of a library.
pub struct LibraryState {
    handle: Handle<Library>,
    kernels: Mutex<rank::LibraryKernels, HashMap<String, Handle<Kernel>>>,
    /// The library's module in each context that asked for it.
    modules: Mutex<rank::LibraryModules, HashMap<Handle<Context>, Handle<Module>>>,
    variables: Mutex<rank::LibraryVariables, HashMap<(Handle<Context>, String), Variable>>,
    /// Its `__managed__` variables, which all contexts share.
    managed: Mutex<rank::LibraryManaged, HashMap<String, Variable>>,
    /// The servers that have it.
    servers: Servers,
    /// Address and length of its image, when the program leaves it where it is until the library is unloaded.
    preserved: Option<(usize, usize)>,
    /// How it is compiled.
    options: JitOptions,
    /// The offers of its image, when the program has lent the bytes until the library is unloaded.
    lent: Mutex<rank::LibraryImages, Vec<Offer>>,
}

static LIBRARIES: Registry<Library, LibraryState> = Registry::new();

/// Loads a library, which belongs to no context. The server of the current context has it at once. The others
/// get it when they need it, if its bytes stay where they are, and else now, too.
pub fn load_library(
    image: &Image<'_>,
    keeper: Keeper,
    options: &JitOptions,
) -> Result<Handle<Library>, CUresult> {
    let library = handles::create::<Library>();
    let home = session::current()?;
    let lent = load_on(home, library, image, keeper, options)?;
    let state = LibraryState {
        handle: library,
        servers: Servers::only(home.server()),
        preserved: match (keeper, image) {
            (Keeper::Program, Image::Single(bytes)) => Some((bytes.as_ptr() as usize, bytes.len())),
            _ => None,
        },
        options: JitOptions { report: 0, ..options.clone() },
        kernels: Mutex::default(),
        modules: Mutex::default(),
        variables: Mutex::default(),
        managed: Mutex::default(),
        lent: Mutex::new(lent.into_iter().collect()),
    };
    if state.preserved.is_none() {
        for session in session::all().filter(|session| !state.servers.contain(session.server())) {
            // A server that cannot have it says so when the library is used there.
            let _ = state.load_on(session, image, Keeper::Nobody);
        }
    }
    LIBRARIES.insert(library, Arc::new(state));
    Ok(library)
}

/// Loads a library on one server; gives the offer of its image if the bytes must stay beyond the call.
fn load_on(
    session: &Session,
    library: Handle<Library>,
    image: &Image<'_>,
    keeper: Keeper,
    options: &JitOptions,
) -> Result<Option<Offer>, CUresult> {
    let context = context::anywhere_on(session.server());
    offer(session, image, keeper, options, |payload, posted| {
        let form = image.form().number();
        let request = calls::library_load { library, form, options: options.clone(), image: payload };
        if posted { send::post_in(context, &request) } else { send::call_in(context, &request) }
    })
}

/// The library that the program passed.
pub fn given_library(raw: CUlibrary) -> Result<Arc<LibraryState>, CUresult> {
    LIBRARIES.get(Handle::from_raw(raw))
}

/// Makes sure that a server has a library.
pub(super) fn require_on(library: Handle<Library>, server: usize) -> Result<(), CUresult> {
    LIBRARIES.get(library)?.require_on(server)
}

/// Unloads a library.
pub fn unload_library(raw: CUlibrary) -> Result<(), CUresult> {
    let state = LIBRARIES.remove(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(state.handle);
    // The program's bytes may be gone after this call.
    state.lent.lock().drain(..).for_each(|offer| offer.wait());
    state.kernels.lock().drain().for_each(|(_, kernel)| forget_function(as_function(kernel)));
    for ((context, _), (address, _)) in state.variables.lock().drain() {
        memory::forget_variable(context.server(), address);
    }
    for (_, (address, _)) in state.managed.lock().drain() {
        let _ = memory::remove(address, Origin::ManagedVariable);
        visible::forget(address as usize)?;
    }
    state.modules.lock().drain().for_each(|(_, module)| super::forget(module));
    let mut outcome = Ok(());
    for session in session::all().filter(|session| state.servers.contain(session.server())) {
        let context = context::anywhere_on(session.server());
        outcome = outcome.and(send::post_in(context, &calls::library_unload { library: state.handle }));
    }
    outcome
}

/// Forgets what libraries have in a context that ends.
pub(super) fn context_ends(context: Handle<Context>) {
    for (_, library) in LIBRARIES.select(|_| true) {
        library.modules.lock().remove(&context);
        library.variables.lock().retain(|(owner, _), _| *owner != context);
        for kernel in library.kernels.lock().values() {
            function::forget_in(*kernel, context);
        }
    }
}

impl LibraryState {
    /// Makes sure that the server of the current context has it; gives that context, which may be a null one.
    fn here(&self) -> Result<Handle<Context>, CUresult> {
        let context = context::current_or_none();
        self.require_on(context.server()).map(|()| context)
    }

    /// Makes sure that a server has it.
    fn require_on(&self, server: usize) -> Result<(), CUresult> {
        if self.servers.contain(server) {
            return Ok(());
        }
        let (address, length) = self.preserved.ok_or(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)?;
        // SAFETY: the program has promised that its image stays as it is until the library is unloaded.
        let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, length) };
        self.load_on(session::with(server)?, &Image::Single(bytes), Keeper::Program)
    }

    fn load_on(&self, session: &Session, image: &Image<'_>, keeper: Keeper) -> Result<(), CUresult> {
        let mut lent = self.lent.lock();
        // Another thread may have been faster.
        if !self.servers.contain(session.server()) {
            lent.extend(load_on(session, self.handle, image, keeper, &self.options)?);
            self.servers.add(session.server());
        }
        Ok(())
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Result<Handle<Kernel>, CUresult> {
        let mut kernels = self.kernels.lock();
        if let Some(kernel) = kernels.get(name) {
            return Ok(*kernel);
        }
        let kernel = handles::create::<Kernel>();
        let request = calls::library_kernel { kernel, library: self.handle, name };
        let context = self.here()?;
        let info = send::call_in(context, &request)?;
        insert_function(as_function(kernel), Owner::Library(self.handle), context.server(), info);
        kernels.insert(name.to_owned(), kernel);
        Ok(kernel)
    }

    /// The names of its kernels.
    pub fn kernel_names(&self) -> Result<Vec<String>, CUresult> {
        let request = calls::library_kernel_names { library: self.handle };
        send::call_in(self.here()?, &request)
    }

    /// Its module in the current context.
    pub fn module(&self) -> Result<Handle<Module>, CUresult> {
        let context = context::current()?;
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context) {
            return Ok(*module);
        }
        self.here()?;
        let module = handles::create::<Module>();
        send::post_in(context, &calls::library_module { module, library: self.handle })?;
        insert_module(module, context);
        modules.insert(context, module);
        Ok(module)
    }

    /// The variable of this name in the current context.
    pub fn variable(&self, name: &str) -> Result<Variable, CUresult> {
        let key = (context::current()?, name.to_owned());
        let mut variables = self.variables.lock();
        if let Some(variable) = variables.get(&key) {
            return Ok(*variable);
        }
        self.here()?;
        let variable = send::call_in(key.0, &calls::library_global { library: self.handle, name })?;
        note_variable(variable, key.0)?;
        variables.insert(key, variable);
        Ok(variable)
    }

    /// The `__managed__` variable of this name.
    pub fn managed_variable(&self, name: &str) -> Result<Variable, CUresult> {
        let mut managed = self.managed.lock();
        if let Some(variable) = managed.get(name) {
            return Ok(*variable);
        }
        let request = calls::managed_variable { library: self.handle, name };
        let context = self.here()?;
        let (address, size) = send::call_in(context, &request)?;
        visible::variable::adopt(context.server(), address, size)?;
        // All devices of the server use it; the first stands for them.
        let nowhere = Handle::null_of(context.server());
        let first = device::all().iter().position(|device| device.server == context.server());
        let first = first.unwrap_or(0) as CUdevice;
        memory::add(address, size as u64, nowhere, first, Origin::ManagedVariable)?;
        managed.insert(name.to_owned(), (address, size));
        Ok((address, size))
    }
}
