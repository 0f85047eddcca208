//! Allocation nodes: address and memory of a new one, its ancestors, and the memory of theirs that it can
//! reuse.

use std::collections::HashSet;
use std::sync::Arc;

use causeway_api::handle::{Graph, GraphNode, Handle};
use causeway_api::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUmemAllocationType, CUmemLocationType, CUresult,
};

use crate::model::graph::memory::{Allocation, Block};
use crate::model::graph::reservation::{Addresses, Backing, Reservation};
use crate::model::graph::store::GraphStore;
use crate::model::graph::work::Work;
use crate::model::graph::{Edge, graphs};
use crate::model::memory::{self, Origin};
use crate::model::{context, device};

impl Block {
    fn new(
        graph: Handle<Graph>,
        device: CUdevice,
        size: usize,
        backing: &'static dyn Backing,
    ) -> Result<Arc<Self>, CUresult> {
        let context = context::current_state()?;
        if context.device != device {
            return Err(crate::log::refuse_use!("memory of graphs on another device than the current one"));
        }
        let reuse = graphs().graph_mut(graph)?.blocks.reuse(device, size);
        let (reservation, address) = match reuse {
            Some(reuse) => reuse,
            None => {
                // Without the lock, since the server may have to be asked.
                let reservation = Reservation::new(device, size as u64, backing)?;
                let address = graphs().graph_mut(graph)?.blocks.open(&reservation, size);
                (reservation, address)
            }
        };
        let Addresses { context, is_of_window, .. } = *reservation.addresses();
        if is_of_window {
            memory::add(address, size as u64, context, device, Origin::Allocation)?;
        }
        Ok(Self::of(reservation, address, size, device))
    }
}

impl Allocation {
    /// Memory as a description says, for a node of a graph that comes after others.
    ///
    /// # Safety
    /// The list of access descriptions must be as long as it says.
    pub unsafe fn new(
        graph: Handle<Graph>,
        before: &[Edge],
        parameters: &CUDA_MEM_ALLOC_NODE_PARAMS,
        backing: &'static dyn Backing,
    ) -> Result<Arc<Self>, CUresult> {
        let properties = &parameters.poolProps;
        let is_on_device = properties.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let is_pinned = properties.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        if !is_on_device || !is_pinned || parameters.bytesize == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = properties.location.id;
        // SAFETY: the caller's list of access descriptions has `accessDescCount` entries or is null.
        let others = unsafe { crate::arguments::list(parameters.accessDescs, parameters.accessDescCount) }?;
        if others.iter().any(|access| access.location.id != device) {
            return Err(crate::log::refuse_use!("memory of graphs that other devices access"));
        }
        Self::on(graph, before, device, parameters.bytesize, backing)
    }

    /// Memory on a device, for a node of a graph that comes after others: what earlier nodes had, if it
    /// suffices.
    pub fn on(
        graph: Handle<Graph>,
        before: &[Edge],
        device: CUdevice,
        size: usize,
        backing: &'static dyn Backing,
    ) -> Result<Arc<Self>, CUresult> {
        device::on_server(device)?;
        let shared = graphs().take_memory(graph, before, device, size)?;
        // Without the lock, since it may have to be asked for.
        let (block, address) = match shared {
            Some(part) => part,
            None => {
                let block = Block::new(graph, device, size, backing)?;
                let address = block.address;
                (block, address)
            }
        };
        Ok(Self::of(block, address, size, device))
    }
}

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
