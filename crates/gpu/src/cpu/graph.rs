//! Graphs: operations and what they come after.

use super::handles;
use super::operation::Operation;
use super::scheduler::Scheduler;
use super::stream::StreamId;
use crate::CuResult;
use causeway_api::sys::{CUgraphInstantiate_flags, CUresult};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// A node of a graph.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) operation: Arc<Operation>,
    /// Nodes before this one, all of which have smaller numbers.
    pub(super) after: Vec<usize>,
}

/// A graph. The order of its nodes is one in which they may be carried out.
#[derive(Clone, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
}

#[derive(Clone)]
struct Executable {
    operations: Arc<[Arc<Operation>]>,
    flags: u64,
}

/// All graphs and executable graphs.
#[derive(Default)]
pub(super) struct Graphs {
    graphs: Mutex<HashMap<u64, Graph>>,
    executables: Mutex<HashMap<u64, Executable>>,
}

impl Graphs {
    /// Enters a graph.
    pub(super) fn insert(&self, graph: Graph) -> u64 {
        let id = handles::next();
        self.graphs.lock().insert(id, graph);
        id
    }

    /// Copies a graph.
    pub(super) fn clone_graph(&self, graph: u64) -> CuResult<u64> {
        let copy = self.graphs.lock().get(&graph).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        Ok(self.insert(copy))
    }

    /// Forgets a graph.
    pub(super) fn remove(&self, graph: u64) -> CuResult<()> {
        self.graphs.lock().remove(&graph).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// How many nodes a graph has.
    pub(super) fn node_count(&self, graph: u64) -> CuResult<usize> {
        self.graphs
            .lock()
            .get(&graph)
            .map(|graph| graph.nodes.len())
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Makes an executable graph.
    pub(super) fn instantiate(&self, graph: u64, flags: u64) -> CuResult<u64> {
        type Flags = CUgraphInstantiate_flags;
        let from_device = u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0);
        let known = from_device
            | u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0)
            | u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0)
            | u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
        if flags & !known != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if flags & from_device != 0 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let graphs = self.graphs.lock();
        let graph = graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let operations = graph.nodes.iter().map(|node| Arc::clone(&node.operation)).collect();
        let id = handles::next();
        self.executables.lock().insert(id, Executable { operations, flags });
        Ok(id)
    }

    /// The flags that an executable graph was made with.
    pub(super) fn flags(&self, executable: u64) -> CuResult<u64> {
        Ok(self.executable(executable)?.flags)
    }

    /// Forgets an executable graph; launches of it under way go on.
    pub(super) fn remove_executable(&self, executable: u64) -> CuResult<()> {
        self.executables.lock().remove(&executable).map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Launches an executable graph into a stream, where it is one command.
    pub(super) fn launch(
        &self,
        executable: u64,
        scheduler: &Arc<Scheduler>,
        stream: StreamId,
    ) -> CuResult<()> {
        let operations = self.executable(executable)?.operations;
        scheduler.issue(stream, Operation::Graph(operations))
    }

    fn executable(&self, executable: u64) -> CuResult<Executable> {
        self.executables.lock().get(&executable).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }
}
