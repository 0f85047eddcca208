//! Graphs. They live here: nodes, edges and parameters are kept by the client, so that building a graph and
//! asking about it need no server. What an executable graph consists of is sent when it is made
//! ([`executable`]).
//!
//! | question | module |
//! | --- | --- |
//! | what does a node do | [`work`], [`copying`] |
//! | in which order are nodes carried out, and by whom | [`order`] |
//! | what is launched, and what may change of it | [`executable`], [`build`] |
//! | where does memory of allocation nodes come from | [`memory`] |
//! | when is there memory at its addresses | [`reservation`] |
//! | which nodes have the same memory | [`sharing`] |
//! | what lives as long as a graph | [`objects`] |

mod copying;
pub mod memory;
pub mod objects;
pub mod order;
pub mod reservation;
mod sharing;
pub mod work;

use crate::locks::{Mutex, MutexGuard, rank};
use crate::log::refuse_use;
use crate::model::handles;
use causeway_api::handle::{Context, Graph, GraphNode, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};
use memory::{Allocation, Block};
use objects::Held;
use sharing::Blocks;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use work::Work;

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
    origin: Option<Handle<Graph>>,
    /// User objects that it keeps.
    pub held: Held,
    /// The memory of its allocation nodes.
    blocks: Blocks,
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
    origin: Option<Handle<GraphNode>>,
}

/// All graphs and their nodes.
#[derive(Default)]
pub struct World {
    graphs: HashMap<Handle<Graph>, GraphState>,
    nodes: HashMap<Handle<GraphNode>, NodeState>,
}

/// What was removed; to be dropped without the lock, since that may run code of the program or wait.
#[must_use]
#[derive(Default)]
pub struct Removed {
    graphs: Vec<GraphState>,
    nodes: Vec<NodeState>,
}

impl Removed {
    /// What of it is on servers: the graphs of nodes come before the graphs in which those nodes are.
    pub fn on_servers(&self) -> impl Iterator<Item = OnServer> {
        self.graphs.iter().filter_map(|graph| graph.on_server)
    }
}

static WORLD: LazyLock<Mutex<rank::Graphs, World>> = LazyLock::new(Mutex::default);

/// All graphs, for the calling thread alone.
pub fn world() -> MutexGuard<'static, rank::Graphs, World> {
    WORLD.lock()
}

/// The graph that the program passed. One that is no graph, or no more, is an invalid value to the driver
/// (580), not an invalid handle.
pub fn given(raw: CUgraph) -> Result<Handle<Graph>, CUresult> {
    handles::given(raw).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The node that the program passed.
pub fn given_node(raw: CUgraphNode) -> Result<Handle<GraphNode>, CUresult> {
    handles::given(raw)
}

impl World {
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

    /// Takes memory of earlier nodes for one that comes after the nodes `before`; nothing when none suffices.
    pub fn take_memory(
        &mut self,
        graph: Handle<Graph>,
        before: &[Edge],
        device: CUdevice,
        size: usize,
    ) -> Result<Option<(Arc<Block>, CUdeviceptr)>, CUresult> {
        let releases = self.graph(graph)?.blocks.releases(device, size);
        let mut earlier = HashSet::new();
        // Near the end of a chain the nodes that were added last are found at once.
        self.walk_back(before, |node| {
            if releases.contains(&node) {
                earlier.insert(node);
            }
            earlier.len() < releases.len()
        });
        if earlier.is_empty() {
            return Ok(None);
        }
        Ok(self.graph_mut(graph)?.blocks.take(device, size, &earlier))
    }

    /// The memory of the allocation nodes of a graph, and of those that its nodes carry out.
    pub fn allocations(&self, graph: Handle<Graph>) -> Result<Vec<Arc<Allocation>>, CUresult> {
        let mut found = Vec::new();
        for node in &self.graph(graph)?.nodes {
            match &self.node(*node)?.work {
                Work::Allocate(allocation) => found.push(Arc::clone(allocation)),
                work => {
                    for inner in work.graphs() {
                        found.extend(self.allocations(inner)?);
                    }
                }
            }
        }
        Ok(found)
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

    /// Copies a graph with the graphs in it.
    pub fn clone_graph(&mut self, original: Handle<Graph>) -> Result<Handle<Graph>, CUresult> {
        let nodes = self.graph(original)?.nodes.clone();
        for node in &nodes {
            if self.node(*node)?.work.binds_memory() {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            if matches!(self.node(*node)?.work, Work::Conditional(_)) {
                return Err(refuse_use!("copies of graphs with conditional nodes"));
            }
        }
        let held = self.graph(original)?.held.clone();
        let graph = self.create(None);
        let state = self.graph_mut(graph)?;
        (state.origin, state.held) = (Some(original), held);
        let mut clones = HashMap::new();
        for node in &nodes {
            let work = match self.node(*node)?.work.clone() {
                Work::Child(child) => Work::Child(self.clone_graph(child)?),
                work => work,
            };
            let clone = self.add(graph, &[], work)?;
            self.node_mut(clone)?.origin = Some(*node);
            clones.insert(*node, clone);
        }
        for (node, clone) in &clones {
            let ends = |edges: &[Edge]| -> Vec<Edge> {
                let end = |edge: &Edge| Some(Edge { node: *clones.get(&edge.node)?, data: edge.data });
                edges.iter().filter_map(end).collect()
            };
            let state = self.node(*node)?;
            let (before, after) = (ends(&state.before), ends(&state.after));
            let state = self.node_mut(*clone)?;
            (state.before, state.after) = (before, after);
        }
        Ok(graph)
    }

    /// The node of a clone that stands for a node of the graph it was cloned from.
    pub fn find_in_clone(
        &self,
        original: Handle<GraphNode>,
        clone: Handle<Graph>,
    ) -> Result<Handle<GraphNode>, CUresult> {
        let state = self.graph(clone)?;
        if state.origin != Some(self.node(original)?.graph) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let is_clone =
            |node: &&Handle<GraphNode>| self.nodes.get(node).is_some_and(|n| n.origin == Some(original));
        state.nodes.iter().find(is_clone).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The nodes that `tips` are or that come before them.
    pub fn ancestors(&self, tips: &[Edge]) -> Vec<Handle<GraphNode>> {
        let mut found = Vec::new();
        self.walk_back(tips, |node| {
            found.push(node);
            true
        });
        found
    }

    /// Visits the nodes that `tips` are or that come before them, the nearest first, each once, as long as
    /// `goes_on` says.
    fn walk_back(&self, tips: &[Edge], mut goes_on: impl FnMut(Handle<GraphNode>) -> bool) {
        let mut found: Vec<_> = tips.iter().map(|tip| tip.node).collect();
        let mut seen: HashSet<_> = found.iter().copied().collect();
        let mut next = 0;
        while let Some(node) = found.get(next).copied() {
            if !goes_on(node) {
                return;
            }
            next += 1;
            for edge in self.nodes.get(&node).map_or(&[][..], |node| &node.before) {
                if seen.insert(edge.node) {
                    found.push(edge.node);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_connected_within_their_graph_once() {
        let mut world = World::default();
        let (graph, other) = (world.create(None), world.create(None));
        let a = world.add(graph, &[], Work::Empty).unwrap();
        let b = world.add(graph, &[Edge::plain(a)], Work::Empty).unwrap();
        let foreign = world.add(other, &[], Work::Empty).unwrap();
        assert!(world.add(graph, &[Edge::plain(a), Edge::plain(a)], Work::Empty).is_err());
        assert!(world.add(graph, &[Edge::plain(foreign)], Work::Empty).is_err());
        let plain = CUgraphEdgeData::default();
        assert!(world.connect(graph, a, b, plain).is_err() && world.connect(graph, a, a, plain).is_err());
        assert!(world.connect(graph, a, foreign, plain).is_err());
        assert_eq!(world.ancestors(&[Edge::plain(b)]), [b, a]);
        world.disconnect(a, b, None).unwrap();
        assert!(world.disconnect(a, b, None).is_err());
        assert_eq!(world.graph(graph).unwrap().nodes, [a, b]);
        let removed = world.remove_graph(graph).unwrap();
        assert_eq!((removed.graphs.len(), removed.nodes.len()), (1, 2));
        assert!(world.node(a).is_err() && !handles::is_valid(a) && handles::is_valid(foreign));
    }

    #[test]
    fn a_clone_has_its_own_nodes_and_child_graphs() {
        let mut world = World::default();
        let (graph, inner) = (world.create(None), world.create(None));
        world.add(inner, &[], Work::Empty).unwrap();
        let a = world.add(graph, &[], Work::Child(inner)).unwrap();
        let b = world.add(graph, &[Edge::plain(a)], Work::Empty).unwrap();
        assert!(world.remove_graph(inner).is_err(), "it belongs to its node");
        let clone = world.clone_graph(graph).unwrap();
        let (a_clone, b_clone) =
            (world.find_in_clone(a, clone).unwrap(), world.find_in_clone(b, clone).unwrap());
        assert!(a_clone != a && world.node(b_clone).unwrap().before == [Edge::plain(a_clone)]);
        assert!(matches!(world.node(a_clone).unwrap().work, Work::Child(child) if child != inner));
        assert!(world.find_in_clone(a_clone, clone).is_err());
        let removed = world.remove_node(a).unwrap();
        assert_eq!((removed.graphs.len(), removed.nodes.len()), (1, 2));
        assert!(world.node(b).unwrap().before.is_empty());
        assert!(world.remove_graph(graph).is_ok() && world.node(b_clone).is_ok());
    }
}
