//! The few driver functions that are measured, from the client library loaded at run time.

use core::ffi::{c_char, c_int, c_uint, c_void};
use libloading::Library;
use std::path::Path;
use thiserror::Error;

/// Why something could not be measured.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The library cannot be loaded.
    #[error("the client library cannot be loaded: {0}")]
    Library(#[from] libloading::Error),
    /// A call failed.
    #[error("{call} returned the CUDA error {code}")]
    Call {
        /// The function.
        call: &'static str,
        /// Its `CUresult`.
        code: c_int,
    },
}

type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions by their types in `cuda.h`.
        #[derive(Debug)]
        struct Functions { $($field: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Functions {
            /// # Safety
            /// The library's functions must have the types of those of `cuda.h`.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller vouches for the types.
                Ok(unsafe { Self { $($field: *library.get($symbol)?,)* } })
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    retain_context = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    set_context = "cuCtxSetCurrent" (Handle);
    synchronize = "cuCtxSynchronize" ();
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2" (*mut u64, usize);
    free = "cuMemFree_v2" (u64);
    allocate_host = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    free_host = "cuMemFreeHost" (*mut c_void);
    fill = "cuMemsetD8Async" (u64, u8, usize, Handle);
    copy_to_device = "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    copy_from_device = "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    load_module = "cuModuleLoadData" (*mut Handle, *const c_void);
    get_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel" (
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut Handle, *mut Handle
    );
    create_event = "cuEventCreate" (*mut Handle, c_uint);
    record_event = "cuEventRecord" (Handle, Handle);
}

/// The client library. It is never unloaded.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
}

/// A device with its context current in the thread that made this.
#[derive(Debug)]
pub struct Context {
    functions: Functions,
    /// Not to be sent to another thread, in which the context would not be current.
    _thread: core::marker::PhantomData<Handle>,
}

/// Runs a driver call; its result says what it was when it fails.
macro_rules! call {
    ($functions:expr, $field:ident ( $($argument:expr),* )) => {{
        // SAFETY: the arguments have the types of `cuda.h`, and pointers among them are valid for the call.
        let code = unsafe { ($functions.$field)($($argument),*) };
        if code == 0 { Ok(()) } else { Err(DriverError::Call { call: stringify!($field), code }) }
    }};
}

/// A kernel that does nothing.
const EMPTY_KERNEL: &core::ffi::CStr =
    c".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

impl Driver {
    /// Loads the library.
    pub fn load(path: &Path) -> Result<Self, DriverError> {
        // SAFETY: it is the driver's stand-in, which expects nothing of the process that loads it, and whose functions have
        // the types of those of the driver.
        let functions = unsafe {
            let library = Library::new(path)?;
            let functions = Functions::find(&library)?;
            core::mem::forget(library);
            functions
        };
        Ok(Self { functions })
    }

    /// Connects to the server and makes the context of its first device current.
    pub fn open_first_device(self) -> Result<Context, DriverError> {
        let functions = self.functions;
        let mut context = core::ptr::null_mut();
        call!(functions, init(0))?;
        call!(functions, retain_context(&mut context, 0))?;
        call!(functions, set_context(context))?;
        Ok(Context { functions, _thread: core::marker::PhantomData })
    }
}

/// A function of a module.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(Handle);

/// An event.
#[derive(Debug, Clone, Copy)]
pub struct Event(Handle);

impl Context {
    /// The device's name.
    pub fn device_name(&self) -> Result<String, DriverError> {
        let mut name = [0_u8; 256];
        call!(self.functions, device_name(name.as_mut_ptr().cast(), name.len() as c_int, 0))?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Waits for everything.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        call!(self.functions, synchronize())
    }

    /// Asks for the device's free memory.
    pub fn free_memory(&self) -> Result<usize, DriverError> {
        let (mut free, mut total) = (0, 0);
        call!(self.functions, memory_info(&mut free, &mut total)).map(|()| free)
    }

    /// Allocates memory on the device.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceMemory<'_>, DriverError> {
        let mut address = 0;
        call!(self.functions, allocate(&mut address, bytes))?;
        Ok(DeviceMemory { context: self, address, bytes })
    }

    /// Allocates pinned memory.
    pub fn allocate_pinned(&self, bytes: usize) -> Result<PinnedMemory<'_>, DriverError> {
        let mut address = core::ptr::null_mut();
        call!(self.functions, allocate_host(&mut address, bytes, 0))?;
        // SAFETY: the driver gave this much memory.
        unsafe { core::ptr::write_bytes(address.cast::<u8>(), 1, bytes) };
        Ok(PinnedMemory { context: self, address, bytes })
    }

    /// A kernel that does nothing.
    pub fn empty_kernel(&self) -> Result<Kernel, DriverError> {
        let (mut module, mut function) = (core::ptr::null_mut(), core::ptr::null_mut());
        call!(self.functions, load_module(&mut module, EMPTY_KERNEL.as_ptr().cast()))?;
        call!(self.functions, get_function(&mut function, module, c"empty".as_ptr()))?;
        Ok(Kernel(function))
    }

    /// Launches a kernel without arguments, with one thread.
    pub fn launch(&self, kernel: Kernel) -> Result<(), DriverError> {
        let null = core::ptr::null_mut();
        call!(
            self.functions,
            launch(kernel.0, 1, 1, 1, 1, 1, 1, 0, null, core::ptr::null_mut(), core::ptr::null_mut())
        )
    }

    /// Makes an event.
    pub fn event(&self) -> Result<Event, DriverError> {
        let mut event = core::ptr::null_mut();
        call!(self.functions, create_event(&mut event, 0)).map(|()| Event(event))
    }

    /// Records an event in the default stream.
    pub fn record(&self, event: Event) -> Result<(), DriverError> {
        call!(self.functions, record_event(event.0, core::ptr::null_mut()))
    }
}

/// Memory on the device.
#[derive(Debug)]
pub struct DeviceMemory<'a> {
    context: &'a Context,
    address: u64,
    bytes: usize,
}

impl DeviceMemory<'_> {
    /// Sets the first `bytes` to a value, without waiting.
    pub fn fill(&self, value: u8, bytes: usize) -> Result<(), DriverError> {
        assert!(bytes <= self.bytes);
        call!(self.context.functions, fill(self.address, value, bytes, core::ptr::null_mut()))
    }

    /// Copies from the host to the front of this memory.
    pub fn copy_from(&self, source: &[u8]) -> Result<(), DriverError> {
        assert!(source.len() <= self.bytes);
        call!(self.context.functions, copy_to_device(self.address, source.as_ptr().cast(), source.len()))
    }

    /// Copies the front of this memory to the host.
    pub fn copy_to(&self, destination: &mut [u8]) -> Result<(), DriverError> {
        assert!(destination.len() <= self.bytes);
        let (start, length) = (destination.as_mut_ptr().cast(), destination.len());
        call!(self.context.functions, copy_from_device(start, self.address, length))
    }
}

impl Drop for DeviceMemory<'_> {
    fn drop(&mut self) {
        // A failure has nobody to be told to, and the memory goes with the session anyway.
        let _ = call!(self.context.functions, free(self.address));
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct PinnedMemory<'a> {
    context: &'a Context,
    address: *mut c_void,
    bytes: usize,
}

impl PinnedMemory<'_> {
    /// The memory.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the driver gave this much memory, it has been written, and it is borrowed from its only owner.
        unsafe { core::slice::from_raw_parts_mut(self.address.cast(), self.bytes) }
    }
}

impl Drop for PinnedMemory<'_> {
    fn drop(&mut self) {
        // A failure has nobody to be told to, and the memory goes with the process anyway.
        let _ = call!(self.context.functions, free_host(self.address));
    }
}
