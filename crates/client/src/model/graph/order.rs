//! Topological order of the nodes of a graph, and the phase of each: client or server.
//!
//! Nodes that touch the program's memory or call its functions cannot be left to the server's GPU: their turn
//! comes in the client, in stream order. So a graph is divided: *segments* of nodes that become a graph on
//! the server, and between them what the client does. Each segment has as many nodes as can be, so that most
//! graphs are one.

use super::work::Work;
use super::{Edge, GraphStore};
use causeway_api::handle::{Graph, GraphNode, Handle};
use causeway_api::sys::{CUgraphEdgeData, CUresult};
use core::ops::Range;
use std::collections::{BTreeSet, HashMap};

/// A node with its place in the order.
#[derive(Clone)]
pub struct Ordered {
    /// The node.
    pub node: Handle<GraphNode>,
    /// The graph that it is in.
    pub graph: Handle<Graph>,
    /// What it does.
    pub work: Work,
    /// The places of the nodes before it, and what the edges say.
    pub before: Vec<(usize, CUgraphEdgeData)>,
}

/// The nodes of a graph and of its child graphs in an order that the edges allow.
#[derive(Default)]
pub struct NodeOrder {
    /// The nodes. A child node comes after the nodes of its graph, and does nothing itself.
    pub nodes: Vec<Ordered>,
    /// The places of a child node's own graph, by that node.
    pub children: HashMap<Handle<GraphNode>, Range<usize>>,
}

/// When a node is carried out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// By the client, after this many segments.
    Client(usize),
    /// By the server, as part of this segment; the first one is 0.
    Segment(usize),
}

impl NodeOrder {
    /// Puts the nodes of a graph in order. A circle of edges is an error.
    pub fn of(graphs: &GraphStore, graph: Handle<Graph>) -> Result<Self, CUresult> {
        let mut order = Self::default();
        order.append(graphs, graph, &[])?;
        Ok(order)
    }

    /// Appends the nodes of a graph, all after the places `entry`; gives the places of those that nothing
    /// follows.
    fn append(
        &mut self,
        graphs: &GraphStore,
        graph: Handle<Graph>,
        entry: &[usize],
    ) -> Result<Vec<usize>, CUresult> {
        let nodes = &graphs.graph(graph)?.nodes;
        let numbers: HashMap<_, _> = nodes.iter().enumerate().map(|(number, node)| (*node, number)).collect();
        let mut missing = Vec::with_capacity(nodes.len());
        for node in nodes {
            missing.push(graphs.node(*node)?.before.len());
        }
        // Of the nodes that can come next, the one that was added first does.
        let mut ready: BTreeSet<_> = (0..nodes.len()).filter(|number| missing[*number] == 0).collect();
        let mut indices: HashMap<Handle<GraphNode>, usize> = HashMap::new();
        let mut leaves = Vec::new();
        while let Some(number) = ready.pop_first() {
            let node = nodes[number];
            let state = graphs.node(node)?;
            let end = |edge: &Edge| Some((*indices.get(&edge.node)?, edge.data));
            let mut before: Vec<_> = state.before.iter().filter_map(end).collect();
            if before.is_empty() {
                before = plain(entry);
            }
            if let Work::Child(child) = &state.work {
                let entry: Vec<_> = before.iter().map(|(index, _)| *index).collect();
                let first = self.nodes.len();
                let inner = self.append(graphs, *child, &entry)?;
                self.children.insert(node, first..self.nodes.len());
                before = if inner.is_empty() { plain(&entry) } else { plain(&inner) };
            }
            indices.insert(node, self.nodes.len());
            if state.after.is_empty() {
                leaves.push(self.nodes.len());
            }
            self.nodes.push(Ordered { node, graph, work: state.work.clone(), before });
            for edge in &state.after {
                let Some(next) = numbers.get(&edge.node) else { continue };
                missing[*next] -= 1;
                if missing[*next] == 0 {
                    ready.insert(*next);
                }
            }
        }
        if indices.len() < nodes.len() { Err(CUresult::CUDA_ERROR_INVALID_VALUE) } else { Ok(leaves) }
    }
}

fn plain(indices: &[usize]) -> Vec<(usize, CUgraphEdgeData)> {
    indices.iter().map(|index| (*index, CUgraphEdgeData::default())).collect()
}

/// Gives every node its turn. `in_client` says which are the client's, `before` leads to earlier nodes only.
pub fn phases(in_client: &[bool], before: &[Vec<usize>]) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::with_capacity(in_client.len());
    for (is_clients, before) in in_client.iter().zip(before) {
        // How many segments must be over.
        let over = before.iter().map(|index| match (phases[*index], *is_clients) {
            (Phase::Client(over), _) => over,
            (Phase::Segment(segment), true) => segment + 1,
            (Phase::Segment(segment), false) => segment,
        });
        let over = over.max().unwrap_or(0);
        phases.push(if *is_clients { Phase::Client(over) } else { Phase::Segment(over) });
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_topological_and_stable() {
        let mut graphs = GraphStore::default();
        let graph = graphs.create(None);
        let a = graphs.add(graph, &[], Work::Empty).unwrap();
        let b = graphs.add(graph, &[], Work::Empty).unwrap();
        let c = graphs.add(graph, &[], Work::Empty).unwrap();
        graphs.connect(graph, c, a, CUgraphEdgeData::default()).unwrap();
        let order = NodeOrder::of(&graphs, graph).unwrap();
        assert_eq!(order.nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [b, c, a]);
        assert_eq!(order.nodes[2].before, plain(&[1]));
        graphs.connect(graph, a, c, CUgraphEdgeData::default()).unwrap();
        assert!(NodeOrder::of(&graphs, graph).is_err(), "a circle");
    }

    #[test]
    fn child_graph_runs_between_its_neighbours() {
        let mut graphs = GraphStore::default();
        let (graph, inner) = (graphs.create(None), graphs.create(None));
        let x = graphs.add(inner, &[], Work::Empty).unwrap();
        graphs.add(inner, &[], Work::Empty).unwrap();
        let a = graphs.add(graph, &[], Work::Empty).unwrap();
        let child = graphs.add(graph, &[Edge::plain(a)], Work::Child(inner)).unwrap();
        graphs.add(graph, &[Edge::plain(child)], Work::Empty).unwrap();
        let order = NodeOrder::of(&graphs, graph).unwrap();
        assert_eq!(order.nodes.len(), 5);
        assert_eq!(order.nodes[1].node, x);
        assert_eq!((&order.nodes[1].before, &order.nodes[2].before), (&plain(&[0]), &plain(&[0])));
        assert_eq!((order.nodes[3].node, &order.nodes[3].before), (child, &plain(&[1, 2])));
        assert_eq!(order.nodes[4].before, plain(&[3]));
        assert_eq!(order.children[&child], 1..3);
    }

    #[test]
    fn a_graph_is_divided_only_where_it_must_be() {
        use Phase::{Client, Segment};
        // Copies in, kernels, copies out: one segment.
        let before = [vec![], vec![], vec![0], vec![1, 2], vec![3], vec![]];
        let found = phases(&[true, true, false, false, true, false], &before);
        assert_eq!(found, [Client(0), Client(0), Segment(0), Segment(0), Client(1), Segment(0)]);
        // A kernel, a host function that reads its result, a kernel that reads the function's.
        let found = phases(&[false, true, true, false], &[vec![], vec![0], vec![1], vec![2]]);
        assert_eq!(found, [Segment(0), Client(1), Client(1), Segment(1)]);
    }
}
