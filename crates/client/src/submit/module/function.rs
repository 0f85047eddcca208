//! Functions and kernels: their parameters and attributes, and which servers have them.

use super::library_image::LibraryImage;
use super::servers::Servers;
use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::model::handles;
use crate::model::handles::RawHandle as _;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle, Kernel, Kind, Library, Module};
use causeway_api::sys::{CUfunction, CUfunction_attribute, CUkernel, CUresult};
use causeway_api::types::FunctionInfo;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

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

/// Attributes and their values.
type Attributes = Mutex<rank::FunctionAttributes, Vec<(i32, i32)>>;

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
    /// Its attributes now; a kernel and its functions have them together.
    attributes: Arc<Attributes>,
    /// The function of a kernel in each context that asked for it.
    functions: Mutex<rank::KernelFunctions, HashMap<Handle<Context>, Handle<Function>>>,
    /// The image of the library that a kernel is in.
    library: Option<Arc<LibraryImage>>,
    /// The servers that have it.
    servers: Servers,
}

impl handles::Object for FunctionState {
    type Kind = Function;
}

/// The function or kernel that the program passed; the server of the current context has the kernel.
#[inline]
pub fn given_function(raw: CUfunction) -> Result<(Handle<Function>, Arc<FunctionState>), CUresult> {
    let handle = Handle::from_raw(raw);
    let state = handles::kept::<FunctionState>(handle)?;
    state.require_on(handle, context::current_or_none().server())?;
    Ok((handle, state))
}

/// The kernel that the program passed, which a server is to have.
pub fn given_kernel_on(
    raw: CUkernel,
    server: usize,
) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let (kernel, state) = given_kernel(raw)?;
    state.require_on(as_function(kernel), server)?;
    Ok((kernel, state))
}

/// The kernel that the program passed.
pub fn given_kernel(raw: CUkernel) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let handle = Handle::<Kernel>::from_raw(raw);
    if handle.tag() != Kernel::TAG {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    given_function(as_function(handle).as_raw()).map(|(_, state)| (handle, state))
}

/// Kernels and functions are in one table, as the driver takes one for the other.
pub(super) fn as_function(kernel: Handle<Kernel>) -> Handle<Function> {
    Handle::from_value(kernel.value())
}

/// Notes a function that a server has.
pub(super) fn insert_function(handle: Handle<Function>, owner: Owner, server: usize, info: FunctionInfo) {
    let attributes = Arc::new(Mutex::new(info.attributes.clone()));
    insert(handle, owner, None, server, info, attributes);
}

/// Notes a kernel of a library that a server has.
pub(super) fn insert_kernel(
    kernel: Handle<Kernel>,
    library: Handle<Library>,
    image: Arc<LibraryImage>,
    server: usize,
    info: FunctionInfo,
) {
    let attributes = Arc::new(Mutex::new(info.attributes.clone()));
    insert(as_function(kernel), Owner::Library(library), Some(image), server, info, attributes);
}

fn insert(
    handle: Handle<Function>,
    owner: Owner,
    library: Option<Arc<LibraryImage>>,
    server: usize,
    info: FunctionInfo,
    attributes: Arc<Attributes>,
) {
    let state = FunctionState {
        owner,
        name: CString::new(info.name.as_str()).unwrap_or_default(),
        parameter_bytes: info.parameter_bytes(),
        attributes,
        functions: Mutex::default(),
        library,
        servers: Servers::only(server),
        info,
    };
    handles::keep(handle, Arc::new(state));
}

/// A function or kernel goes with what it belongs to; no command frees it, so its slot is not used again.
pub(super) fn forget_function(handle: Handle<Function>) {
    let Some(state) = handles::forget::<FunctionState>(handle) else { return };
    handles::suspend(handle);
    // They are functions, too: without the lock.
    let functions = core::mem::take(&mut *state.functions.lock());
    functions.into_values().for_each(forget_function);
}

/// Forgets the function of a kernel in a context that ends.
pub(super) fn forget_in(kernel: Handle<Kernel>, context: Handle<Context>) {
    let Ok(kernel) = handles::kept::<FunctionState>(as_function(kernel)) else { return };
    let function = kernel.functions.lock().remove(&context);
    function.into_iter().for_each(forget_function);
}

impl FunctionState {
    /// Makes sure that a server has it, if it is a kernel: those belong to no context.
    #[inline]
    fn require_on(&self, handle: Handle<Function>, server: usize) -> Result<(), CUresult> {
        if self.servers.contain(server) { Ok(()) } else { self.find_on(handle, server) }
    }

    #[cold]
    fn find_on(&self, handle: Handle<Function>, server: usize) -> Result<(), CUresult> {
        let (Owner::Library(library), Some(image)) = (self.owner, &self.library) else { return Ok(()) };
        image.require_on(server)?;
        let kernel = Handle::from_value(handle.value());
        let request = calls::library_kernel { kernel, library, name: &self.info.name };
        send::call_in(Handle::null_of(server), &request)?;
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
        send::post_in(context, &calls::kernel_function { function, kernel })?;
        // It is the kernel's code, so all that is known of that holds for it, and what is set of the one is
        // the other's: NCCL asks for functions first, and sets attributes of kernels then.
        let owner = Owner::Kernel(kernel, context);
        insert(function, owner, None, context.server(), self.info.clone(), Arc::clone(&self.attributes));
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
