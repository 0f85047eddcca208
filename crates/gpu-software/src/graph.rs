//! Graphs: what their nodes do, in an order that their edges allow.
//!
//! The client sends nodes in such an order, and a launch puts them into a stream one after the other, so that
//! the edges themselves are not needed: on a processor nothing is gained by running two nodes at a time. A
//! conditional node alone gets its number before its turn, which comes when its edges are sent.

use super::action::Action;
use super::condition::{Choice, Condition};
use super::handles;
use super::scheduler::Scheduler;
use crate::handles::{Point, StreamId};
use crate::operation::{Branch, Node, Sequence};
use causeway_api::sys::{CUgraphInstantiate_flags, CUresult};
use causeway_gpu::CuResult;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Nodes that a graph may have.
const MAX_NODES: usize = 1 << 20;
/// Graphs that a conditional node may have.
const MAX_BODIES: u32 = 1 << 12;
/// Conditional nodes that may lie within each other.
const MAX_DEPTH: u32 = 64;

/// A graph.
#[derive(Default)]
struct Graph {
    /// Its nodes by their numbers.
    nodes: Vec<Node>,
    /// Their numbers in an order that the edges allow.
    order: Vec<u32>,
    /// The values that steer conditional nodes of it.
    conditions: Vec<Arc<Condition>>,
}

struct Executable {
    /// The graph that it was made from, whose numbers its nodes have.
    graph: u64,
    nodes: Vec<(Node, bool)>,
    order: Vec<u32>,
    /// What a launch begins with.
    begin: Arc<Sequence>,
    /// The end of the last launch: one launch of an executable graph comes after the other.
    last: Option<Point>,
}

/// All graphs and executable graphs.
#[derive(Default)]
pub(super) struct Graphs {
    graphs: Mutex<HashMap<u64, Graph>>,
    executables: Mutex<HashMap<u64, Executable>>,
}

impl Graphs {
    /// Makes a graph without nodes.
    pub(super) fn create(&self) -> u64 {
        let id = handles::next();
        self.graphs.lock().insert(id, Graph::default());
        id
    }

    /// Forgets a graph.
    pub(super) fn remove(&self, graph: u64) -> CuResult<()> {
        self.graphs.lock().remove(&graph).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Appends a node.
    pub(super) fn append(&self, graph: u64, node: Node) -> CuResult<()> {
        let mut graphs = self.graphs.lock();
        let graph = graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if graph.nodes.len() >= MAX_NODES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        if !matches!(node, Node::Conditional { .. }) {
            graph.order.push(graph.nodes.len() as u32);
        }
        graph.nodes.push(node);
        Ok(())
    }

    /// Keeps a value that steers conditional nodes of a graph.
    pub(super) fn keep_condition(&self, graph: u64, condition: Arc<Condition>) -> CuResult<()> {
        let mut graphs = self.graphs.lock();
        let graph = graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if graph.conditions.len() >= MAX_NODES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        graph.conditions.push(condition);
        Ok(())
    }

    /// Appends a conditional node with so many graphs.
    pub(super) fn append_conditional(
        &self,
        graph: u64,
        condition: Arc<Condition>,
        kind: u32,
        size: u32,
    ) -> CuResult<()> {
        let choice = Choice::new(kind, size)?;
        if size > MAX_BODIES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bodies: Arc<[u64]> = (0..size).map(|_| self.create()).collect();
        let node = Node::Conditional { condition, choice, bodies: Arc::clone(&bodies) };
        self.append(graph, node).inspect_err(|_| {
            let mut graphs = self.graphs.lock();
            bodies.iter().for_each(|body| drop(graphs.remove(body)));
        })
    }

    /// The graph of this number that a conditional node carries out.
    pub(super) fn body(&self, graph: u64, node: u32, index: u32) -> CuResult<u64> {
        let graphs = self.graphs.lock();
        let graph = graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        match graph.nodes.get(node as usize) {
            Some(Node::Conditional { bodies, .. }) => {
                bodies.get(index as usize).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// It is a conditional node's turn, after all nodes whose turn has come.
    pub(super) fn place_conditional(&self, graph: u64, node: u32) -> CuResult<()> {
        let mut graphs = self.graphs.lock();
        let graph = graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let is_conditional = matches!(graph.nodes.get(node as usize), Some(Node::Conditional { .. }));
        if !is_conditional || graph.order.contains(&node) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        graph.order.push(node);
        Ok(())
    }

    /// Makes an executable graph of a graph that must have this many nodes.
    pub(super) fn instantiate(&self, graph: u64, nodes: u32, flags: u64) -> CuResult<u64> {
        type Flags = CUgraphInstantiate_flags;
        if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        if flags & !u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0) != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let graphs = self.graphs.lock();
        let known = graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if known.nodes.len() != nodes as usize || known.order.len() != known.nodes.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let nodes = known.nodes.iter().map(|node| Ok((resolve(&graphs, node, 0)?, true)));
        let nodes = nodes.collect::<CuResult<Vec<_>>>()?;
        let begin = Arc::new(Sequence { conditions: known.conditions.clone(), nodes: Vec::new() });
        let order = known.order.clone();
        let id = handles::next();
        self.executables.lock().insert(id, Executable { graph, nodes, order, begin, last: None });
        Ok(id)
    }

    /// Forgets an executable graph; launches of it under way go on.
    pub(super) fn remove_executable(&self, executable: u64) -> CuResult<()> {
        self.executables.lock().remove(&executable).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Whether there is an executable graph of this number.
    pub(super) fn check(&self, executable: u64) -> CuResult<()> {
        let known = self.executables.lock().contains_key(&executable);
        if known { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_HANDLE) }
    }

    /// Gives a node of an executable graph other work of the same kind, for the launches to come.
    pub(super) fn change(&self, executable: u64, graph: u64, number: u32, node: Node) -> CuResult<()> {
        self.with_node(executable, graph, number, |(old, _)| {
            if !old.is_like(&node) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            *old = node;
            Ok(())
        })
    }

    /// Has the launches to come carry a node out, or leave it out.
    pub(super) fn enable(&self, executable: u64, graph: u64, number: u32, enabled: bool) -> CuResult<()> {
        self.with_node(executable, graph, number, |(_, is_enabled)| {
            *is_enabled = enabled;
            Ok(())
        })
    }

    fn with_node(
        &self,
        executable: u64,
        graph: u64,
        number: u32,
        change: impl FnOnce(&mut (Node, bool)) -> CuResult<()>,
    ) -> CuResult<()> {
        let mut executables = self.executables.lock();
        let executable = executables.get_mut(&executable).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let node = executable.nodes.get_mut(number as usize).filter(|_| executable.graph == graph);
        change(node.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Launches an executable graph into a stream.
    pub(super) fn launch(
        &self,
        executable: u64,
        scheduler: &Arc<Scheduler>,
        stream: StreamId,
    ) -> CuResult<()> {
        let mut executables = self.executables.lock();
        let executable = executables.get_mut(&executable).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(last) = executable.last.filter(|last| last.stream != stream) {
            scheduler.issue_after(stream, vec![last], Action::Pass)?;
        }
        for action in executable.begin.actions() {
            scheduler.issue_action(stream, action)?;
        }
        let nodes = executable.order.iter().filter_map(|number| executable.nodes.get(*number as usize));
        let mut actions = Vec::new();
        for (node, _) in nodes.filter(|(_, is_enabled)| *is_enabled) {
            if let Node::Record(event) = node {
                scheduler.record_event(*event, stream, 0)?;
            }
            node.append_to(&mut actions);
            for action in actions.drain(..) {
                scheduler.issue_action(stream, action)?;
            }
        }
        executable.last = Some(scheduler.issue_action(stream, Action::Pass)?);
        Ok(())
    }
}

/// A node as an executable graph has it: conditional nodes with all that they may carry out.
fn resolve(graphs: &HashMap<u64, Graph>, node: &Node, depth: u32) -> CuResult<Node> {
    let Node::Conditional { condition, choice, bodies } = node else { return Ok(node.clone()) };
    if depth >= MAX_DEPTH {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let sequence = |body: &u64| {
        let graph = graphs.get(body).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if graph.order.len() != graph.nodes.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let nodes = graph.order.iter().filter_map(|number| graph.nodes.get(*number as usize));
        let nodes = nodes.map(|node| match node {
            Node::Record(_) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            node => resolve(graphs, node, depth + 1),
        });
        let nodes = nodes.collect::<CuResult<Vec<_>>>()?;
        Ok(Arc::new(Sequence { conditions: graph.conditions.clone(), nodes }))
    };
    let bodies = bodies.iter().map(sequence).collect::<CuResult<_>>()?;
    Ok(Node::Branch(Arc::new(Branch { condition: Arc::clone(condition), choice: *choice, bodies })))
}
