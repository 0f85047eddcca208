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
use causeway_api::types::{ClusterRules, FunctionInfo};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    attributes: Mutex<rank::FunctionAttributes, Vec<(i32, i32)>>,
    /// Whether it says anything about the clusters of its launches.
    rules_clusters: AtomicBool,
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
pub fn resolve_function(raw: CUfunction) -> Result<(Handle<Function>, Arc<FunctionState>), CUresult> {
    let handle = Handle::from_raw(raw);
    let state = handles::get::<FunctionState>(handle)?;
    state.require_on(handle, context::current_or_none().server())?;
    Ok((handle, state))
}

/// The kernel that the program passed, which a server is to have.
pub fn resolve_kernel_on(
    raw: CUkernel,
    server: usize,
) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let (kernel, state) = resolve_kernel(raw)?;
    state.require_on(as_function(kernel), server)?;
    Ok((kernel, state))
}

/// The kernel that the program passed.
pub fn resolve_kernel(raw: CUkernel) -> Result<(Handle<Kernel>, Arc<FunctionState>), CUresult> {
    let handle = Handle::<Kernel>::from_raw(raw);
    if handle.tag() != Kernel::TAG {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    resolve_function(as_function(handle).as_raw()).map(|(_, state)| (handle, state))
}

/// Kernels and functions are in one table, as the driver takes one for the other.
pub(super) fn as_function(kernel: Handle<Kernel>) -> Handle<Function> {
    Handle::from_value(kernel.value())
}

/// Notes a function that a server has.
pub(super) fn insert_function(handle: Handle<Function>, owner: Owner, server: usize, info: FunctionInfo) {
    insert(handle, owner, None, server, info);
}

/// Notes a kernel of a library that a server has.
pub(super) fn insert_kernel(
    kernel: Handle<Kernel>,
    library: Handle<Library>,
    image: Arc<LibraryImage>,
    server: usize,
    info: FunctionInfo,
) {
    insert(as_function(kernel), Owner::Library(library), Some(image), server, info);
}

fn insert(
    handle: Handle<Function>,
    owner: Owner,
    library: Option<Arc<LibraryImage>>,
    server: usize,
    info: FunctionInfo,
) {
    let state = FunctionState {
        owner,
        name: CString::new(info.name.as_str()).unwrap_or_default(),
        parameter_bytes: info.parameter_bytes(),
        attributes: Mutex::new(info.attributes.clone()),
        rules_clusters: AtomicBool::new(false),
        functions: Mutex::default(),
        library,
        servers: Servers::only(server),
        info,
    };
    state.note_clusters();
    handles::insert(handle, Arc::new(state));
}

/// A function or kernel goes with what it belongs to; no command frees it, so its slot is not used again.
pub(super) fn forget_function(handle: Handle<Function>) {
    let Some(state) = handles::remove::<FunctionState>(handle) else { return };
    handles::suspend(handle);
    // They are functions, too: without the lock.
    let functions = core::mem::take(&mut *state.functions.lock());
    functions.into_values().for_each(forget_function);
}

/// Forgets the function of a kernel in a context that ends.
pub(super) fn forget_in(kernel: Handle<Kernel>, context: Handle<Context>) {
    let Ok(kernel) = handles::get::<FunctionState>(as_function(kernel)) else { return };
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

    /// Notes that the server has set an attribute. What is set of a kernel is set of its functions, too, also of
    /// those that there are already, but not the other way round (NVIDIA's driver 580).
    pub fn note_attribute(&self, attribute: CUfunction_attribute, value: i32) {
        self.note(attribute, value);
        self.functions().iter().for_each(|function| function.note(attribute, value));
    }

    fn note(&self, attribute: CUfunction_attribute, value: i32) {
        let number = attribute.0 as i32;
        let mut attributes = self.attributes.lock();
        match attributes.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known = value,
            None => attributes.push((number, value)),
        }
        drop(attributes);
        self.note_clusters();
    }

    /// What it says about the clusters of its launches.
    pub fn cluster_rules(&self) -> ClusterRules {
        type A = CUfunction_attribute;
        let number = |attribute| self.attribute(attribute).unwrap_or(0).max(0).cast_unsigned();
        ClusterRules {
            required: [
                A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
                A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
                A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
            ]
            .map(number),
            must_be_set: number(A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) != 0,
            allows_non_portable: number(A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) != 0,
        }
    }

    /// Those of a launch in the current context: what is set there of a kernel's function is not set of the kernel.
    pub fn cluster_rules_here(&self) -> ClusterRules {
        self.function_here().map_or_else(|| self.cluster_rules(), |function| function.cluster_rules())
    }

    /// Whether [`Self::cluster_rules`] ask anything of a launch that asks for no clusters.
    pub fn rules_clusters(&self) -> bool {
        self.rules_clusters.load(Relaxed)
    }

    fn note_clusters(&self) {
        let rules = self.cluster_rules();
        self.rules_clusters.store(rules.must_be_set || rules.required != [0; 3], Relaxed);
    }

    /// Whether an attribute has this value, and has it in all functions of a kernel.
    pub fn is_set(&self, attribute: CUfunction_attribute, value: i32) -> bool {
        let has = |state: &Self| state.attribute(attribute) == Some(value);
        has(self) && self.functions().iter().all(|function| has(function))
    }

    /// Whether a launch may have so much dynamic shared memory. A kernel is launched as its function in the
    /// current context, which may have been allowed more.
    pub fn allows_shared(&self, bytes: u32) -> bool {
        const MAX_DYNAMIC_SHARED_BYTES: CUfunction_attribute =
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let allows = |state: &Self| {
            state.attribute(MAX_DYNAMIC_SHARED_BYTES).is_none_or(|limit| i64::from(bytes) <= i64::from(limit))
        };
        allows(self) || self.function_here().is_some_and(|function| allows(&function))
    }

    /// A kernel's functions in the contexts that have asked for them.
    fn functions(&self) -> Vec<Arc<Self>> {
        let functions = self.functions.lock();
        functions.values().filter_map(|function| handles::get(*function).ok()).collect()
    }

    /// The one of the current context.
    fn function_here(&self) -> Option<Arc<Self>> {
        let function = self.functions.lock().get(&context::current_or_none()).copied()?;
        handles::get(function).ok()
    }

    /// Offset and size of a parameter.
    pub fn parameter(&self, index: usize) -> Result<(usize, usize), CUresult> {
        let parameter = self.info.parameters.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        Ok((parameter.offset as usize, parameter.size as usize))
    }
}
