//! Address and memory of a new allocation node.

use super::memory::{Allocation, Block};
use super::reservation::{Addresses, Backing, Reservation};
use super::{Edge, graphs};
use crate::model::memory::{self, Origin};
use crate::model::{context, device};
use causeway_api::handle::{Graph, Handle};
use causeway_api::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUmemAllocationType, CUmemLocationType, CUresult,
};
use std::sync::Arc;

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
        // SAFETY: as this function demands.
        let others = unsafe { crate::arguments::list(parameters.accessDescs, parameters.accessDescCount) }?;
        if others.iter().any(|access| access.location.id != device) {
            return Err(crate::log::refuse_use!("memory of graphs that other devices reach"));
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
