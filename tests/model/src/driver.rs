//! The part of the CUDA driver API that programs use, found in `libcuda.so.1` when the test runs. Declared here, not by
//! `causeway_cuda`: the test depends on nothing that it tests.

use core::ffi::{c_char, c_int, c_uint, c_void};
use libloading::Library;
use std::path::Path;

/// A handle of the driver: context, module, function, stream, event, graph.
pub type Handle = *mut c_void;
/// An address in device memory, or any address where the entry point tells by itself.
pub type Address = u64;
/// A function that a stream calls on the host.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// The default stream of a thread, as a handle.
pub const PER_THREAD_STREAM: usize = 2;
/// A stream that does not follow the legacy default stream.
pub const NON_BLOCKING: c_uint = 1;
/// An event without a time.
pub const DISABLE_TIMING: c_uint = 2;
/// Host memory locked for all contexts.
pub const PORTABLE: c_uint = 1;
/// Host memory that has a device pointer.
pub const DEVICE_MAP: c_uint = 2;
/// Managed memory for every stream.
pub const ATTACH_GLOBAL: c_uint = 1;
/// A capture that forbids unsafe calls to its own thread only.
pub const CAPTURE_THREAD_LOCAL: c_uint = 1;
/// A wait for a value that is equal.
pub const WAIT_EQUAL: c_uint = 1;
/// What a query says while work is under way.
pub const NOT_READY: c_int = 600;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`: what was asked for is not allowed while a stream is captured.
pub const CAPTURE_UNSUPPORTED: c_int = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`: something that was not allowed has spoilt the capture.
pub const CAPTURE_INVALIDATED: c_int = 901;
/// `CUmemorytype`: the host's.
pub const MEMORY_HOST: c_uint = 1;
/// `CUmemorytype`: a device's.
pub const MEMORY_DEVICE: c_uint = 2;
/// `CUdevice_attribute`: whether `cuMemAllocManaged` works.
pub const ATTRIBUTE_MANAGED: c_int = 83;
/// `CUdevice_attribute`: whether `cuMemAllocAsync` works.
pub const ATTRIBUTE_POOLS: c_int = 115;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of cuda.h")]
pub struct Copy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: Address,
    pub src_array: Handle,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: Address,
    pub dst_array: Handle,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are those of cuda.h")]
pub struct Copy3D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: Address,
    pub src_array: Handle,
    pub reserved0: *mut c_void,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: Address,
    pub dst_array: Handle,
    pub reserved1: *mut c_void,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// A call that failed.
#[derive(Clone, Copy, Debug)]
pub struct Error {
    /// The entry point.
    pub call: &'static str,
    /// Its `CUresult`.
    pub code: c_int,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} gave error {}", self.call, self.code)
    }
}

macro_rules! driver {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The entry points.
        #[expect(non_snake_case, reason = "the names are those of cuda.h")]
        pub struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
            _library: Library,
        }

        #[expect(non_snake_case, reason = "the names are those of cuda.h")]
        impl Driver {
            /// Opens a library.
            pub fn open(path: &Path) -> Result<Self, libloading::Error> {
                // SAFETY: the initialisers of a CUDA driver may run at any time.
                let library = unsafe { Library::new(path) }?;
                Ok(Self {
                    // SAFETY: the types are those of cuda.h for these names.
                    $($name: *unsafe { library.get(stringify!($name)) }?,)*
                    _library: library,
                })
            }

            $(
                /// The entry point of this name.
                ///
                /// # Safety
                /// As cuda.h has it: addresses hold what the call reads and writes until it is done with
                /// them.
                #[allow(clippy::too_many_arguments, reason = "those of cuda.h")]
                pub unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Error> {
                    // SAFETY: the caller passes what `cuda.h` has this function take, with memory that stays
                    // until the call is done with it.
                    match unsafe { (self.$name)($($argument),*) } {
                        0 => Ok(()),
                        code => Err(Error { call: stringify!($name), code }),
                    }
                }
            )*
        }
    };
}

driver! {
    cuInit(flags: c_uint);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut c_int, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    cuCtxSetCurrent(context: Handle);
    cuCtxSynchronize();
    cuModuleLoadData(module: *mut Handle, image: *const c_void);
    cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    cuMemAlloc_v2(address: *mut Address, size: usize);
    cuMemFree_v2(address: Address);
    cuMemAllocAsync(address: *mut Address, size: usize, stream: Handle);
    cuMemFreeAsync(address: Address, stream: Handle);
    cuMemAllocManaged(address: *mut Address, size: usize, flags: c_uint);
    cuMemHostAlloc(address: *mut *mut c_void, size: usize, flags: c_uint);
    cuMemFreeHost(address: *mut c_void);
    cuMemHostGetDevicePointer_v2(address: *mut Address, host: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(address: *mut c_void, size: usize, flags: c_uint);
    cuMemHostUnregister(address: *mut c_void);
    cuMemcpy(to: Address, from: Address, size: usize);
    cuMemcpyAsync(to: Address, from: Address, size: usize, stream: Handle);
    cuMemcpyHtoD_v2(to: Address, from: *const c_void, size: usize);
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, size: usize, stream: Handle);
    cuMemcpyDtoH_v2(to: *mut c_void, from: Address, size: usize);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, size: usize, stream: Handle);
    cuMemcpyDtoD_v2(to: Address, from: Address, size: usize);
    cuMemcpyDtoDAsync_v2(to: Address, from: Address, size: usize, stream: Handle);
    cuMemcpyPeerAsync(to: Address, to_context: Handle, from: Address, from_context: Handle, size: usize, stream: Handle);
    cuMemcpy2D_v2(copy: *const Copy2D);
    cuMemcpy2DAsync_v2(copy: *const Copy2D, stream: Handle);
    cuMemcpy3D_v2(copy: *const Copy3D);
    cuMemcpy3DAsync_v2(copy: *const Copy3D, stream: Handle);
    cuMemsetD8_v2(to: Address, value: u8, count: usize);
    cuMemsetD8Async(to: Address, value: u8, count: usize, stream: Handle);
    cuMemsetD32_v2(to: Address, value: c_uint, count: usize);
    cuMemsetD32Async(to: Address, value: c_uint, count: usize, stream: Handle);
    cuMemsetD2D8_v2(to: Address, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async(to: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
    cuMemsetD2D32_v2(to: Address, pitch: usize, value: c_uint, width: usize, height: usize);
    cuMemsetD2D32Async(to: Address, pitch: usize, value: c_uint, width: usize, height: usize, stream: Handle);
    cuStreamCreate(stream: *mut Handle, flags: c_uint);
    cuStreamDestroy_v2(stream: Handle);
    cuStreamSynchronize(stream: Handle);
    cuStreamQuery(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    cuStreamWaitValue32_v2(stream: Handle, address: Address, value: c_uint, flags: c_uint);
    cuStreamWriteValue32_v2(stream: Handle, address: Address, value: c_uint, flags: c_uint);
    cuEventCreate(event: *mut Handle, flags: c_uint);
    cuEventDestroy_v2(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventSynchronize(event: Handle);
    cuEventQuery(event: Handle);
    cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuLaunchHostFunc(stream: Handle, function: HostFunction, data: *mut c_void);
    cuStreamBeginCapture_v2(stream: Handle, mode: c_uint);
    cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, flags: u64);
    cuGraphLaunch(executable: Handle, stream: Handle);
    cuGraphExecDestroy(executable: Handle);
    cuGraphDestroy(graph: Handle);
}
