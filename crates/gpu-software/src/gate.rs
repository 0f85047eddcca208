//! Stops in streams that are opened from outside: gates, and values in memory.

use super::action::Action;
use super::operation::{Comparison, Condition, Operation, Value};
use super::region;
use super::scheduler::Scheduler;
use crate::handles::StreamId;
use causeway_api::sys::{CUresult, CUstreamWaitValue_flags, CUstreamWriteValue_flags};
use causeway_api::types::Region;
use causeway_gpu::{CuResult, Gate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};

/// The key of a gate.
struct StreamGate {
    scheduler: Arc<Scheduler>,
    stream: StreamId,
    open: Arc<AtomicBool>,
}

impl Gate for StreamGate {
    fn open(self: Box<Self>) {
        drop(self);
    }
}

impl Drop for StreamGate {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        self.open.store(true, Release);
        state.wake(self.stream);
        self.scheduler.call_threads(&mut state);
    }
}

impl Scheduler {
    /// Stops a stream until the gate is opened; calls `reached` when the stream gets there.
    pub(super) fn gate(
        self: &Arc<Self>,
        stream: StreamId,
        reached: Box<dyn FnOnce() + Send>,
    ) -> CuResult<Box<dyn Gate>> {
        let open = Arc::new(AtomicBool::new(false));
        let action = Action::Gate { reached: Some(reached), open: Arc::clone(&open) };
        self.issue_action(stream, action)?;
        Ok(Box::new(StreamGate { scheduler: Arc::clone(self), stream, open }))
    }

    /// Stops a stream until memory at `address` compares with `value` as the flags say.
    pub(super) fn wait_value(
        self: &Arc<Self>,
        stream: StreamId,
        address: u64,
        value: Value,
        flags: u32,
    ) -> CuResult<()> {
        let condition = self.condition(address, value, flags)?;
        self.issue_action(stream, Action::WaitValue(condition)).map(drop)
    }

    /// What a wait with these flags waits for.
    pub(super) fn condition(&self, address: u64, value: Value, flags: u32) -> CuResult<Condition> {
        type Flags = CUstreamWaitValue_flags;
        // Remote writes that a flush would order do not exist here, so that flag asks for nothing.
        let comparison = match CUstreamWaitValue_flags(flags & !Flags::CU_STREAM_WAIT_VALUE_FLUSH.0) {
            Flags::CU_STREAM_WAIT_VALUE_GEQ => Comparison::GreaterOrEqual,
            Flags::CU_STREAM_WAIT_VALUE_EQ => Comparison::Equal,
            Flags::CU_STREAM_WAIT_VALUE_AND => Comparison::And,
            Flags::CU_STREAM_WAIT_VALUE_NOR => Comparison::Nor,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        self.check_value(address, value)?;
        Ok(Condition { address, value, comparison })
    }

    /// Has a stream write a value.
    pub(super) fn write_value(
        self: &Arc<Self>,
        stream: StreamId,
        address: u64,
        value: Value,
        flags: u32,
    ) -> CuResult<()> {
        self.check_write(address, value, flags)?;
        self.issue(stream, Operation::WriteValue { address, value })
    }

    /// Refuses a write that no stream can carry out.
    pub(super) fn check_write(&self, address: u64, value: Value, flags: u32) -> CuResult<()> {
        if flags & !CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.check_value(address, value)
    }

    fn check_value(&self, address: u64, value: Value) -> CuResult<()> {
        if !address.is_multiple_of(value.bytes()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        region::check(&self.machine.space, &Region::linear(address, value.bytes()))
    }
}
