//! The driver's log.

use crate::driver::Driver;
use causeway_api::sys::CUlogIterator;
use causeway_gpu::CuResult;
use causeway_gpu::calls::LogCalls;

/// The longest piece of the log that is asked for at once; the driver keeps about a hundred lines.
const MAX_LOG_BYTES: usize = 1 << 20;

impl LogCalls for Driver {
    causeway_api_macros::driver_calls!(log);

    /// The log from `start` on, at most `size` bytes, and where it goes on.
    fn logs_dump(&self, start: Option<&CUlogIterator>, size: usize) -> CuResult<(Vec<u8>, CUlogIterator)> {
        let mut text = vec![0; size.min(MAX_LOG_BYTES)];
        let (mut length, mut next) = (text.len(), start.copied().unwrap_or_default());
        let iterator = if start.is_some() { &raw mut next } else { core::ptr::null_mut() };
        // SAFETY: the buffer has `length` bytes; the driver writes no more and says how many.
        unsafe {
            self.functions.cuLogsDumpToMemory(iterator, text.as_mut_ptr().cast(), &mut length, 0)?;
        }
        text.truncate(length);
        Ok((text, next))
    }
}
