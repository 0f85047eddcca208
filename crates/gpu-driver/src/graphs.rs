//! Parts of the graphs that the client has named, as the driver calls them, and linkers that a client has
//! made.

use std::collections::HashMap;

use causeway_api::handle::{Graph, Native};
use causeway_api::sys::{CUgraphEdgeData, CUgraphNode, CUresult};
use causeway_api::types::GraphEdge;
use causeway_gpu::CuResult;

use crate::jit::Options;
use crate::locks::{Mutex, rank};

/// What the driver calls the parts of a graph.
#[derive(Default)]
struct Parts {
    nodes: Vec<CUgraphNode>,
    /// The graphs that a conditional node carries out, by the node's number.
    bodies: HashMap<u32, Vec<Native<Graph>>>,
    /// Whether the graph is itself carried out by a conditional node.
    is_body: bool,
}

/// The graphs of a session.
#[derive(Default)]
pub(crate) struct Graphs {
    parts: Mutex<rank::Leaf, HashMap<Native<Graph>, Parts>>,
}

// SAFETY: the driver's handles of nodes are names that any thread may use.
unsafe impl Send for Graphs {}
// SAFETY: the driver's handles of nodes are names that any thread may use.
unsafe impl Sync for Graphs {}

impl Graphs {
    pub(crate) fn insert(&self, graph: Native<Graph>, is_body: bool) {
        self.parts.lock().insert(graph, Parts { is_body, ..Parts::default() });
    }

    /// How many nodes a graph has.
    pub(crate) fn nodes(&self, graph: Native<Graph>) -> Option<usize> {
        self.parts.lock().get(&graph).map(|parts| parts.nodes.len())
    }

    pub(crate) fn node(&self, graph: Native<Graph>, number: u32) -> CuResult<CUgraphNode> {
        let parts = self.parts.lock();
        let node = parts.get(&graph).and_then(|parts| parts.nodes.get(number as usize));
        node.copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn edges(
        &self,
        graph: Native<Graph>,
        edges: &[GraphEdge],
    ) -> CuResult<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> {
        let nodes = edges.iter().map(|edge| self.node(graph, edge.from)).collect::<CuResult<_>>()?;
        let data = |edge: &GraphEdge| CUgraphEdgeData {
            from_port: edge.from_port,
            to_port: edge.to_port,
            type_: edge.kind,
            reserved: [0; 5],
        };
        Ok((nodes, edges.iter().map(data).collect()))
    }

    pub(crate) fn append(&self, graph: Native<Graph>, node: CUgraphNode) -> CuResult<u32> {
        let mut parts = self.parts.lock();
        let parts = parts.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        parts.nodes.push(node);
        Ok(parts.nodes.len() as u32 - 1)
    }

    pub(crate) fn body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        let parts = self.parts.lock();
        let bodies = parts.get(&graph).and_then(|parts| parts.bodies.get(&node));
        let body = bodies.and_then(|bodies| bodies.get(index as usize));
        body.copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Remembers the graphs that a conditional node of `graph` carries out.
    pub(crate) fn add_bodies(&self, graph: Native<Graph>, node: u32, bodies: Vec<Native<Graph>>) {
        bodies.iter().for_each(|body| self.insert(*body, true));
        if let Some(parts) = self.parts.lock().get_mut(&graph) {
            parts.bodies.insert(node, bodies);
        }
    }

    /// Forgets a graph; says whether it is one that has to be destroyed, and not the body of a node, which
    /// goes with it.
    pub(crate) fn remove(&self, graph: Native<Graph>) -> bool {
        self.parts.lock().remove(&graph).is_some_and(|parts| !parts.is_body)
    }
}

/// A linker that a client has made.
pub(crate) struct Link {
    pub(crate) options: Options,
    /// Address and size of the result once there is one; it belongs to the driver until the linker is
    /// destroyed.
    pub(crate) result: Option<(usize, usize)>,
}
