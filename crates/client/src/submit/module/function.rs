//! Functions and kernels: their parameters and attributes, and which servers have them.

use crate::locks::{Mutex, rank};
use crate::model::handles::RawHandle as _;
use crate::model::{context, handles};
use crate::submit::module::image::{LibraryImage, Servers};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle, Kernel, Kind, Library, Module};
use causeway_api::sys::{CUdevice, CUfunction, CUfunction_attribute, CUkernel, CUresult};
use causeway_api::types::{ClusterRules, FunctionInfo};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// No device's number: what is set of a function holds wherever its context is.
const ANY_DEVICE: CUdevice = -1;

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
    /// The context whose functions can be launched there alone; null for a kernel, which is of no context.
    pub context: Handle<Context>,
    /// Whose turn it is to change attributes without waiting for the server.
    changes: Mutex<rank::FunctionChanges, ()>,
    /// What the program has set of its attributes: device, attribute and value.
    set: Mutex<rank::FunctionAttributes, Vec<(CUdevice, i32, i32)>>,
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
pub(super) fn insert_function(
    handle: Handle<Function>,
    owner: Owner,
    context: Handle<Context>,
    info: FunctionInfo,
) {
    insert(handle, owner, None, context, context.server(), info);
}

/// Notes a kernel of a library that a server has.
pub(super) fn insert_kernel(
    kernel: Handle<Kernel>,
    library: Handle<Library>,
    image: Arc<LibraryImage>,
    server: usize,
    info: FunctionInfo,
) {
    insert(as_function(kernel), Owner::Library(library), Some(image), Handle::NULL, server, info);
}

fn insert(
    handle: Handle<Function>,
    owner: Owner,
    library: Option<Arc<LibraryImage>>,
    context: Handle<Context>,
    server: usize,
    info: FunctionInfo,
) {
    let state = FunctionState {
        owner,
        name: CString::new(info.name.as_str()).unwrap_or_default(),
        parameter_bytes: info.parameter_bytes(),
        context,
        changes: Mutex::default(),
        set: Mutex::default(),
        rules_clusters: AtomicBool::new(false),
        functions: Mutex::default(),
        library,
        servers: Servers::only(server),
        info,
    };
    state.note_clusters(ANY_DEVICE);
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
        let attributes = self.attributes_on(context::state(context)?.device);
        let info = FunctionInfo { attributes, ..self.info.clone() };
        insert_function(function, Owner::Kernel(kernel, context), context, info);
        functions.insert(context, function);
        Ok(function)
    }

    /// The value of an attribute on a device.
    #[inline]
    pub fn attribute(&self, attribute: CUfunction_attribute, device: CUdevice) -> Option<i32> {
        let number = attribute.0 as i32;
        let device = self.device_of_settings(device);
        let set = self.set.lock();
        let changed = set.iter().find(|(on, known, _)| (*on, *known) == (device, number));
        let value = changed.map(|(_, _, value)| *value);
        drop(set);
        value.or_else(|| {
            self.info.attributes.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
        })
    }

    /// All of them, with their values.
    fn attributes_on(&self, device: CUdevice) -> Vec<(i32, i32)> {
        let mut attributes = self.info.attributes.clone();
        let device = self.device_of_settings(device);
        for (_, number, value) in self.set.lock().iter().filter(|(on, _, _)| *on == device) {
            match attributes.iter_mut().find(|(known, _)| known == number) {
                Some((_, known)) => *known = *value,
                None => attributes.push((*number, *value)),
            }
        }
        attributes
    }

    /// The device under which its settings are noted: a kernel has its own on each device, while a function is
    /// of one context.
    fn device_of_settings(&self, device: CUdevice) -> CUdevice {
        if self.context.is_null() { device } else { ANY_DEVICE }
    }

    /// Runs `change`, which posts a change of an attribute and notes it, while no other thread does: else the
    /// later of two changes at the server need not be the one that is noted.
    pub fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let _changes = self.changes.lock();
        change()
    }

    /// Notes that the server has set an attribute. What is set of a kernel is set of its functions on that device,
    /// also of those that exist already, but not the other way round (NVIDIA's driver 580).
    pub fn note_attribute(&self, attribute: CUfunction_attribute, device: CUdevice, value: i32) {
        self.note(attribute, device, value);
        self.functions_on(device).iter().for_each(|function| function.note(attribute, device, value));
    }

    fn note(&self, attribute: CUfunction_attribute, device: CUdevice, value: i32) {
        let (number, on) = (attribute.0 as i32, self.device_of_settings(device));
        let mut set = self.set.lock();
        match set.iter_mut().find(|(noted, known, _)| (*noted, *known) == (on, number)) {
            Some((_, _, known)) => *known = value,
            None => set.push((on, number, value)),
        }
        drop(set);
        self.note_clusters(device);
    }

    /// What it says about the clusters of its launches.
    pub fn cluster_rules(&self, device: CUdevice) -> ClusterRules {
        type A = CUfunction_attribute;
        let number = |attribute| self.attribute(attribute, device).unwrap_or(0).max(0).cast_unsigned();
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
    pub fn cluster_rules_here(&self, device: CUdevice) -> ClusterRules {
        self.function_here()
            .map_or_else(|| self.cluster_rules(device), |function| function.cluster_rules(device))
    }

    /// Whether [`Self::cluster_rules`] may ask anything of a launch that asks for no clusters, on any device.
    pub fn rules_clusters(&self) -> bool {
        self.rules_clusters.load(Relaxed)
    }

    fn note_clusters(&self, device: CUdevice) {
        let rules = self.cluster_rules(device);
        self.rules_clusters.fetch_or(rules.must_be_set || rules.required != [0; 3], Relaxed);
    }

    /// Whether an attribute has this value on a device, and has it in all functions of a kernel there.
    pub fn is_set(&self, attribute: CUfunction_attribute, device: CUdevice, value: i32) -> bool {
        let has = |state: &Self| state.attribute(attribute, device) == Some(value);
        has(self) && self.functions_on(device).iter().all(|function| has(function))
    }

    /// Whether a launch may have so much dynamic shared memory. A kernel is launched as its function in the
    /// current context, which may have been allowed more.
    pub fn allows_shared(&self, bytes: u32, device: CUdevice) -> bool {
        const MAX_DYNAMIC_SHARED_BYTES: CUfunction_attribute =
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let allows = |state: &Self| {
            let limit = state.attribute(MAX_DYNAMIC_SHARED_BYTES, device);
            limit.is_none_or(|limit| i64::from(bytes) <= i64::from(limit))
        };
        allows(self) || self.function_here().is_some_and(|function| allows(&function))
    }

    /// A kernel's functions in the contexts of a device that have asked for them.
    fn functions_on(&self, device: CUdevice) -> Vec<Arc<Self>> {
        let functions: Vec<_> =
            self.functions.lock().iter().map(|(context, function)| (*context, *function)).collect();
        let is_there = |context| context::state(context).is_ok_and(|state| state.device == device);
        let of_device = functions.into_iter().filter(|(context, _)| is_there(*context));
        of_device.filter_map(|(_, function)| handles::get(function).ok()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: CUfunction_attribute =
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    const MUST_BE_SET: CUfunction_attribute =
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;

    fn inserted(owner: Owner, context: Handle<Context>) -> Arc<FunctionState> {
        let handle = handles::create::<Function>();
        let attributes = vec![(SHARED.0 as i32, 100)];
        let info = FunctionInfo { attributes, ..FunctionInfo::default() };
        insert(handle, owner, None, context, 0, info);
        handles::get::<FunctionState>(handle).unwrap()
    }

    #[test]
    fn kernel_has_its_attributes_on_each_device() {
        let kernel = inserted(Owner::Library(Handle::NULL), Handle::NULL);
        let on = |device| kernel.attribute(SHARED, device);
        kernel.note_attribute(SHARED, 0, 300);
        kernel.note_attribute(SHARED, 1, 200);
        assert_eq!([on(0), on(1), on(2)], [Some(300), Some(200), Some(100)]);
        assert!(kernel.is_set(SHARED, 0, 300) && !kernel.is_set(SHARED, 1, 300));
        assert!(
            kernel.allows_shared(300, 0) && !kernel.allows_shared(201, 1) && !kernel.allows_shared(101, 2)
        );
        assert_eq!(kernel.attributes_on(1), [(SHARED.0 as i32, 200)]);
        kernel.note_attribute(MUST_BE_SET, 1, 1);
        assert!(kernel.rules_clusters() && kernel.cluster_rules(1).must_be_set);
        assert!(!kernel.cluster_rules(0).must_be_set);
    }

    #[test]
    fn function_of_a_context_has_one_value_of_an_attribute() {
        let function = inserted(Owner::Module(Handle::NULL), Handle::new(904, 1));
        function.note_attribute(SHARED, 1, 300);
        assert_eq!([0, 1].map(|device| function.attribute(SHARED, device)), [Some(300); 2]);
    }
}
