//! Graph store: graphs, nodes and edges.

use super::memory;
use super::memory_reuse::Blocks;
use super::objects::Held;
use super::work::Work;
use crate::locks::{Mutex, MutexGuard, rank};
use crate::model::handles;
use causeway_api::handle::{Context, Graph, GraphNode, Handle};
use causeway_api::sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};
use std::collections::HashMap;
use std::sync::LazyLock;

/// One end of an edge, and what the edge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node at the other end.
    pub node: Handle<GraphNode>,
    /// Ports and type.
    pub data: CUgraphEdgeData,
}

impl Edge {
    /// An edge that orders two nodes as a whole.
    pub fn plain(node: Handle<GraphNode>) -> Self {
        Self { node, data: CUgraphEdgeData::default() }
    }
}

/// The graph of the server in which the conditional nodes of a graph are: what steers them belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct OnServer {
    /// Its handle.
    pub graph: Handle<Graph>,
    /// The context that it was made in.
    pub context: Handle<Context>,
    /// How many nodes it has.
    pub nodes: u32,
    /// Whether everything of the client's graph has been sent.
    pub is_complete: bool,
}

/// A graph.
#[derive(Default)]
pub struct GraphState {
    /// Its nodes in the order in which they were added.
    pub nodes: Vec<Handle<GraphNode>>,
    /// The node that it belongs to: as the graph of a child node, or as a body of a conditional one.
    pub owner: Option<Handle<GraphNode>>,
    /// The graph that it is a clone of.
    pub(super) origin: Option<Handle<Graph>>,
    /// User objects that it keeps.
    pub held: Held,
    /// The memory of its allocation nodes.
    pub(super) blocks: Blocks,
    /// Its graph on the server, if it has to be there before it is instantiated.
    pub on_server: Option<OnServer>,
}

/// A node.
pub struct NodeState {
    /// The graph that it is in.
    pub graph: Handle<Graph>,
    /// What it does.
    pub work: Work,
    /// What it comes after.
    pub before: Vec<Edge>,
    /// What comes after it.
    pub after: Vec<Edge>,
    /// The node that it is a clone of.
    pub(super) origin: Option<Handle<GraphNode>>,
}

/// All graphs and their nodes.
#[derive(Default)]
pub struct GraphStore {
    graphs: HashMap<Handle<Graph>, GraphState>,
    pub(super) nodes: HashMap<Handle<GraphNode>, NodeState>,
}

/// What was removed; to be dropped without the lock, since that may run code of the program or wait.
#[must_use]
#[derive(Default)]
pub struct Removed {
    pub(super) graphs: Vec<GraphState>,
    pub(super) nodes: Vec<NodeState>,
}

impl Removed {
    /// What of it is on servers: the graphs of nodes come before the graphs in which those nodes are.
    pub fn on_servers(&self) -> impl Iterator<Item = OnServer> {
        self.graphs.iter().filter_map(|graph| graph.on_server)
    }
}

static GRAPHS: LazyLock<Mutex<rank::Graphs, GraphStore>> = LazyLock::new(Mutex::default);

/// All graphs, for the calling thread alone.
pub fn graphs() -> MutexGuard<'static, rank::Graphs, GraphStore> {
    GRAPHS.lock()
}

/// The graph that the program passed. One that is no graph, or no more, is an invalid value to the driver
/// (580), not an invalid handle.
pub fn resolve(raw: CUgraph) -> Result<Handle<Graph>, CUresult> {
    handles::resolve(raw).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The node that the program passed.
pub fn resolve_node(raw: CUgraphNode) -> Result<Handle<GraphNode>, CUresult> {
    handles::resolve(raw)
}

impl GraphStore {
    /// Makes a graph without nodes.
    pub fn create(&mut self, owner: Option<Handle<GraphNode>>) -> Handle<Graph> {
        let graph = handles::create();
        self.graphs.insert(graph, GraphState { owner, ..GraphState::default() });
        graph
    }

    /// A graph.
    pub fn graph(&self, graph: Handle<Graph>) -> Result<&GraphState, CUresult> {
        self.graphs.get(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// A graph, to be changed.
    pub fn graph_mut(&mut self, graph: Handle<Graph>) -> Result<&mut GraphState, CUresult> {
        self.graphs.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// A node.
    pub fn node(&self, node: Handle<GraphNode>) -> Result<&NodeState, CUresult> {
        self.nodes.get(&node).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// A node, to be changed.
    pub fn node_mut(&mut self, node: Handle<GraphNode>) -> Result<&mut NodeState, CUresult> {
        self.nodes.get_mut(&node).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Adds a node that comes after others of its graph.
    pub fn add(
        &mut self,
        graph: Handle<Graph>,
        before: &[Edge],
        work: Work,
    ) -> Result<Handle<GraphNode>, CUresult> {
        self.graph(graph)?;
        for (index, edge) in before.iter().enumerate() {
            let is_twice = before[..index].iter().any(|other| other.node == edge.node);
            if is_twice || self.node(edge.node)?.graph != graph {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
        }
        let node = handles::create();
        self.adopt(node, &work);
        let blocks = &mut self.graph_mut(graph)?.blocks;
        match &work {
            Work::Allocate(allocation) => blocks.enter(&allocation.block, allocation.size),
            Work::Free(address) => {
                blocks.release(*address, node);
                memory::note_free_node(*address);
            }
            _ => {}
        }
        for edge in before {
            self.node_mut(edge.node)?.after.push(Edge { node, data: edge.data });
        }
        let state = NodeState { graph, work, before: before.to_vec(), after: Vec::new(), origin: None };
        self.nodes.insert(node, state);
        self.graph_mut(graph)?.nodes.push(node);
        Ok(node)
    }

    /// Gives the graphs that a node carries out to it.
    fn adopt(&mut self, node: Handle<GraphNode>, work: &Work) {
        for graph in work.graphs() {
            if let Some(graph) = self.graphs.get_mut(&graph) {
                graph.owner = Some(node);
            }
        }
    }

    /// Adds an edge between nodes of one graph.
    pub fn connect(
        &mut self,
        graph: Handle<Graph>,
        from: Handle<GraphNode>,
        to: Handle<GraphNode>,
        data: CUgraphEdgeData,
    ) -> Result<(), CUresult> {
        let is_within = self.node(from)?.graph == graph && self.node(to)?.graph == graph;
        let is_there = self.node(to)?.before.iter().any(|edge| edge.node == from);
        if from == to || !is_within || is_there {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.node_mut(from)?.after.push(Edge { node: to, data });
        self.node_mut(to)?.before.push(Edge { node: from, data });
        Ok(())
    }

    /// Removes an edge.
    pub fn disconnect(
        &mut self,
        from: Handle<GraphNode>,
        to: Handle<GraphNode>,
        data: Option<CUgraphEdgeData>,
    ) -> Result<(), CUresult> {
        self.node(from)?;
        let before = &mut self.node_mut(to)?.before;
        let found = before
            .iter()
            .position(|edge| edge.node == from && data.is_none_or(|data| data == edge.data))
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        before.remove(found);
        self.node_mut(from)?.after.retain(|edge| edge.node != to);
        Ok(())
    }

    /// Removes a node, and with it its edges.
    pub fn remove_node(&mut self, node: Handle<GraphNode>) -> Result<Removed, CUresult> {
        let graph = self.node(node)?.graph;
        let is_lasting =
            |node: &Handle<GraphNode>| self.nodes.get(node).is_some_and(|node| node.work.binds_memory());
        if self.graph(graph)?.nodes.iter().any(is_lasting) || self.graph(graph)?.on_server.is_some() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let state = self.node(node)?;
        let (before, after) = (state.before.clone(), state.after.clone());
        before.iter().try_for_each(|edge| self.disconnect(edge.node, node, None))?;
        after.iter().try_for_each(|edge| self.disconnect(node, edge.node, None))?;
        self.graph_mut(graph)?.nodes.retain(|other| *other != node);
        let mut removed = Removed::default();
        self.take_node(node, &mut removed);
        Ok(removed)
    }

    /// Removes a graph. One that belongs to a node goes with it and not before.
    pub fn remove_graph(&mut self, graph: Handle<Graph>) -> Result<Removed, CUresult> {
        if self.graph(graph)?.owner.is_some() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut removed = Removed::default();
        self.take_graph(graph, &mut removed);
        Ok(removed)
    }

    fn take_graph(&mut self, graph: Handle<Graph>, removed: &mut Removed) {
        handles::drop_handle(graph);
        if let Some(state) = self.graphs.remove(&graph) {
            state.nodes.iter().for_each(|node| self.take_node(*node, removed));
            removed.graphs.push(state);
        }
    }

    fn take_node(&mut self, node: Handle<GraphNode>, removed: &mut Removed) {
        handles::drop_handle(node);
        if let Some(state) = self.nodes.remove(&node) {
            state.work.graphs().into_iter().for_each(|graph| self.take_graph(graph, removed));
            removed.nodes.push(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_connected_within_their_graph_once() {
        let mut graphs = GraphStore::default();
        let (graph, other) = (graphs.create(None), graphs.create(None));
        let a = graphs.add(graph, &[], Work::Empty).unwrap();
        let b = graphs.add(graph, &[Edge::plain(a)], Work::Empty).unwrap();
        let foreign = graphs.add(other, &[], Work::Empty).unwrap();
        assert!(graphs.add(graph, &[Edge::plain(a), Edge::plain(a)], Work::Empty).is_err());
        assert!(graphs.add(graph, &[Edge::plain(foreign)], Work::Empty).is_err());
        let plain = CUgraphEdgeData::default();
        assert!(graphs.connect(graph, a, b, plain).is_err() && graphs.connect(graph, a, a, plain).is_err());
        assert!(graphs.connect(graph, a, foreign, plain).is_err());
        assert_eq!(graphs.ancestors(&[Edge::plain(b)]), [b, a]);
        graphs.disconnect(a, b, None).unwrap();
        assert!(graphs.disconnect(a, b, None).is_err());
        assert_eq!(graphs.graph(graph).unwrap().nodes, [a, b]);
        let removed = graphs.remove_graph(graph).unwrap();
        assert_eq!((removed.graphs.len(), removed.nodes.len()), (1, 2));
        assert!(graphs.node(a).is_err() && !handles::is_valid(a) && handles::is_valid(foreign));
    }
}
