//! Graph clones, and the node of a clone for a node of the original.

use super::store::{Edge, GraphStore};
use super::work::Work;
use crate::log::refuse_use;
use causeway_api::handle::{Graph, GraphNode, Handle};
use causeway_api::sys::CUresult;
use std::collections::HashMap;

impl GraphStore {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_has_its_own_nodes_and_child_graphs() {
        let mut graphs = GraphStore::default();
        let (graph, inner) = (graphs.create(None), graphs.create(None));
        graphs.add(inner, &[], Work::Empty).unwrap();
        let a = graphs.add(graph, &[], Work::Child(inner)).unwrap();
        let b = graphs.add(graph, &[Edge::plain(a)], Work::Empty).unwrap();
        assert!(graphs.remove_graph(inner).is_err(), "it belongs to its node");
        let clone = graphs.clone_graph(graph).unwrap();
        let (a_clone, b_clone) =
            (graphs.find_in_clone(a, clone).unwrap(), graphs.find_in_clone(b, clone).unwrap());
        assert!(a_clone != a && graphs.node(b_clone).unwrap().before == [Edge::plain(a_clone)]);
        assert!(matches!(graphs.node(a_clone).unwrap().work, Work::Child(child) if child != inner));
        assert!(graphs.find_in_clone(a_clone, clone).is_err());
        let removed = graphs.remove_node(a).unwrap();
        assert_eq!((removed.graphs.len(), removed.nodes.len()), (1, 2));
        assert!(graphs.node(b).unwrap().before.is_empty());
        assert!(graphs.remove_graph(graph).is_ok() && graphs.node(b_clone).is_ok());
    }
}
