//! Graphs: what their nodes do, in an order that their edges allow.
//!
//! The client sends nodes in such an order, and a launch puts them into a stream one after the other, so that the
//! edges themselves are not needed: on a processor nothing is gained by running two nodes at a time.

use super::handles;
use super::operation::{Condition, Operation, Value};
use super::scheduler::Scheduler;
use super::stream::{Action, Point, StreamId};
use crate::CuResult;
use causeway_api::sys::{CUgraphInstantiate_flags, CUresult};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Nodes that a graph may have.
const MOST_NODES: usize = 1 << 20;

/// What a node does.
#[derive(Clone)]
pub(super) enum Node {
    /// Nothing.
    Empty,
    /// Work for an executor thread.
    Run(Arc<Operation>),
    /// A kernel; its attributes are those of its first launch.
    Kernel(Arc<Operation>),
    /// Records an event.
    Record(u64),
    /// Writes values and waits for values.
    Values(Arc<[ValueStep]>),
}

/// One stream memory operation.
#[derive(Clone, Copy)]
pub(super) enum ValueStep {
    /// Writes a value.
    Write { address: u64, value: Value },
    /// Stops the stream until memory holds a value.
    Wait(Condition),
    /// Orders memory, which is in order here anyway.
    Barrier,
}

impl Node {
    fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

struct Executable {
    /// The graph that it was made from, whose numbers its nodes have.
    graph: u64,
    nodes: Vec<(Node, bool)>,
    /// The end of the last launch: one launch of an executable graph comes after the other.
    last: Option<Point>,
}

/// All graphs and executable graphs.
#[derive(Default)]
pub(super) struct Graphs {
    graphs: Mutex<HashMap<u64, Vec<Node>>>,
    executables: Mutex<HashMap<u64, Executable>>,
}

impl Graphs {
    /// Makes a graph without nodes.
    pub(super) fn create(&self) -> u64 {
        let id = handles::next();
        self.graphs.lock().insert(id, Vec::new());
        id
    }

    /// Forgets a graph.
    pub(super) fn remove(&self, graph: u64) -> CuResult<()> {
        self.graphs.lock().remove(&graph).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Appends a node.
    pub(super) fn append(&self, graph: u64, node: Node) -> CuResult<()> {
        let mut graphs = self.graphs.lock();
        let nodes = graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if nodes.len() >= MOST_NODES {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        nodes.push(node);
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
        if known.len() != nodes as usize {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let nodes = known.iter().map(|node| (node.clone(), true)).collect();
        let id = handles::next();
        self.executables.lock().insert(id, Executable { graph, nodes, last: None });
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
        for (node, _) in executable.nodes.iter().filter(|(_, is_enabled)| *is_enabled) {
            match node {
                Node::Empty => {}
                Node::Run(operation) | Node::Kernel(operation) => {
                    scheduler.issue(stream, Operation::Shared(Arc::clone(operation)))?;
                }
                Node::Record(event) => scheduler.record_event(*event, stream, 0)?,
                Node::Values(steps) => {
                    for step in &**steps {
                        match *step {
                            ValueStep::Write { address, value } => {
                                scheduler.issue(stream, Operation::WriteValue { address, value })?;
                            }
                            ValueStep::Wait(condition) => {
                                scheduler.issue_action(stream, Action::WaitValue(condition))?;
                            }
                            ValueStep::Barrier => {}
                        }
                    }
                }
            }
        }
        executable.last = Some(scheduler.issue_action(stream, Action::Pass)?);
        Ok(())
    }
}
