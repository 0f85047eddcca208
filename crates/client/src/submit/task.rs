//! Host functions in a stream, or in a graph that the stream is captured for.

use crate::model::graph::work::{Calling, Work};
use crate::model::stream::StreamState;
use crate::submit::callbacks::{self, Task};
use crate::submit::capture;
use causeway_api::sys::CUresult;

/// Puts a task into a stream.
pub fn post(stream: &StreamState, task: Task) -> Result<(), CUresult> {
    if capture::of(stream) == 0 {
        return callbacks::post(stream, task);
    }
    match task {
        Task::Function { function, data, .. } => {
            capture::add(stream, Work::Host(Calling { function, data: data.0 }))
        }
        _ => capture::refuse_wait(stream),
    }
}
