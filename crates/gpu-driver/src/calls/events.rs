//! Events of the program.

use crate::driver::Driver;
use causeway_api::handle::{Event, Native, Stream};
use causeway_gpu::CuResult;
use causeway_gpu::calls::EventCalls;

impl EventCalls for Driver {
    fn event_create(&self, flags: u32) -> CuResult<Native<Event>> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuEventCreate(&mut raw, flags)? };
        Ok(Native::from_raw(raw))
    }

    fn event_destroy(&self, event: Native<Event>) -> CuResult<()> {
        self.events.destroy(self.functions, event)
    }

    fn event_record(&self, event: Native<Event>, stream: Native<Stream>, flags: u32) -> CuResult<()> {
        if self.events.is_watched(event) {
            self.waits.keep_record(event);
        }
        // SAFETY: the handles are the driver's own.
        self.events.with_watched(|| unsafe {
            match flags {
                0 => self.functions.cuEventRecord(event.as_raw(), stream.as_raw()),
                _ => self.functions.cuEventRecordWithFlags(event.as_raw(), stream.as_raw(), flags),
            }
        })
    }

    fn event_elapsed(&self, start: Native<Event>, end: Native<Event>) -> CuResult<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: the pointer is to a local, the handles are the driver's own.
        unsafe { self.functions.cuEventElapsedTime(&mut milliseconds, start.as_raw(), end.as_raw())? };
        Ok(milliseconds)
    }
}
