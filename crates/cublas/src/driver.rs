//! Functions of the CUDA driver that are used.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

use causeway_api::sys::CUDA_MEMCPY2D;
use causeway_cuda::{CudaError, Library, entry_points};

use crate::status::{Done, Status};

entry_points! {
    /// See the module.
    pub struct Functions {
        initialize: c"cuInit" (flags: c_uint);
        current_context: c"cuCtxGetCurrent" (context: *mut *mut c_void);
        device: c"cuDeviceGet" (device: *mut c_int, ordinal: c_int);
        retain_context: c"cuDevicePrimaryCtxRetain" (context: *mut *mut c_void, device: c_int);
        set_context: c"cuCtxSetCurrent" (context: *mut c_void);
        load_library: c"cuLibraryLoadData" (
            library: *mut *mut c_void, code: *const c_char, jit_options: *mut c_void, jit_values: *mut c_void,
            jit_count: c_uint, options: *mut c_void, values: *mut c_void, count: c_uint
        );
        find_kernel: c"cuLibraryGetKernel" (kernel: *mut *mut c_void, library: *mut c_void, name: *const c_char);
        launch_kernel: c"cuLaunchKernel" (
            function: *mut c_void, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
            block_z: c_uint, shared_bytes: c_uint, stream: *mut c_void, parameters: *mut *mut c_void,
            extra: *mut *mut c_void
        );
        allocate_memory: c"cuMemAlloc_v2" (address: *mut u64, bytes: usize);
        free_memory: c"cuMemFree_v2" (address: u64);
        copy_async: c"cuMemcpyDtoHAsync_v2" (to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void);
        synchronize: c"cuStreamSynchronize" (stream: *mut c_void);
        copy_rectangles: c"cuMemcpy2DAsync_v2" (copy: *const CUDA_MEMCPY2D, stream: *mut c_void);
    }
}

/// The driver that the program uses; it is loaded if the program has not done that yet.
pub fn functions() -> Result<&'static Functions, Status> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    // SAFETY: what the driver does when it is loaded is its own affair, as in every CUDA program.
    let load = || Functions::load(unsafe { Library::open("libcuda.so.1") }.ok()?).ok();
    FUNCTIONS.get_or_init(load).as_ref().ok_or(Status::NotInitialized)
}

impl From<CudaError> for Status {
    fn from(error: CudaError) -> Self {
        match error.code {
            // CUDA_ERROR_INVALID_VALUE
            1 => Self::InvalidValue,
            // CUDA_ERROR_OUT_OF_MEMORY
            2 => Self::AllocFailed,
            // CUDA_ERROR_NOT_INITIALIZED, _DEINITIALIZED, _NO_DEVICE
            3 | 4 | 100 => Self::NotInitialized,
            _ => Self::ExecutionFailed,
        }
    }
}

impl Functions {
    /// Makes sure that this thread has a context: as with the runtime, the primary one of the first device if
    /// the program has chosen none.
    pub fn have_context(&self) -> Done {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for what the calls write.
        unsafe {
            self.initialize(0)?;
            self.current_context(&raw mut context)?;
            if !context.is_null() {
                return Ok(());
            }
            let mut device = 0;
            self.device(&raw mut device, 0)?;
            self.retain_context(&raw mut context, device)?;
            Ok(self.set_context(context)?)
        }
    }

    /// Loads PTX for every context, and finds its kernels.
    pub fn load_kernels(&self, text: &CStr, entries: &[CString]) -> Result<Vec<usize>, Status> {
        let (mut library, none): (_, *mut c_void) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: there is room for the handle, the text ends with a zero, and there are no options.
        unsafe { self.load_library(&raw mut library, text.as_ptr(), none, none, 0, none, none, 0) }?;
        let mut kernels = Vec::new();
        for entry in entries {
            let mut kernel = core::ptr::null_mut();
            // SAFETY: there is room for the handle, and the name ends with a zero.
            unsafe { self.find_kernel(&raw mut kernel, library, entry.as_ptr()) }?;
            kernels.push(kernel as usize);
        }
        Ok(kernels)
    }

    /// Launches a kernel with one parameter, in blocks of one thread.
    ///
    /// # Safety
    /// The kernel takes one parameter of this type.
    pub unsafe fn launch<T>(&self, kernel: usize, blocks: u32, stream: usize, parameter: &T) -> Done {
        let mut parameters = [core::ptr::from_ref(parameter).cast_mut().cast::<c_void>()];
        let none = core::ptr::null_mut();
        let (kernel, stream) = (kernel as *mut c_void, stream as *mut c_void);
        let parameters = parameters.as_mut_ptr();
        // SAFETY: the caller's kernel takes one parameter of this type; the driver copies it before it
        // returns, and checks the stream.
        Ok(unsafe { self.launch_kernel(kernel, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, none) }?)
    }

    /// Device memory.
    pub fn allocate(&self, size: usize) -> Result<u64, Status> {
        let mut address = 0;
        // SAFETY: there is room for the address.
        unsafe { self.allocate_memory(&raw mut address, size) }?;
        Ok(address)
    }

    /// Gives device memory back.
    pub fn free(&self, address: u64) {
        // SAFETY: plain numbers, which the driver checks. Where the context has ended, so has the memory.
        let _ = unsafe { self.free_memory(address) };
    }

    /// Waits for a stream's work, and then copies from device memory.
    ///
    /// # Safety
    /// There is room for so many bytes.
    pub unsafe fn copy_to_host(&self, to: *mut c_void, from: u64, size: usize, stream: usize) -> Done {
        // SAFETY: the caller has room for `size` bytes at `to` until this returns, which is after the copy.
        unsafe {
            self.copy_async(to, from, size, stream as *mut c_void)?;
            Ok(self.synchronize(stream as *mut c_void)?)
        }
    }

    /// Copies a rectangle; waits for it, if `waits`.
    ///
    /// # Safety
    /// Host memory that it names is there until the copy has ended.
    pub unsafe fn copy(&self, copy: &CUDA_MEMCPY2D, stream: usize, waits: bool) -> Done {
        // SAFETY: the caller keeps host memory that the description names until the copy has ended.
        unsafe {
            self.copy_rectangles(copy, stream as *mut c_void)?;
            if waits {
                self.synchronize(stream as *mut c_void)?;
            }
            Ok(())
        }
    }
}
