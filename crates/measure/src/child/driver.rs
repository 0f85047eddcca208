//! The functions of the CUDA driver that are measured, from a library loaded at run time.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;
use thiserror::Error;

/// What Causeway's own client library exports, so that it is not taken for the driver it stands in for.
const CLIENT_MARKER: &[u8] = b"causeway_client_marker";

/// Why the driver could not be used.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The library cannot be loaded.
    #[error("cannot load the CUDA driver's library {}: {}", path.display(), loader_text(cause))]
    Library {
        /// What was asked for.
        path: PathBuf,
        /// What the system's loader answered.
        cause: libloading::Error,
    },
    /// NVIDIA's driver was wanted, and Causeway's was found.
    #[error(
        "the library {} is Causeway's own client, not NVIDIA's driver: start without LD_LIBRARY_PATH or LD_PRELOAD pointing \
         at it, or name NVIDIA's library in CAUSEWAY_DRIVER", .0.display()
    )]
    OwnClient(PathBuf),
    /// A call failed.
    #[error("{call} returned {name} ({code})")]
    Call {
        /// The function.
        call: &'static str,
        /// Its `CUresult`.
        code: c_int,
        /// The name of that number.
        name: String,
    },
}

/// What the system's loader said, which `libloading` keeps behind its own words.
fn loader_text(error: &libloading::Error) -> String {
    core::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// An object of the driver: a context, a stream, an event, a module or a function.
pub type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident ($($argument:ty),*);)*) => {
        /// The functions by their types in `cuda.h`, under their exported names.
        #[derive(Debug)]
        #[allow(non_snake_case, missing_docs, reason = "these are the names of the manual of CUDA")]
        pub struct Functions { $(pub $name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        impl Functions {
            /// # Safety
            /// The library's functions must have the types of those of `cuda.h`.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller vouches that the library's functions have the types of `cuda.h`, which
                // are those of the fields.
                Ok(unsafe { Self { $($name: *library.get(stringify!($name))?,)* } })
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuCtxSetCurrent(Handle);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(Handle, c_uint);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemFree_v2(u64);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemsetD8_v2(u64, u8, usize);
    cuMemcpyHtoD_v2(u64, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, u64, usize);
    cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Handle);
    cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Handle);
    cuMemcpyDtoD_v2(u64, u64, usize);
    cuMemcpyPeerAsync(u64, Handle, u64, Handle, usize, Handle);
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleUnload(Handle);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    cuEventCreate(*mut Handle, c_uint);
    cuEventRecord(Handle, Handle);
    cuEventSynchronize(Handle);
    cuStreamCreate(*mut Handle, c_uint);
    cuStreamQuery(Handle);
    cuStreamSynchronize(Handle);
}

/// A driver that runs, with the context of its first device current in the thread that made this. It is never
/// unloaded, since drivers keep threads of their own.
#[derive(Debug)]
pub struct Gpu {
    /// For the macro `cuda!`.
    pub functions: Functions,
    /// The library that was asked for.
    pub library: PathBuf,
    /// The context of the first device.
    pub context: Handle,
    /// The stream in which asynchronous work is done.
    pub stream: Handle,
}

/// Calls a function of the driver through a [`Gpu`]; a result other than success becomes an error that names
/// the function.
macro_rules! cuda {
    ($gpu:expr, $name:ident ( $($argument:expr),* $(,)? )) => {{
        let gpu: &$crate::child::driver::Gpu = $gpu;
        // SAFETY: the arguments have the types of `cuda.h`; pointers among them are valid for the call, and
        // for the time of the copy where that goes on after the call, since buffers are freed only after a
        // wait.
        let code = unsafe { (gpu.functions.$name)($($argument),*) };
        gpu.functions.outcome(stringify!($name), code)
    }};
}
pub(crate) use cuda;

impl Functions {
    /// The result of a call.
    pub fn outcome(&self, call: &'static str, code: c_int) -> Result<(), DriverError> {
        if code == 0 { Ok(()) } else { Err(DriverError::Call { call, code, name: self.error_name(code) }) }
    }

    fn error_name(&self, code: c_int) -> String {
        let mut name = core::ptr::null();
        // SAFETY: the function writes the address of a constant string, or leaves or clears the pointer.
        let found = unsafe { (self.cuGetErrorName)(code, &mut name) } == 0 && !name.is_null();
        if !found {
            return "an unknown error".to_owned();
        }
        // SAFETY: the driver's names of errors are constant strings.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Gpu {
    /// Loads the library and makes the context of its first device current in this thread. `native` says that
    /// NVIDIA's own driver is wanted.
    ///
    /// # Errors
    /// When there is no such library, or no GPU.
    pub fn open(path: &Path, native: bool) -> Result<Self, DriverError> {
        let unloaded = |cause| DriverError::Library { path: path.to_owned(), cause };
        // SAFETY: it is the CUDA driver or its stand-in; their initialisers may run in any process.
        let library = unsafe { Library::new(path) }.map_err(unloaded)?;
        // SAFETY: the symbol is looked for, never used.
        if native && unsafe { library.get::<*const ()>(CLIENT_MARKER) }.is_ok() {
            return Err(DriverError::OwnClient(path.to_owned()));
        }
        // SAFETY: a CUDA driver library exports these names with the types of `cuda.h`.
        let functions = unsafe { Functions::find(&library) }.map_err(unloaded)?;
        core::mem::forget(library);
        let null = core::ptr::null_mut();
        let mut gpu = Self { functions, library: path.to_owned(), context: null, stream: null };
        cuda!(&gpu, cuInit(0))?;
        gpu.context = gpu.retain_context(0)?;
        gpu.enter(gpu.context)?;
        let mut stream = null;
        // 1: the stream does not wait for the default one.
        cuda!(&gpu, cuStreamCreate(&mut stream, 1))?;
        gpu.stream = stream;
        Ok(gpu)
    }

    /// How many devices there are.
    pub fn devices(&self) -> Result<usize, DriverError> {
        let mut count = 0;
        cuda!(self, cuDeviceGetCount(&mut count))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The driver's CUDA version, such as 13000.
    pub fn version(&self) -> Result<i32, DriverError> {
        let mut version = 0;
        cuda!(self, cuDriverGetVersion(&mut version))?;
        Ok(version)
    }

    /// The first device's name.
    pub fn device_name(&self) -> Result<String, DriverError> {
        let mut name = [0_u8; 256];
        // The last byte stays 0.
        cuda!(self, cuDeviceGetName(name.as_mut_ptr().cast(), 255, 0))?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// The primary context of a device; it lives as long as this process.
    pub fn retain_context(&self, device: c_int) -> Result<Handle, DriverError> {
        let mut context = core::ptr::null_mut();
        cuda!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        Ok(context)
    }

    /// Makes a context current in this thread.
    pub fn enter(&self, context: Handle) -> Result<(), DriverError> {
        cuda!(self, cuCtxSetCurrent(context))
    }

    /// Waits for everything in the current context.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        cuda!(self, cuCtxSynchronize())
    }
}
