//! Modules, libraries and what is in them: functions, kernels, variables.
//!
//! The layout of a function's parameters and its attributes come with its handle, so launching it and asking about
//! it need no round trip. A function is asked for once a module, however often the program does.

use crate::context;
use crate::device;
use crate::handles::{self, Registry};
use crate::image::Image;
use crate::image::offers::{self, Offer};
use crate::image::suits;
use crate::memory::{self, Origin};
use crate::session::{self, Session};
use crate::visible;
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle, Kernel, Kind, Library, Module};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute, CUlibrary, CUmodule, CUresult,
};
use causeway_api::types::{FunctionInfo, JitOptions, Payload};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A variable of a module: address and size.
pub type Variable = (CUdeviceptr, usize);

/// What the client keeps of a module.
pub struct ModuleState {
    handle: Handle<Module>,
    context: Handle<Context>,
    functions: Mutex<HashMap<String, Handle<Function>>>,
    variables: Mutex<HashMap<String, Variable>>,
}

/// What the client keeps of a library.
pub struct LibraryState {
    handle: Handle<Library>,
    kernels: Mutex<HashMap<String, Handle<Kernel>>>,
    /// The library's module in each context that asked for it.
    modules: Mutex<HashMap<Handle<Context>, Handle<Module>>>,
    variables: Mutex<HashMap<(Handle<Context>, String), Variable>>,
    /// Its `__managed__` variables, which all contexts share.
    managed: Mutex<HashMap<String, Variable>>,
    /// The servers that have it.
    servers: Servers,
    /// Address and length of its image, when the program leaves it where it is until the library is unloaded.
    preserved: Option<(usize, usize)>,
    /// How it is compiled.
    options: JitOptions,
    /// The offers of its image, when the program has lent the bytes until the library is unloaded.
    lent: Mutex<Vec<Offer>>,
}

/// Some of the program's servers.
#[derive(Default)]
struct Servers(AtomicU32);

impl Servers {
    fn only(server: usize) -> Self {
        Self(AtomicU32::new(1 << server))
    }

    #[inline]
    fn contain(&self, server: usize) -> bool {
        self.0.load(Ordering::Acquire) & 1 << server != 0
    }

    fn add(&self, server: usize) {
        self.0.fetch_or(1 << server, Ordering::AcqRel);
    }
}

/// What a function belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A function of a module.
    Module(Handle<Module>),
    /// A kernel of a library.
    Library(Handle<Library>),
    /// The function of a kernel in a context.
    Kernel(Handle<Kernel>, Handle<Context>),
}

/// What the client keeps of a function or kernel.
pub struct FunctionState {
    /// What it belongs to.
    pub owner: Owner,
    /// Its layout and the attributes that it had when it was asked for.
    pub info: FunctionInfo,
    /// Its name for C.
    pub name: CString,
    /// Bytes of its parameter buffer.
    pub parameter_bytes: usize,
    /// Its attributes now.
    attributes: Mutex<Vec<(i32, i32)>>,
    /// The function of a kernel in each context that asked for it.
    functions: Mutex<HashMap<Handle<Context>, Handle<Function>>>,
    /// The servers that have it.
    servers: Servers,
}

static MODULES: Registry<Module, ModuleState> = Registry::new();
static LIBRARIES: Registry<Library, LibraryState> = Registry::new();
/// Functions and kernels: the driver takes one for the other.
static FUNCTIONS: Registry<Function, FunctionState> = Registry::new();

/// Who keeps the bytes of an image after the call that loads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeper {
    /// Nobody: they may be gone when the call returns.
    Nobody,
    /// The program, until it unloads what was made of them (`CU_LIBRARY_BINARY_IS_PRESERVED`).
    Program,
}

/// Offers an image to a server and lets `send` send the command that loads it, posted or waiting. The load is posted
/// when its outcome is certain and the program does not ask what the compiler said. Returns the offer if the bytes
/// must stay beyond the call.
fn offer(
    session: &Session,
    image: &Image<'_>,
    keeper: Keeper,
    options: &JitOptions,
    send: impl FnOnce(Payload<'_>, bool) -> Result<(), CUresult>,
) -> Result<Option<Offer>, CUresult> {
    /// Copying a larger image costs more than waiting for the server's word that it has it.
    const MOST_COPIED: usize = 1 << 20;
    let posted = options.report == 0 && suits::all_devices(session, image);
    let lent = keeper == Keeper::Program && matches!(image, Image::Single(_));
    let kept = posted && !lent && image.bytes().len() <= MOST_COPIED;
    let server = session.server();
    let offer = if kept { offers::keep(server, image) } else { offers::lend(server, image) };
    let sent = send(offer.payload(), posted);
    if sent.is_err() || !posted {
        offer.withdraw();
        return sent.map(|()| None);
    }
    if lent {
        return Ok(Some(offer));
    }
    if !kept {
        offer.wait();
    }
    Ok(None)
}

/// Loads a module into the current context.
pub fn load(image: &Image<'_>, options: &JitOptions) -> Result<Handle<Module>, CUresult> {
    let context = context::current()?;
    let module = handles::create::<Module>();
    offer(session::of(context)?, image, Keeper::Nobody, options, |payload, posted| {
        let form = image.form().number();
        let request = calls::module_load { module, form, options: options.clone(), image: payload };
        if posted { session::post_in(context, &request) } else { session::call_in(context, &request) }
    })?;
    insert_module(module, context);
    Ok(module)
}

fn insert_module(handle: Handle<Module>, context: Handle<Context>) {
    let functions = Mutex::default();
    MODULES.insert(handle, Arc::new(ModuleState { handle, context, functions, variables: Mutex::default() }));
}

/// Loads a library, which belongs to no context. The server of the current context has it at once. The others get it
/// when they need it, if its bytes stay where they are, and else now, too.
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
        if posted { session::post_in(context, &request) } else { session::call_in(context, &request) }
    })
}

/// The module that the program passed.
pub fn given(raw: CUmodule) -> Result<Arc<ModuleState>, CUresult> {
    MODULES.get(Handle::from_raw(raw))
}

/// The library that the program passed.
pub fn given_library(raw: CUlibrary) -> Result<Arc<LibraryState>, CUresult> {
    LIBRARIES.get(Handle::from_raw(raw))
}

/// The function or kernel that the program passed; the server of the current context has the kernel.
#[inline]
pub fn given_function(raw: CUfunction) -> Result<(Handle<Function>, Arc<FunctionState>), CUresult> {
    let handle = Handle::from_raw(raw);
    let state = FUNCTIONS.get(handle)?;
    state.require_on(handle, context::current_or_none().server())?;
    Ok((handle, state))
}

/// The kernel that the program passed, which a server is to have.
pub fn given_kernel_on(
    raw: causeway_api::sys::CUkernel,
    server: usize,
) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let (kernel, state) = given_kernel(raw)?;
    state.require_on(as_function(kernel), server)?;
    Ok((kernel, state))
}

/// The kernel that the program passed.
pub fn given_kernel(
    raw: causeway_api::sys::CUkernel,
) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let handle = Handle::<Kernel>::from_raw(raw);
    if handle.tag() != Kernel::TAG {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    given_function(as_function(handle).as_raw()).map(|(_, state)| (handle, state))
}

fn as_function(kernel: Handle<Kernel>) -> Handle<Function> {
    Handle::from_value(kernel.value())
}

fn insert_function(handle: Handle<Function>, owner: Owner, server: usize, info: FunctionInfo) {
    let state = FunctionState {
        owner,
        name: CString::new(info.name.as_str()).unwrap_or_default(),
        parameter_bytes: info.parameter_bytes(),
        attributes: Mutex::new(info.attributes.clone()),
        functions: Mutex::default(),
        servers: Servers::only(server),
        info,
    };
    FUNCTIONS.insert(handle, Arc::new(state));
}

/// A function or kernel goes with what it belongs to; no command frees it, so its slot is not used again.
fn forget_function(handle: Handle<Function>) {
    let Some(state) = FUNCTIONS.remove(handle) else { return };
    handles::suspend(handle);
    for (_, function) in state.functions.lock().drain() {
        forget_function(function);
    }
}

/// Unloads a module.
pub fn unload(raw: CUmodule) -> Result<(), CUresult> {
    let state = MODULES.remove(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(state.handle);
    forget_contents(&state);
    session::post_in(state.context, &calls::module_unload { module: state.handle })
}

fn forget_contents(state: &ModuleState) {
    state.functions.lock().drain().for_each(|(_, function)| forget_function(function));
    let server = state.context.server();
    state.variables.lock().drain().for_each(|(_, (address, _))| memory::forget_variable(server, address));
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
    for (_, module) in state.modules.lock().drain() {
        if let Some(module) = MODULES.remove(module) {
            handles::suspend(module.handle);
            forget_contents(&module);
        }
    }
    let mut outcome = Ok(());
    for session in session::all().filter(|session| state.servers.contain(session.server())) {
        let context = context::anywhere_on(session.server());
        outcome = outcome.and(session::post_in(context, &calls::library_unload { library: state.handle }));
    }
    outcome
}

/// Forgets what a context that ends had loaded.
pub fn context_ends(context: Handle<Context>) {
    for (handle, module) in MODULES.select(|module| module.context == context) {
        MODULES.remove(handle);
        handles::suspend(handle);
        forget_contents(&module);
    }
    for (_, library) in LIBRARIES.select(|_| true) {
        library.modules.lock().remove(&context);
        library.variables.lock().retain(|(owner, _), _| *owner != context);
        for kernel in library.kernels.lock().values() {
            let Ok(kernel) = FUNCTIONS.get(as_function(*kernel)) else { continue };
            let function = kernel.functions.lock().remove(&context);
            function.into_iter().for_each(forget_function);
        }
    }
}

impl ModuleState {
    /// The function of this name.
    pub fn function(&self, name: &str) -> Result<Handle<Function>, CUresult> {
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        let function = handles::create::<Function>();
        let info =
            session::call_in(self.context, &calls::module_function { function, module: self.handle, name })?;
        insert_function(function, Owner::Module(self.handle), self.context.server(), info);
        functions.insert(name.to_owned(), function);
        Ok(function)
    }

    /// The variable of this name.
    pub fn variable(&self, name: &str) -> Result<Variable, CUresult> {
        let mut variables = self.variables.lock();
        if let Some(variable) = variables.get(name) {
            return Ok(*variable);
        }
        let variable = session::call_in(self.context, &calls::module_global { module: self.handle, name })?;
        note_variable(variable, self.context)?;
        variables.insert(name.to_owned(), variable);
        Ok(variable)
    }

    /// The names of its functions.
    pub fn function_names(&self) -> Result<Vec<String>, CUresult> {
        session::call_in(self.context, &calls::module_function_names { module: self.handle })
    }
}

fn note_variable((address, size): Variable, context: Handle<Context>) -> Result<(), CUresult> {
    let device = context::state(context)?.device;
    memory::add(address, size as u64, context, device, Origin::Variable)
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
        let info = session::call_in(context, &request)?;
        insert_function(as_function(kernel), Owner::Library(self.handle), context.server(), info);
        kernels.insert(name.to_owned(), kernel);
        Ok(kernel)
    }

    /// The names of its kernels.
    pub fn kernel_names(&self) -> Result<Vec<String>, CUresult> {
        let request = calls::library_kernel_names { library: self.handle };
        session::call_in(self.here()?, &request)
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
        session::post_in(context, &calls::library_module { module, library: self.handle })?;
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
        let variable = session::call_in(key.0, &calls::library_global { library: self.handle, name })?;
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
        let (address, size) = session::call_in(context, &request)?;
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

impl FunctionState {
    /// Makes sure that a server has it, if it is a kernel: those belong to no context.
    #[inline]
    fn require_on(&self, handle: Handle<Function>, server: usize) -> Result<(), CUresult> {
        if self.servers.contain(server) { Ok(()) } else { self.find_on(handle, server) }
    }

    #[cold]
    fn find_on(&self, handle: Handle<Function>, server: usize) -> Result<(), CUresult> {
        let Owner::Library(library) = self.owner else { return Ok(()) };
        LIBRARIES.get(library)?.require_on(server)?;
        let kernel = Handle::from_value(handle.value());
        let request = calls::library_kernel { kernel, library, name: &self.info.name };
        session::call_in(Handle::null_of(server), &request)?;
        self.servers.add(server);
        Ok(())
    }

    /// The function of a kernel in the current context.
    pub fn function_of(&self, kernel: Handle<Kernel>) -> Result<Handle<Function>, CUresult> {
        let context = context::current()?;
        let mut functions = self.functions.lock();
        if let Some(function) = functions.get(&context) {
            return Ok(*function);
        }
        let function = handles::create::<Function>();
        session::post_in(context, &calls::kernel_function { function, kernel })?;
        // It is the kernel's code, so all that is known of that holds for it.
        let info = FunctionInfo { attributes: self.attributes.lock().clone(), ..self.info.clone() };
        insert_function(function, Owner::Kernel(kernel, context), context.server(), info);
        functions.insert(context, function);
        Ok(function)
    }

    /// The value of an attribute.
    #[inline]
    pub fn attribute(&self, attribute: CUfunction_attribute) -> Option<i32> {
        let attributes = self.attributes.lock();
        attributes.iter().find(|(number, _)| *number == attribute.0 as i32).map(|(_, value)| *value)
    }

    /// Notes that the server has set an attribute.
    pub fn note_attribute(&self, attribute: CUfunction_attribute, value: i32) {
        let number = attribute.0 as i32;
        let mut attributes = self.attributes.lock();
        match attributes.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = value,
            None => attributes.push((number, value)),
        }
    }

    /// Offset and size of a parameter.
    pub fn parameter(&self, index: usize) -> Result<(usize, usize), CUresult> {
        let parameter = self.info.parameters.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok((parameter.offset as usize, parameter.size as usize))
    }
}
