//! State of an executable graph, and the changes that CUDA allows to its nodes.

use crate::locks::{Mutex, rank};
use crate::model::address::heap::ReusePoint;
use crate::model::graph::OnServer;
use crate::model::graph::objects::Held;
use crate::model::graph::reservation::Hold;
use crate::model::graph::work::{Copying, Work};
use crate::model::handles;
use crate::submit::event::EventState;
use crate::submit::graph::build::{self, Address};
use crate::submit::{copy, send};
use causeway_api::calls;
use causeway_api::handle::{Context, Graph, GraphExec, GraphNode, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphExecUpdateResult, CUresult};
use core::ops::Range;
use std::collections::HashMap;
use std::sync::Arc;

/// An executable graph.
pub struct Executable {
    /// Its handle.
    pub(super) handle: Handle<GraphExec>,
    /// The context that was current when it was made.
    pub(super) owner: Handle<Context>,
    /// The flags that it was made with.
    pub flags: u64,
    /// The graph that it was made from, if no other may be made from that as long as it lives.
    pub(super) sole_of: Option<Handle<Graph>>,
    pub(super) children: HashMap<Handle<GraphNode>, Range<usize>>,
    pub(super) indices: HashMap<Handle<GraphNode>, usize>,
    pub(super) parts: Vec<Part>,
    pub(super) state: Mutex<rank::ExecutableGraph, State>,
}

pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    /// The places of nodes for which something has to be done at each launch besides the steps.
    pub(super) concerned: Vec<usize>,
    pub(super) steps: Vec<Step>,
    /// User objects that it keeps.
    pub(super) held: Held,
    /// The memory of its allocation nodes.
    pub(super) memory: Vec<Hold>,
    /// The end of the last launch, if it has such memory.
    pub(super) launched: Option<ReusePoint>,
    /// Where it was launched last, for a graph of several steps: one launch comes after the other.
    pub(super) last: Option<(Handle<Stream>, Arc<EventState>)>,
}

pub(super) struct Node {
    pub(super) node: Handle<GraphNode>,
    pub(super) work: Work,
    pub(super) before: Vec<(usize, CUgraphEdgeData)>,
    /// Where it is on the server, if it is there.
    pub(super) on_server: Option<Address>,
    pub(super) is_enabled: bool,
}

/// What a launch does next.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Launches a part.
    Launch(usize),
    /// Carries out the node at this place.
    Client(usize),
}

/// A segment of the graph, on the server.
pub(super) struct Part {
    pub(super) exec: Handle<GraphExec>,
    /// The graph that it was made from, if it has no other user.
    pub(super) graph: Option<OnServer>,
}

impl handles::Object for Executable {
    type Kind = GraphExec;
}

/// Destroys the parts of an executable graph on the server.
pub(super) fn destroy_parts(owner: Handle<Context>, parts: &[Part]) -> Result<(), CUresult> {
    let mut outcome = Ok(());
    for part in parts {
        if !part.exec.is_null() {
            handles::drop_handle(part.exec);
            outcome = outcome.and(send::post_in(owner, &calls::graph_exec_destroy { exec: part.exec }));
        }
        outcome = outcome.and(part.graph.map_or(Ok(()), build::destroy));
    }
    outcome
}

/// What keeps `new` from taking the place of `old` in an executable graph, if anything does.
pub fn difference(old: &Work, new: &Work) -> Option<CUgraphExecUpdateResult> {
    type Result = CUgraphExecUpdateResult;
    let parameters = Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    match (old, new) {
        (Work::Kernel(old), Work::Kernel(new)) if old.attributes != new.attributes => {
            Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED)
        }
        (Work::Copy(old), Work::Copy(new)) => {
            let [old_endpoints, new_endpoints] =
                [old, new].map(|copying| copy::endpoints(&copying.parameters).ok().flatten());
            let kinds_differ = || match (&old_endpoints, &new_endpoints) {
                (Some((to, from)), Some((new_to, new_from))) => {
                    !to.is_like(new_to) || !from.is_like(new_from)
                }
                (None, None) => false,
                _ => true,
            };
            if old_endpoints == new_endpoints {
                None
            } else if kinds_differ() || !old.is_linear() || !new.is_linear() {
                parameters
            } else {
                None
            }
        }
        (Work::Fill(old), Work::Fill(new)) => {
            let is_fixed = !old.is_linear() || !new.is_linear();
            if is_fixed && old.fill() != new.fill() { parameters } else { None }
        }
        (Work::Values(old), Work::Values(new)) if old.operations.len() != new.operations.len() => parameters,
        (Work::Allocate(old), Work::Allocate(new)) if old.address != new.address => parameters,
        (Work::Free(old), Work::Free(new)) if old != new => parameters,
        (Work::Conditional(_), _) => Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED),
        (old, new) if old.kind() != new.kind() => Some(Result::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED),
        _ => None,
    }
}

/// Whether nothing has to be said to the server for `new` to take the place of `old`.
pub fn is_same(old: &Work, new: &Work) -> bool {
    match (old, new) {
        (Work::Kernel(old), Work::Kernel(new)) => {
            (old.function, old.shape, &old.params) == (new.function, new.shape, &new.params)
        }
        (Work::Fill(old), Work::Fill(new)) => old.fill() == new.fill(),
        (Work::Copy(old), Work::Copy(new)) => {
            let endpoints = |copying: &Copying| copy::endpoints(&copying.parameters);
            endpoints(old) == endpoints(new)
        }
        (Work::Record(old), Work::Record(new)) | (Work::Wait(old), Work::Wait(new)) => old == new,
        (Work::Values(old), Work::Values(new)) => old.operations() == new.operations(),
        (Work::Child(_), Work::Child(_)) => true,
        _ => false,
    }
}
