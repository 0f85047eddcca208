//! Memory of allocation nodes.
//!
//! The address of such memory is known when the node is made and stays what it is for as long as the graph
//! and its executable graphs live. The memory itself is there while an executable graph needs it, or the
//! program ([`reservation`](super::reservation)). What is in it between two launches is nobody's business.
//! Nodes of one graph share memory where one comes after the end of the other ([`sharing`](super::sharing)).

use super::reservation::{self, Addresses, Backing, Hold, Reservation, Usage};
use super::{Edge, world};
use crate::locks::{Mutex, rank};
use crate::model::memory::{self, Origin};
use crate::model::{context, device};
use causeway_api::handle::{Graph, Handle};
use causeway_api::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps, CUresult,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// Memory of allocation nodes of one graph.
pub struct Block {
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub size: usize,
    /// The program's number of its device.
    pub device: CUdevice,
    /// What it is a part of.
    reservation: Arc<Reservation>,
}

/// The memory of one allocation node.
pub struct Allocation {
    /// What it is a part of.
    pub block: Arc<Block>,
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub size: usize,
    /// The program's number of its device.
    pub device: CUdevice,
    /// Whether a node frees it; no other one may.
    has_free_node: AtomicBool,
}

/// The memory that begins at each address; several nodes may have the same.
type ByAddress = HashMap<CUdeviceptr, Vec<Weak<Allocation>>>;
/// What the program has, by its address.
type Live = HashMap<CUdeviceptr, (Arc<Allocation>, Hold)>;

static ALLOCATIONS: LazyLock<Mutex<rank::GraphAllocations, ByAddress>> = LazyLock::new(Mutex::default);
/// What launches have allocated and nothing has freed since, by its address. It outlives its graph.
static LIVE: LazyLock<Mutex<rank::LiveGraphMemory, Live>> = LazyLock::new(Mutex::default);

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
        let room = world().graph_mut(graph)?.blocks.room(device, size);
        let (reservation, address) = match room {
            Some(room) => room,
            None => {
                // Without the lock, since the server may have to be asked.
                let reservation = Reservation::new(device, size as u64, backing)?;
                let address = world().graph_mut(graph)?.blocks.open(&reservation, size);
                (reservation, address)
            }
        };
        let Addresses { context, is_of_window, .. } = *reservation.addresses();
        if is_of_window {
            memory::add(address, size as u64, context, device, Origin::Allocation)?;
        }
        Ok(Arc::new(Self { address, size, device, reservation }))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.reservation.addresses().is_of_window {
            // A context that has ended took it out.
            memory::remove(self.address, Origin::Allocation);
        }
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
        let shared = world().take_memory(graph, before, device, size)?;
        // Without the lock, since it may have to be asked for.
        let (block, address) = match shared {
            Some(part) => part,
            None => {
                let block = Block::new(graph, device, size, backing)?;
                let address = block.address;
                (block, address)
            }
        };
        let allocation =
            Arc::new(Self { block, address, size, device, has_free_node: AtomicBool::new(false) });
        ALLOCATIONS.lock().entry(address).or_default().push(Arc::downgrade(&allocation));
        Ok(allocation)
    }

    /// As the program gets it.
    pub fn describe(&self) -> CUDA_MEM_ALLOC_NODE_PARAMS {
        CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: CUmemPoolProps {
                allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                location: CUmemLocation {
                    type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                    id: self.device,
                },
                ..CUmemPoolProps::default()
            },
            bytesize: self.size,
            dptr: self.address,
            ..CUDA_MEM_ALLOC_NODE_PARAMS::default()
        }
    }

    /// A launch allocates it. What is not freed since the launch before cannot be allocated again.
    pub fn allocate(self: &Arc<Self>, frees_itself: bool) -> Result<(), CUresult> {
        let mut live = LIVE.lock();
        if live.contains_key(&self.address) {
            return if frees_itself { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
        }
        // The executable graph that is launched has it, so that the server is not asked.
        let hold = self.hold()?;
        live.insert(self.address, (Arc::clone(self), hold));
        Ok(())
    }

    /// Sees to it that there is memory, as long as the result lives.
    pub fn hold(&self) -> Result<Hold, CUresult> {
        self.block.reservation.hold()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut allocations = ALLOCATIONS.lock();
        if let Some(here) = allocations.get_mut(&self.address) {
            here.retain(|allocation| allocation.strong_count() > 0);
            if here.is_empty() {
                allocations.remove(&self.address);
            }
        }
    }
}

/// Frees what a launch has allocated; nothing when the address is not that of a node's memory.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` when no launch has allocated it, or it has been freed since.
pub fn free(address: CUdeviceptr) -> Option<Result<(), CUresult>> {
    let freed = LIVE.lock().remove(&address);
    match freed {
        // Dropped without the lock, since this may be the end of the memory.
        Some(_freed) => Some(Ok(())),
        None if ALLOCATIONS.lock().contains_key(&address) => Some(Err(CUresult::CUDA_ERROR_INVALID_VALUE)),
        None => None,
    }
}

/// Whether a node may free what begins at an address: the memory of a node that no other node frees.
pub fn may_be_freed(address: CUdeviceptr) -> bool {
    select(address).iter().any(|allocation| !allocation.has_free_node.load(Ordering::Acquire))
}

/// A node frees what begins at an address.
pub fn note_free_node(address: CUdeviceptr) {
    for allocation in select(address) {
        if !allocation.has_free_node.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

/// The memory that begins at an address. References are to be dropped without any lock.
fn select(address: CUdeviceptr) -> Vec<Arc<Allocation>> {
    let allocations = ALLOCATIONS.lock();
    allocations.get(&address).map_or(Vec::new(), |here| here.iter().filter_map(Weak::upgrade).collect())
}

/// Bytes of nodes of a device, as an attribute says.
pub fn attribute(device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64, CUresult> {
    let usage = reservation::usage(device);
    match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => Ok(usage.used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => Ok(usage.reserved),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => Ok(usage.most_used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => Ok(usage.most_reserved),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Sets the most bytes so far to what there is now, the only change that CUDA knows.
pub fn reset_attribute(
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: u64,
) -> Result<(), CUresult> {
    let reset = match attribute {
        _ if value != 0 => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => |usage: &mut Usage| usage.most_used = 0,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
            |usage: &mut Usage| usage.most_reserved = 0
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    reservation::count(device, reset);
    Ok(())
}

#[cfg(test)]
impl Block {
    /// A block of which nothing is allocated.
    pub fn for_test(address: CUdeviceptr, size: usize) -> Arc<Self> {
        let reservation = Reservation::for_test(address, size as u64);
        Arc::new(Self { address, size, device: 0, reservation })
    }
}
