//! The functions of the CUDA driver that are measured, from a library loaded at run time.

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};

use causeway_cuda::{CudaError, Library, LibraryError, entry_points};
use thiserror::Error;

/// Why the driver could not be used.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The library cannot be loaded.
    #[error("cannot load the CUDA driver's library {}: {cause}", path.display())]
    Library {
        /// What was asked for.
        path: PathBuf,
        /// What the system's loader answered.
        cause: LibraryError,
    },
    /// NVIDIA's driver was wanted, and Causeway's was found.
    #[error(
        "the library {} is Causeway's own client, not NVIDIA's driver: start without LD_LIBRARY_PATH or LD_PRELOAD pointing \
         at it, or name NVIDIA's library in CAUSEWAY_DRIVER", .0.display()
    )]
    OwnClient(PathBuf),
    /// A call failed.
    #[error("{} returned {} ({})", .0.call, .0.name(), .0.code)]
    Call(#[from] CudaError),
}

/// An object of the driver: a context, a stream, an event, a module or a function.
pub type Handle = *mut c_void;

entry_points! {
    /// The functions, under their exported names.
    #[expect(non_snake_case, reason = "these are the names of the manual of CUDA")]
    pub struct Functions {
        cuInit: c"cuInit" (flags: c_uint);
        cuDriverGetVersion: c"cuDriverGetVersion" (version: *mut c_int);
        cuDeviceGetCount: c"cuDeviceGetCount" (count: *mut c_int);
        cuDeviceGetName: c"cuDeviceGetName" (name: *mut c_char, length: c_int, device: c_int);
        cuDeviceCanAccessPeer: c"cuDeviceCanAccessPeer" (can_access: *mut c_int, device: c_int, peer: c_int);
        cuDevicePrimaryCtxRetain: c"cuDevicePrimaryCtxRetain" (context: *mut Handle, device: c_int);
        cuCtxSetCurrent: c"cuCtxSetCurrent" (context: Handle);
        cuCtxSynchronize: c"cuCtxSynchronize" ();
        cuCtxEnablePeerAccess: c"cuCtxEnablePeerAccess" (peer: Handle, flags: c_uint);
        cuMemAlloc_v2: c"cuMemAlloc_v2" (address: *mut u64, bytes: usize);
        cuMemFree_v2: c"cuMemFree_v2" (address: u64);
        cuMemHostAlloc: c"cuMemHostAlloc" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost: c"cuMemFreeHost" (memory: *mut c_void);
        cuMemsetD8_v2: c"cuMemsetD8_v2" (to: u64, value: u8, bytes: usize);
        cuMemcpyHtoD_v2: c"cuMemcpyHtoD_v2" (to: u64, from: *const c_void, bytes: usize);
        cuMemcpyDtoH_v2: c"cuMemcpyDtoH_v2" (to: *mut c_void, from: u64, bytes: usize);
        cuMemcpyHtoDAsync_v2: c"cuMemcpyHtoDAsync_v2" (
            to: u64, from: *const c_void, bytes: usize, stream: Handle
        );
        cuMemcpyDtoHAsync_v2: c"cuMemcpyDtoHAsync_v2" (
            to: *mut c_void, from: u64, bytes: usize, stream: Handle
        );
        cuMemcpyDtoD_v2: c"cuMemcpyDtoD_v2" (to: u64, from: u64, bytes: usize);
        cuMemcpyPeerAsync: c"cuMemcpyPeerAsync" (
            to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle
        );
        cuModuleLoadData: c"cuModuleLoadData" (module: *mut Handle, image: *const c_void);
        cuModuleUnload: c"cuModuleUnload" (module: Handle);
        cuModuleGetFunction: c"cuModuleGetFunction" (
            function: *mut Handle, module: Handle, name: *const c_char
        );
        cuLaunchKernel: c"cuLaunchKernel" (
            function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: Handle,
            parameters: *mut *mut c_void, extra: *mut *mut c_void
        );
        cuEventCreate: c"cuEventCreate" (event: *mut Handle, flags: c_uint);
        cuEventRecord: c"cuEventRecord" (event: Handle, stream: Handle);
        cuEventSynchronize: c"cuEventSynchronize" (event: Handle);
        cuStreamCreate: c"cuStreamCreate" (stream: *mut Handle, flags: c_uint);
        cuStreamQuery: c"cuStreamQuery" (stream: Handle);
        cuStreamSynchronize: c"cuStreamSynchronize" (stream: Handle);
    }
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
        unsafe { gpu.functions.$name($($argument),*) }.map_err($crate::child::driver::DriverError::from)
    }};
}
pub(crate) use cuda;

impl Gpu {
    /// Loads the library and makes the context of its first device current in this thread. `native` says that
    /// NVIDIA's own driver is wanted.
    ///
    /// # Errors
    /// When there is no such library, or no GPU.
    pub fn open(path: &Path, native: bool) -> Result<Self, DriverError> {
        let unloaded = |cause| DriverError::Library { path: path.to_owned(), cause };
        // SAFETY: it is the CUDA driver or its stand-in; their initialisers may run in any process.
        let library = unsafe { Library::open(path) }.map_err(unloaded)?;
        if native && library.is_client() {
            return Err(DriverError::OwnClient(path.to_owned()));
        }
        let functions = Functions::load(library).map_err(unloaded)?;
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
