//! Current context of a thread, set and restored.

use core::ffi::c_void;

use super::calls::{Calls, check};
use crate::device::gpu::GpuError;

/// Makes a context the calling thread's, for as long as this lives.
pub(super) struct Entered(&'static Calls);

impl Entered {
    /// Enters it.
    pub(super) fn new(calls: &'static Calls, context: u64) -> Result<Self, GpuError> {
        // SAFETY: the context was current once, or is a device's primary one that was retained.
        check("a context", unsafe { (calls.push_context)(context as *mut c_void) })?;
        Ok(Self(calls))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the context, which this has pushed.
        unsafe { (self.0.pop_context)(&raw mut context) };
    }
}
