//! State of an executable graph, the changes that CUDA allows to its nodes, and its partition into server
//! segments and client steps, decided before anything of it is sent.

use core::ops::Range;
use std::collections::HashMap;
use std::sync::Arc;

use causeway_api::calls;
use causeway_api::handle::{Context, Graph, GraphExec, GraphNode, Handle, Stream};
use causeway_api::sys::{CUgraphEdgeData, CUgraphExecUpdateResult, CUresult};

use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use crate::model::address::heap::ReusePoint;
use crate::model::graph::OnServer;
use crate::model::graph::objects::Held;
use crate::model::graph::order::Phase;
use crate::model::graph::reservation::Hold;
use crate::model::graph::work::{Copying, Work};
use crate::model::handles;
use crate::submit::event::EventState;
use crate::submit::graph::build::{self, Address};
use crate::submit::{copy, send};

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

/// What counts of a node when its graph is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// When it is carried out.
    pub phase: Phase,
    /// Whether the server has nothing to do for it.
    pub is_idle: bool,
    /// Whether the node is a conditional node of a child graph.
    pub is_conditional_in_child: bool,
}

/// What a launch does in one go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// The client carries out the node at this place.
    Client(usize),
    /// The server carries out a graph of the nodes at these places.
    Segment(Vec<usize>),
}

/// Why a graph cannot be made executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its conditional nodes stand in a graph of the server, which can be used once and not be divided.
    Divided,
    /// A child graph has conditional nodes.
    ConditionalInChild,
}

impl Refusal {
    /// Says so on standard error, and what the program gets.
    pub(super) fn refuse(self) -> CUresult {
        match self {
            Self::Divided => refuse_use!(
                "conditional nodes in a graph that is instantiated twice, or that copies and host functions divide"
            ),
            Self::ConditionalInChild => refuse_use!("conditional nodes in child graphs"),
        }
    }
}

/// The shares of a launch in their order. `existing` is the server's graph in which the conditional nodes
/// stand already. Segments with which the server has nothing to do are left out.
pub(super) fn shares(nodes: &[Facts], existing: Option<&OnServer>) -> Result<Vec<Share>, Refusal> {
    let last = nodes.iter().map(|node| match node.phase {
        Phase::Client(segment) | Phase::Segment(segment) => segment,
    });
    let mut shares = Vec::new();
    let mut segments = 0;
    for segment in 0..=last.max().unwrap_or(0) {
        let of = |chosen: Phase| (0..nodes.len()).filter(move |index| nodes[*index].phase == chosen);
        shares.extend(of(Phase::Client(segment)).map(Share::Client));
        let indices: Vec<_> = of(Phase::Segment(segment)).collect();
        if indices.iter().all(|index| nodes[*index].is_idle) {
            continue;
        }
        if existing.is_some_and(|graph| graph.is_complete || segments > 0) {
            return Err(Refusal::Divided);
        }
        if indices.iter().any(|index| nodes[*index].is_conditional_in_child) {
            return Err(Refusal::ConditionalInChild);
        }
        segments += 1;
        shares.push(Share::Segment(indices));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use Phase::{Client, Segment};

    use super::*;

    fn busy(phase: Phase) -> Facts {
        Facts { phase, is_idle: false, is_conditional_in_child: false }
    }

    fn idle(phase: Phase) -> Facts {
        Facts { is_idle: true, ..busy(phase) }
    }

    fn existing(is_complete: bool) -> OnServer {
        OnServer { graph: Handle::NULL, context: Handle::NULL, nodes: 1, is_complete }
    }

    #[test]
    fn what_the_client_does_stands_between_the_segments() {
        let nodes = [busy(Segment(0)), busy(Client(0)), busy(Client(1)), idle(Segment(0)), busy(Segment(1))];
        let expected =
            [Share::Client(1), Share::Segment(vec![0, 3]), Share::Client(2), Share::Segment(vec![4])];
        assert_eq!(shares(&nodes, None).unwrap(), expected);
        assert_eq!(shares(&[], None).unwrap(), []);
    }

    #[test]
    fn segments_without_work_are_left_out() {
        let nodes = [idle(Segment(0)), busy(Client(1)), idle(Segment(1)), busy(Client(2))];
        assert_eq!(shares(&nodes, None).unwrap(), [Share::Client(1), Share::Client(3)]);
        assert_eq!(shares(&nodes, Some(&existing(true))).unwrap().len(), 2);
    }

    #[test]
    fn a_graph_with_conditional_nodes_is_used_once_and_whole() {
        let whole = [busy(Segment(0)), busy(Client(1)), idle(Segment(1))];
        assert!(shares(&whole, Some(&existing(false))).is_ok());
        assert_eq!(shares(&whole, Some(&existing(true))), Err(Refusal::Divided));
        let divided = [busy(Segment(0)), busy(Client(1)), busy(Segment(1))];
        assert_eq!(shares(&divided, Some(&existing(false))), Err(Refusal::Divided));
        assert!(shares(&divided, None).is_ok());
    }

    #[test]
    fn child_graphs_have_no_conditional_nodes() {
        let node = Facts { is_conditional_in_child: true, ..busy(Segment(0)) };
        assert_eq!(shares(&[node], None), Err(Refusal::ConditionalInChild));
    }
}
