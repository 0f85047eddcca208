//! Streams and events, and what can be set for a stream.

use causeway_api::handle::{Event, Native, Stream};
use causeway_api::sys::{
    CUlaunchAttributeID, CUlaunchAttributeValue, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};
use causeway_api::types::LaunchAttribute;
use causeway_gpu::CuResult;
use causeway_gpu::calls::{EventCalls, StreamCalls};

use crate::calls::launch::{attribute, is_plain};
use crate::context;
use crate::driver::Driver;

impl StreamCalls for Driver {
    causeway_api_macros::driver_calls!(stream);

    fn stream_create(&self, flags: u32, priority: i32) -> CuResult<Native<Stream>> {
        let context = context::current(self.functions)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuStreamCreateWithPriority(&mut raw, flags, priority)? };
        let stream = Native::from_raw(raw);
        self.streams.add(stream, context);
        Ok(stream)
    }

    fn stream_destroy(&self, stream: Native<Stream>) -> CuResult<()> {
        self.streams.remove(stream);
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuStreamDestroy_v2(stream.as_raw()) }
    }

    fn stream_wait_event(&self, stream: Native<Stream>, event: Native<Event>, flags: u32) -> CuResult<()> {
        // SAFETY: the handles are the driver's own.
        unsafe { self.functions.cuStreamWaitEvent(stream.as_raw(), event.as_raw(), flags) }
    }

    fn stream_attribute_get(&self, stream: Native<Stream>, id: u32) -> CuResult<LaunchAttribute> {
        if !is_plain(id) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut value = CUlaunchAttributeValue::default();
        // SAFETY: the value is a local with room for any attribute.
        unsafe {
            self.functions.cuStreamGetAttribute(stream.as_raw(), CUlaunchAttributeID(id), &mut value)?;
        }
        // SAFETY: every byte of the union belongs to its `pad`, and any byte is a valid number.
        Ok(LaunchAttribute { id, value: unsafe { value.pad }.map(|byte| byte as u8) })
    }

    fn stream_attribute_set(&self, stream: Native<Stream>, wanted: LaunchAttribute) -> CuResult<()> {
        let wanted = attribute(&wanted)?;
        // SAFETY: the value is a local, and the attribute one without handles or addresses of the program.
        unsafe { self.functions.cuStreamSetAttribute(stream.as_raw(), wanted.id, &wanted.value) }
    }

    /// A barrier between the stream's memory operations, or the completion of writes from other devices.
    fn stream_memory_barrier(&self, stream: Native<Stream>, operation: u32, flags: u32) -> CuResult<()> {
        let mut params = CUstreamBatchMemOpParams::default();
        match CUstreamBatchMemOpType(operation) {
            kind @ CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER => {
                params.memoryBarrier.operation = kind;
                params.memoryBarrier.flags = flags;
            }
            kind @ CUstreamBatchMemOpType::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                params.flushRemoteWrites.operation = kind;
                params.flushRemoteWrites.flags = flags;
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        // SAFETY: a list of one, which the driver reads during the call.
        unsafe { self.functions.cuStreamBatchMemOp_v2(stream.as_raw(), 1, &params, 0) }
    }
}

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
