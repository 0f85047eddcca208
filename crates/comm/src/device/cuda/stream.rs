//! Stream of a team's copies.

use core::ffi::c_void;

use super::calls::{Calls, check};
use crate::device::gpu::GpuError;

/// `CU_STREAM_NON_BLOCKING`: nothing of the legacy default stream holds it up.
const NON_BLOCKING: u32 = 1;

/// A stream in front of others: the device has few queues for streams of one priority, and a copy must not
/// stand behind a kernel that waits for it.
#[derive(Debug)]
pub(super) struct Stream {
    calls: &'static Calls,
    handle: u64,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream was made by `new` and nobody has it any more.
        unsafe { (self.calls.destroy_stream)(self.handle()) };
    }
}

impl Stream {
    /// A stream of the calling thread's context.
    pub(super) fn new(calls: &'static Calls) -> Result<Self, GpuError> {
        let (mut min_priority, mut greatest) = (0, 0);
        // SAFETY: there is room for both.
        check("the priorities of streams", unsafe {
            (calls.priorities)(&raw mut min_priority, &raw mut greatest)
        })?;
        let mut stream: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the stream.
        let status = unsafe { (calls.create_stream)(&raw mut stream, NON_BLOCKING, greatest) };
        check("a stream", status)?;
        Ok(Self { calls, handle: stream as u64 })
    }

    /// As the driver knows it.
    pub(super) fn handle(&self) -> *mut c_void {
        self.handle as *mut c_void
    }

    /// Waits for all its work.
    pub(super) fn wait(&self, what: &str) -> Result<(), GpuError> {
        // SAFETY: the stream lives as long as this.
        check(what, unsafe { (self.calls.synchronize)(self.handle()) })
    }

    /// Writes a word behind what the stream has to do.
    pub(super) fn write_value(&self, to: u64, value: u64) -> Result<(), GpuError> {
        // SAFETY: the stream is alive; the driver checks the address.
        check("a word", unsafe { (self.calls.write_value)(self.handle(), to, value, 0) })
    }
}
