//! Executable graphs: made, changed, launched.
//!
//! | question | module |
//! | --- | --- |
//! | what is kept of one | [`state`] |
//! | how is one made | [`make`], divided as [`plan`] says |
//! | what happens at a launch | [`launch`] |
//! | what may change, and how | [`changes`], [`update`] |

mod changes;
mod launch;
mod make;
mod plan;
mod state;
mod update;

pub use make::instantiate;
pub use state::Executable;
pub use update::Mismatch;

use crate::model::context;
use crate::model::graph::reservation;
use crate::model::handles::{self, RawHandle as _};
use crate::submit::callbacks::Task;
use crate::submit::event;
use crate::submit::task;
use causeway_api::handle::Handle;
use causeway_api::sys::{CUgraphExec, CUresult};
use state::destroy_parts;
use std::sync::Arc;

/// The executable graph that the program passed.
pub fn resolve(raw: CUgraphExec) -> Result<Arc<Executable>, CUresult> {
    handles::get::<Executable>(Handle::from_raw(raw))
}

/// Destroys an executable graph; launches under way go on, and what they need stays until they are over.
pub fn destroy(raw: CUgraphExec) -> Result<(), CUresult> {
    let executable =
        handles::remove::<Executable>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(executable.handle);
    reservation::trim();
    if !handles::is_valid(executable.owner) {
        return Ok(());
    }
    let outcome = destroy_parts(executable.owner, &executable.parts);
    let state = &mut *executable.state.lock();
    reservation::retire(core::mem::take(&mut state.memory), state.launched.take().as_ref());
    if let Some((stream, event)) = state.last.take() {
        let held = core::mem::take(&mut state.held);
        if let (false, Ok(stream)) = (held.is_empty(), context::stream(stream)) {
            // The destructors of user objects come after the launches.
            let task = Task::Then { run: Box::new(move || drop(held)), after: stream.pending_writes() };
            let _ = task::post(&stream, task);
        }
        event::destroy(event.raw())?;
    }
    outcome
}
