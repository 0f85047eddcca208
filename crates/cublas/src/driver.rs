//! Functions of the CUDA driver that are used.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

use causeway_cuda::entry_points;

use crate::status::{Done, Status};

entry_points! {
    /// See the module.
    pub struct Functions {
        initialize: c"cuInit" (c_uint);
        current_context: c"cuCtxGetCurrent" (*mut *mut c_void);
        device: c"cuDeviceGet" (*mut c_int, c_int);
        retain_context: c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
        set_context: c"cuCtxSetCurrent" (*mut c_void);
        load_library: c"cuLibraryLoadData" (
            *mut *mut c_void, *const c_char, *mut c_void, *mut c_void, c_uint, *mut c_void, *mut c_void,
            c_uint
        );
        find_kernel: c"cuLibraryGetKernel" (*mut *mut c_void, *mut c_void, *const c_char);
        launch: c"cuLaunchKernel" (
            *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
            *mut *mut c_void,
            *mut *mut c_void
        );
        allocate: c"cuMemAlloc_v2" (*mut u64, usize);
        free: c"cuMemFree_v2" (u64);
        copy_to_host: c"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, *mut c_void);
        synchronize: c"cuStreamSynchronize" (*mut c_void);
        copy_rectangles: c"cuMemcpy2DAsync_v2" (*const Copy2d, *mut c_void);
    }
}

/// `CUDA_MEMCPY2D`
#[derive(Debug, Default)]
#[repr(C)]
pub struct Copy2d {
    pub source_x: usize,
    pub source_y: usize,
    pub source_type: u64,
    pub source_host: usize,
    pub source_device: u64,
    pub source_array: usize,
    pub source_pitch: usize,
    pub destination_x: usize,
    pub destination_y: usize,
    pub destination_type: u64,
    pub destination_host: usize,
    pub destination_device: u64,
    pub destination_array: usize,
    pub destination_pitch: usize,
    pub width: usize,
    pub height: usize,
}

/// The driver that the program uses; it is loaded if the program has not done that yet.
pub fn functions() -> Result<&'static Functions, Status> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let load = || {
        // SAFETY: the name ends with a zero. The library stays loaded, as it does in every CUDA program.
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        Functions::load()
    };
    FUNCTIONS.get_or_init(load).as_ref().ok_or(Status::NotInitialized)
}

/// What the driver's result means here.
fn check(result: c_int) -> Done {
    match result {
        0 => Ok(()),
        // CUDA_ERROR_INVALID_VALUE
        1 => Err(Status::InvalidValue),
        // CUDA_ERROR_OUT_OF_MEMORY
        2 => Err(Status::AllocFailed),
        // CUDA_ERROR_NOT_INITIALIZED, _DEINITIALIZED, _NO_DEVICE
        3 | 4 | 100 => Err(Status::NotInitialized),
        _ => Err(Status::ExecutionFailed),
    }
}

impl Functions {
    /// Makes sure that this thread has a context: as with the runtime, the primary one of the first device if
    /// the program has chosen none.
    pub fn have_context(&self) -> Done {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for what the calls write.
        unsafe {
            check((self.initialize)(0))?;
            check((self.current_context)(&raw mut context))?;
            if !context.is_null() {
                return Ok(());
            }
            let mut device = 0;
            check((self.device)(&raw mut device, 0))?;
            check((self.retain_context)(&raw mut context, device))?;
            check((self.set_context)(context))
        }
    }

    /// Loads PTX for every context, and finds its kernels.
    pub fn load_kernels(&self, text: &CStr, entries: &[CString]) -> Result<Vec<usize>, Status> {
        let (mut library, none): (_, *mut c_void) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: there is room for the handle, the text ends with a zero, and there are no options.
        let result =
            unsafe { (self.load_library)(&raw mut library, text.as_ptr(), none, none, 0, none, none, 0) };
        check(result)?;
        let mut kernels = Vec::new();
        for entry in entries {
            let mut kernel = core::ptr::null_mut();
            // SAFETY: there is room for the handle, and the name ends with a zero.
            check(unsafe { (self.find_kernel)(&raw mut kernel, library, entry.as_ptr()) })?;
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
        // SAFETY: the caller's kernel takes one parameter of this type; the driver copies it before it
        // returns, and checks the stream.
        check(unsafe {
            (self.launch)(kernel, blocks, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none)
        })
    }

    /// Device memory.
    pub fn allocate(&self, size: usize) -> Result<u64, Status> {
        let mut address = 0;
        // SAFETY: there is room for the address.
        check(unsafe { (self.allocate)(&raw mut address, size) })?;
        Ok(address)
    }

    /// Gives device memory back.
    pub fn free(&self, address: u64) {
        // SAFETY: plain numbers, which the driver checks. Where the context has ended, so has the memory.
        unsafe { (self.free)(address) };
    }

    /// Waits for a stream's work, and then copies from device memory.
    ///
    /// # Safety
    /// There is room for so many bytes.
    pub unsafe fn copy_to_host(&self, to: *mut c_void, from: u64, size: usize, stream: usize) -> Done {
        // SAFETY: the caller has room for `size` bytes at `to` until this returns, which is after the copy.
        unsafe {
            check((self.copy_to_host)(to, from, size, stream as *mut c_void))?;
            check((self.synchronize)(stream as *mut c_void))
        }
    }

    /// Copies a rectangle; waits for it, if `waits`.
    ///
    /// # Safety
    /// Host memory that it names is there until the copy has ended.
    pub unsafe fn copy(&self, copy: &Copy2d, stream: usize, waits: bool) -> Done {
        // SAFETY: the caller keeps host memory that the description names until the copy has ended.
        unsafe {
            check((self.copy_rectangles)(copy, stream as *mut c_void))?;
            if waits { check((self.synchronize)(stream as *mut c_void)) } else { Ok(()) }
        }
    }
}
