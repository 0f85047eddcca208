//! Executable graphs: made, changed, launched.
//!
//! | question | module |
//! | --- | --- |
//! | how is one made | [`make`], divided as [`plan`] says |
//! | what happens at a launch | [`launch`] |
//! | what may change, and how | [`changes`], [`update`] |

mod changes;
mod launch;
mod make;
mod plan;
mod update;

use crate::model::handles::RawHandle as _;
use crate::submit::send;
pub use make::instantiate;
pub use update::Mismatch;

use super::build::{self, Address};
use crate::locks::{Mutex, rank};
use crate::model::address::heap::Stamp;
use crate::model::context;
use crate::model::graph::OnServer;
use crate::model::graph::objects::Held;
use crate::model::graph::reservation::{self, Hold};
use crate::model::graph::work::Work;
use crate::model::handles::{self, Registry};
use crate::submit::callbacks::Task;
use crate::submit::event::{self, EventState};
use crate::submit::task;
use causeway_api::calls;
use causeway_api::handle::{Context, Graph, GraphExec, GraphNode, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphExec, CUresult};
use core::ops::Range;
use std::collections::HashMap;
use std::sync::Arc;

/// An executable graph.
pub struct Executable {
    /// Its handle.
    handle: Handle<GraphExec>,
    /// The context that was current when it was made.
    home: Handle<Context>,
    /// The flags that it was made with.
    pub flags: u64,
    /// The graph that it was made from, if no other may be made from that as long as it lives.
    sole_of: Option<Handle<Graph>>,
    children: HashMap<Handle<GraphNode>, Range<usize>>,
    places: HashMap<Handle<GraphNode>, usize>,
    parts: Vec<Part>,
    state: Mutex<rank::ExecutableGraph, State>,
}

struct State {
    nodes: Vec<Node>,
    /// The places of nodes for which something has to be done at each launch besides the steps.
    concerned: Vec<usize>,
    steps: Vec<Step>,
    /// User objects that it keeps.
    held: Held,
    /// The memory of its allocation nodes.
    memory: Vec<Hold>,
    /// The end of the last launch, if it has such memory.
    launched: Option<Stamp>,
    /// Where it was launched last, for a graph of several steps: one launch comes after the other.
    last: Option<(Handle<Stream>, Arc<EventState>)>,
}

struct Node {
    node: Handle<GraphNode>,
    work: Work,
    before: Vec<(usize, CUgraphEdgeData)>,
    /// Where it is on the server, if it is there.
    on_server: Option<Address>,
    is_enabled: bool,
}

/// What a launch does next.
#[derive(Clone, Copy)]
enum Step {
    /// Launches a part.
    Launch(usize),
    /// Carries out the node at this place.
    Client(usize),
}

/// A segment of the graph, on the server.
struct Part {
    exec: Handle<GraphExec>,
    /// The graph that it was made from, if nobody else needs that.
    graph: Option<OnServer>,
}

static EXECUTABLES: Registry<GraphExec, Executable> = Registry::new();

/// The executable graph that the program passed.
pub fn given(raw: CUgraphExec) -> Result<Arc<Executable>, CUresult> {
    EXECUTABLES.get(Handle::from_raw(raw))
}

fn destroy_parts(home: Handle<Context>, parts: &[Part]) -> Result<(), CUresult> {
    let mut outcome = Ok(());
    for part in parts {
        if !part.exec.is_null() {
            handles::drop_handle(part.exec);
            outcome = outcome.and(send::post_in(home, &calls::graph_exec_destroy { exec: part.exec }));
        }
        outcome = outcome.and(part.graph.map_or(Ok(()), build::destroy));
    }
    outcome
}

/// Destroys an executable graph; launches under way go on, and what they need stays until they are over.
pub fn destroy(raw: CUgraphExec) -> Result<(), CUresult> {
    let executable = EXECUTABLES.remove(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(executable.handle);
    reservation::trim();
    if !handles::is_valid(executable.home) {
        return Ok(());
    }
    let outcome = destroy_parts(executable.home, &executable.parts);
    let state = &mut *executable.state.lock();
    reservation::retire(core::mem::take(&mut state.memory), state.launched.take().as_ref());
    if let Some((stream, event)) = state.last.take() {
        let held = core::mem::take(&mut state.held);
        if let (false, Ok(stream)) = (held.is_empty(), context::stream(stream)) {
            // The destructors of user objects come after the launches.
            let task = Task::Then { run: Box::new(move || drop(held)), after: stream.ahead() };
            let _ = task::post(&stream, task);
        }
        event::destroy(event.raw())?;
    }
    outcome
}
