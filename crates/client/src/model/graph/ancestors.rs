//! Ancestors of a graph node, and the memory that it can reuse.

use super::memory::{Allocation, Block};
use super::store::{Edge, GraphStore};
use super::work::Work;
use causeway_api::handle::{Graph, GraphNode, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use std::collections::HashSet;
use std::sync::Arc;

impl GraphStore {
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
    /// `continues` says.
    fn walk_back(&self, tips: &[Edge], mut continues: impl FnMut(Handle<GraphNode>) -> bool) {
        let mut found: Vec<_> = tips.iter().map(|tip| tip.node).collect();
        let mut seen: HashSet<_> = found.iter().copied().collect();
        let mut next = 0;
        while let Some(node) = found.get(next).copied() {
            if !continues(node) {
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
}
