//! Events: how they are made, recorded, waited for and compared.

use super::action::Action;
use super::context::Context;
use super::event::Event;
use super::handles;
use super::scheduler::{Scheduler, State};
use super::stream::{Fired, StreamKind};
use crate::handles::StreamId;
use causeway_api::sys::{CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUresult};
use causeway_gpu::{Completion, CuResult};
use std::sync::Arc;

impl Scheduler {
    /// Makes an event.
    pub(super) fn create_event(&self, context: &Context, flags: u32) -> CuResult<u64> {
        let known = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0 | CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        let interprocess = CUevent_flags::CU_EVENT_INTERPROCESS.0;
        if flags & !(known | interprocess) != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if flags & interprocess != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let timing = flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0;
        let event = Event { context: context.id, timing, record: 0, point: None, time: None };
        let id = handles::next();
        self.state.lock().events.insert(id, event);
        Ok(id)
    }

    /// Forgets an event; streams that wait for its last record still do.
    pub(super) fn destroy_event(&self, event: u64) -> CuResult<()> {
        self.state.lock().events.remove(&event).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Gives the event's name to the point that the stream is at.
    pub(super) fn record_event(self: &Arc<Self>, id: u64, stream: StreamId, flags: u32) -> CuResult<()> {
        let external = flags == CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
        if flags != 0 && !external {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.state.lock();
        let context = state.usable(stream)?.context.id;
        let event = state.events.get(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if event.context != context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let record = event.record + 1;
        if let Some(event) = state.events.get_mut(&id) {
            *event = Event { record, point: None, time: None, ..*event };
        }
        let point = self.submit(&mut state, stream, Vec::new(), Action::Record { event: id, record })?;
        if let Some(event) = state.events.get_mut(&id).filter(|event| event.record == record) {
            event.point = Some(point);
        }
        Ok(())
    }

    /// Has the stream wait for the event's last record.
    pub(super) fn wait_event(self: &Arc<Self>, stream: StreamId, event: u64, flags: u32) -> CuResult<()> {
        let external = flags == CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0;
        if flags != 0 && !external {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.state.lock();
        state.usable(stream)?;
        let Some(point) = state.event(event)?.point else { return Ok(()) };
        // In the legacy default stream a wait also puts later work of blocking streams behind what they hold.
        let is_reached = point.stream == stream || state.has_passed(point);
        if is_reached && state.usable(stream)?.kind != StreamKind::Legacy {
            return Ok(());
        }
        self.submit(&mut state, stream, vec![point], Action::Pass).map(drop)
    }

    /// Whether the event's last record has been reached.
    pub(super) fn query_event(&self, event: u64) -> CuResult<()> {
        let state = self.state.lock();
        match state.event(event)?.point {
            Some(point) if !state.has_passed(point) => Err(CUresult::CUDA_ERROR_NOT_READY),
            _ => Ok(()),
        }
    }

    /// Calls `done` when the event's last record has been reached.
    pub(super) fn after_event(&self, event: u64, context: Arc<Context>, done: Completion) -> CuResult<()> {
        let mut state = self.state.lock();
        let points: Vec<_> = state.event(event)?.point.into_iter().collect();
        let fired = state.watch(&points, context, done);
        drop(state);
        fired.into_iter().for_each(Fired::call);
        Ok(())
    }

    /// Milliseconds from one event to the other.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` when one was never recorded or keeps no time, `CUDA_ERROR_NOT_READY` when
    /// one has not been reached.
    pub(super) fn elapsed(&self, start: u64, end: u64) -> CuResult<f32> {
        let state = self.state.lock();
        let (start, end) = (state.event(start)?, state.event(end)?);
        let usable = |event: &Event| event.timing && event.point.is_some();
        if !usable(start) || !usable(end) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let is_reached = |event: &Event| event.point.is_none_or(|point| state.has_passed(point));
        match (start.time, end.time) {
            (Some(from), Some(to)) if is_reached(start) && is_reached(end) => {
                let forwards = to.saturating_duration_since(from).as_secs_f64();
                let backwards = from.saturating_duration_since(to).as_secs_f64();
                Ok(((forwards - backwards) * 1e3) as f32)
            }
            _ => Err(CUresult::CUDA_ERROR_NOT_READY),
        }
    }
}

impl State {
    /// The event of this number.
    fn event(&self, event: u64) -> CuResult<&Event> {
        self.events.get(&event).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
