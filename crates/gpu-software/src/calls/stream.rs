//! Streams and events.

use crate::action::Action;
use crate::attributes::PRIORITIES;
use crate::operation::Value;
use crate::stream::StreamKind;
use crate::{SoftwareGpu, handles};
use causeway_api::handle::{Event, Native, Stream};
use causeway_api::sys::{
    CUdeviceptr, CUresult, CUstream_flags, CUstreamBatchMemOpType, CUstreamMemoryBarrier_flags,
};
use causeway_api::types::LaunchAttribute;
use causeway_gpu::CuResult;
use causeway_gpu::calls::{EventCalls, StreamCalls};

impl StreamCalls for SoftwareGpu {
    fn stream_create(&self, flags: u32, priority: i32) -> CuResult<Native<Stream>> {
        let kind = match CUstream_flags(flags) {
            CUstream_flags::CU_STREAM_DEFAULT => StreamKind::Blocking,
            CUstream_flags::CU_STREAM_NON_BLOCKING => StreamKind::NonBlocking,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let context = self.contexts.current()?;
        let stream = handles::next();
        let (lowest, highest) = PRIORITIES;
        self.scheduler.add_stream(stream, &context, kind, priority.clamp(highest, lowest));
        Ok(Native::from_value(stream))
    }

    fn stream_destroy(&self, stream: Native<Stream>) -> CuResult<()> {
        self.scheduler.remove_stream(stream.value())
    }

    fn stream_wait_event(&self, stream: Native<Stream>, event: Native<Event>, flags: u32) -> CuResult<()> {
        self.scheduler.wait_event(self.stream(stream)?, event.value(), flags)
    }

    fn stream_attribute_get(&self, stream: Native<Stream>, attribute: u32) -> CuResult<LaunchAttribute> {
        self.scheduler.attribute(self.stream(stream)?, attribute)
    }

    fn stream_attribute_set(&self, stream: Native<Stream>, attribute: LaunchAttribute) -> CuResult<()> {
        self.scheduler.set_attribute(self.stream(stream)?, attribute)
    }

    fn cuStreamCopyAttributes(&self, destination: Native<Stream>, source: Native<Stream>) -> CuResult<()> {
        self.scheduler.copy_attributes(self.stream(destination)?, self.stream(source)?)
    }

    fn cuStreamWriteValue32_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.write_value(self.stream(stream)?, address, Value::Bits32(value), flags)
    }

    fn cuStreamWriteValue64_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.write_value(self.stream(stream)?, address, Value::Bits64(value), flags)
    }

    /// The operations of a stream are carried out one after the other, and so seen by all later ones: the barrier is one that
    /// has nothing to do.
    fn stream_memory_barrier(&self, stream: Native<Stream>, operation: u32, flags: u32) -> CuResult<()> {
        let is_known = match CUstreamBatchMemOpType(operation) {
            CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER => {
                flags == CUstreamMemoryBarrier_flags::CU_STREAM_MEMORY_BARRIER_TYPE_SYS.0
                    || flags == CUstreamMemoryBarrier_flags::CU_STREAM_MEMORY_BARRIER_TYPE_GPU.0
            }
            CUstreamBatchMemOpType::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => flags == 0,
            _ => false,
        };
        if !is_known {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.scheduler.issue_action(self.stream(stream)?, Action::Pass).map(drop)
    }

    fn cuStreamWaitValue32_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.wait_value(self.stream(stream)?, address, Value::Bits32(value), flags)
    }

    fn cuStreamWaitValue64_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.wait_value(self.stream(stream)?, address, Value::Bits64(value), flags)
    }
}

impl EventCalls for SoftwareGpu {
    fn event_create(&self, flags: u32) -> CuResult<Native<Event>> {
        self.scheduler.create_event(&*self.contexts.current()?, flags).map(Native::from_value)
    }

    fn event_destroy(&self, event: Native<Event>) -> CuResult<()> {
        self.scheduler.destroy_event(event.value())
    }

    fn event_record(&self, event: Native<Event>, stream: Native<Stream>, flags: u32) -> CuResult<()> {
        self.scheduler.record_event(event.value(), self.stream(stream)?, flags)
    }

    fn event_elapsed(&self, start: Native<Event>, end: Native<Event>) -> CuResult<f32> {
        self.contexts.current()?;
        self.scheduler.elapsed(start.value(), end.value())
    }
}
