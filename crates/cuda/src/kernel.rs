//! Kernels: their text is loaded into a context, and they run in the stream in which copies are made.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;

use super::entry_points::CudaError;
use super::functions::Driver;
use super::scope::Scope;

/// A kernel that a context has loaded, for as long as the context lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(u64);

impl Scope<'_> {
    /// Loads PTX text, and finds its entry of a name.
    ///
    /// # Errors
    /// What the driver says: where it cannot compile the text, or there is no such entry.
    pub fn load(&self, text: &str, entry: &CStr) -> Result<Function, CudaError> {
        let wrong = |_| CudaError { call: "cuModuleLoadData", code: 1 };
        let text = CString::new(text).map_err(wrong)?;
        let mut module: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the handle, and the text ends with a zero.
        unsafe { self.functions().load_module(&raw mut module, text.as_ptr().cast()) }?;
        let mut function: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the handle, the module is loaded, and the name ends with a zero.
        unsafe { self.functions().find_function(&raw mut function, module, entry.as_ptr()) }?;
        Ok(Function(function as u64))
    }

    /// Runs a kernel whose parameters are all of 8 bytes, and waits for its end.
    ///
    /// # Safety
    /// The function has been loaded in this context, takes so many parameters, and stays within memory that is
    /// there and nobody else's.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn launch(
        &self,
        function: Function,
        blocks: u32,
        threads: u32,
        parameters: &[u64],
    ) -> Result<(), CudaError> {
        self.in_stream(|stream| {
            // SAFETY: the caller has loaded the function in this context, passes as many parameters as it
            // takes, and vouches for what it accesses.
            unsafe { self.enqueue(function, stream as u64, [blocks, 1], threads, parameters) }
        })
    }

    /// Puts a kernel whose parameters are all of 8 bytes behind the work of a stream of the context. Where that
    /// is captured the kernel becomes a part of the graph, with these parameters. Blocks are in two dimensions.
    ///
    /// # Safety
    /// The function has been loaded in this context, takes so many parameters, and stays within memory that is
    /// there and nobody else's when it runs.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn enqueue(
        &self,
        function: Function,
        stream: u64,
        blocks: [u32; 2],
        threads: u32,
        parameters: &[u64],
    ) -> Result<(), CudaError> {
        let mut addresses: Vec<*mut c_void> =
            parameters.iter().map(|value| core::ptr::from_ref(value).cast_mut().cast()).collect();
        // SAFETY: the caller has loaded the function in this context, passes as many parameters as it takes,
        // and vouches for what it accesses; the driver copies the parameters
        // before it returns.
        unsafe {
            self.functions().launch(
                function.0 as *mut c_void,
                blocks[0],
                blocks[1],
                1,
                threads,
                1,
                1,
                0,
                stream as *mut c_void,
                addresses.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        }
    }

    /// Waits until what a stream of the context has got so far is done.
    ///
    /// # Errors
    /// What the driver says, also of the work itself.
    pub fn wait_for(&self, stream: u64) -> Result<(), CudaError> {
        // SAFETY: the driver checks the handle.
        unsafe { self.functions().synchronize_stream(stream as *mut c_void) }
    }
}

/// Whether what a stream gets becomes a graph, and does not run now. Default streams are those of the calling
/// thread's context.
///
/// # Errors
/// What the driver says.
pub fn is_captured(driver: &Driver, stream: u64) -> Result<bool, CudaError> {
    let mut is_captured: c_int = 0;
    // SAFETY: the driver checks the handle, and there is room for the answer.
    unsafe { driver.stream_is_capturing(stream as *mut c_void, &raw mut is_captured) }
        .map(|()| is_captured != 0)
}

/// The context of a stream.
///
/// # Errors
/// What the driver says.
pub fn context_of_stream(driver: &Driver, stream: u64) -> Result<u64, CudaError> {
    let mut context: *mut c_void = core::ptr::null_mut();
    // SAFETY: the driver checks the handle, and there is room for the answer.
    unsafe { driver.stream_context(stream as *mut c_void, &raw mut context) }.map(|()| context as u64)
}
