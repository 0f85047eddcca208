//! Launches of an executable graph.
//!
//! A launch is one command for each segment of the graph, and between them what the client does itself:
//! copies from and to the program's memory, which is read or written at every launch, and host functions. All
//! of it goes into the stream of the launch, so that whoever waits for that stream or for an event after the
//! launch finds the bytes.

use super::state::{Executable, Node, State, Step};
use crate::arguments::Address;
use crate::model::address::heap;
use crate::model::graph::memory;
use crate::model::graph::work::Work;
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use crate::submit::callbacks::Task;
use crate::submit::capture;
use crate::submit::copy::{self, Mode};
use crate::submit::event::{self, EventState};
use crate::submit::send;
use crate::submit::task;
use causeway_api::calls;
use causeway_api::handle::{Event, Handle};
use causeway_api::sys::{CUevent_flags, CUgraphInstantiate_flags, CUresult};
use std::sync::Arc;

impl Executable {
    /// Puts everything that it consists of into a stream.
    pub fn launch(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        // As the driver has it, no captured stream takes a graph.
        capture::refuse_wait(stream)?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let frees_itself = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
        for index in &state.concerned {
            match &state.nodes[*index].work {
                Work::Allocate(allocation) => {
                    allocation.allocate(self.flags & u64::from(frees_itself) != 0)?;
                }
                // In their order, as nodes may have the same memory one after the other.
                Work::Free(address) => {
                    // What somebody else has freed before is free.
                    let _ = memory::free(*address);
                }
                Work::Wait(event) => event_of(*event)?.delay(stream, 0)?,
                _ => {}
            }
        }
        let is_whole = matches!(state.steps[..], [] | [Step::Launch(_)]) && state.held.is_empty();
        if !is_whole
            && let Some((last, event)) = &state.last
            && *last != stream.handle
        {
            event.delay(stream, 0)?;
        }
        for step in &state.steps {
            match *step {
                Step::Launch(part) => {
                    let request = calls::graph_launch { exec: self.parts[part].exec, stream: stream.handle };
                    send::post_in(stream.context, &request)?;
                }
                Step::Client(index) => state.nodes[index].carry_out(stream)?,
            }
        }
        for index in &state.concerned {
            match &state.nodes[*index].work {
                Work::Record(event) => event_of(*event)?.note_record(stream),
                Work::Values(_) => stream.add_hazard(),
                _ => {}
            }
        }
        if !is_whole {
            self.note_launch(state, stream)?;
        }
        if !state.memory.is_empty() {
            state.launched = Some(heap::reuse_point(stream));
        }
        Ok(())
    }

    /// Remembers the end of a launch.
    fn note_launch(&self, state: &mut State, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        let event = match state.last.take() {
            Some((_, event)) => event,
            None => event::resolve(event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING.0)?.as_raw())?,
        };
        event.record(stream, 0)?;
        state.last = Some((stream.handle, event));
        Ok(())
    }

    /// Brings what it consists of to the server's GPU before the first launch.
    pub fn upload(&self, stream: &StreamState) -> Result<(), CUresult> {
        capture::refuse_wait(stream)?;
        self.parts.iter().try_for_each(|part| {
            send::post_in(stream.context, &calls::graph_upload { exec: part.exec, stream: stream.handle })
        })
    }
}

fn event_of(event: Handle<Event>) -> Result<Arc<EventState>, CUresult> {
    event::resolve(event.as_raw())
}

impl Node {
    /// Does the client's part of a launch.
    fn carry_out(&self, stream: &Arc<StreamState>) -> Result<(), CUresult> {
        if !self.is_enabled {
            return Ok(());
        }
        match &self.work {
            Work::Copy(copying) => match copy::endpoints(&copying.parameters)? {
                // SAFETY: the program keeps the memory of the node valid for as long as it launches the
                // graph.
                Some((destination, source)) => unsafe {
                    copy::copy(destination, source, stream, Mode::InGraph)
                },
                None => Ok(()),
            },
            Work::Host(calling) => {
                let data = Address(calling.data);
                let task =
                    Task::Function { function: calling.function, data, after: stream.pending_writes() };
                task::post(stream, task)
            }
            _ => Ok(()),
        }
    }
}
