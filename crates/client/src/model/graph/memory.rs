//! Memory of allocation nodes.
//!
//! The address of such memory is known when the node is made and stays what it is for as long as the graph
//! and its executable graphs live. The memory itself is there while an executable graph needs it, or the
//! program ([`reservation`](super::reservation)). What is in it between two launches is undefined.
//! Nodes of one graph share memory where one comes after the end of the other
//! ([`memory_reuse`](super::memory_reuse)).

use super::reservation::{self, Hold, Reservation, Usage};
use crate::locks::{Mutex, rank};
use crate::model::memory::{self, Origin};
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

/// The memory of all nodes.
struct OfNodes {
    all: LazyLock<Mutex<rank::GraphAllocations, ByAddress>>,
    /// What launches have allocated and nothing has freed since. It outlives its graph.
    live: LazyLock<Mutex<rank::LiveGraphMemory, Live>>,
}

static OF_NODES: OfNodes =
    OfNodes { all: LazyLock::new(Mutex::default), live: LazyLock::new(Mutex::default) };

impl Block {
    /// A part of a reservation.
    pub(super) fn of(
        reservation: Arc<Reservation>,
        address: CUdeviceptr,
        size: usize,
        device: CUdevice,
    ) -> Arc<Self> {
        Arc::new(Self { address, size, device, reservation })
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
    /// The memory of a new node, which is this part of a block.
    pub(super) fn of(block: Arc<Block>, address: CUdeviceptr, size: usize, device: CUdevice) -> Arc<Self> {
        let has_free_node = AtomicBool::new(false);
        let allocation = Arc::new(Self { block, address, size, device, has_free_node });
        OF_NODES.all.lock().entry(address).or_default().push(Arc::downgrade(&allocation));
        allocation
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
        let mut live = OF_NODES.live.lock();
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
        let mut allocations = OF_NODES.all.lock();
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
    let freed = OF_NODES.live.lock().remove(&address);
    match freed {
        // Dropped without the lock, since this may be the end of the memory.
        Some(_freed) => Some(Ok(())),
        None if OF_NODES.all.lock().contains_key(&address) => Some(Err(CUresult::CUDA_ERROR_INVALID_VALUE)),
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
    let allocations = OF_NODES.all.lock();
    allocations.get(&address).map_or(Vec::new(), |here| here.iter().filter_map(Weak::upgrade).collect())
}

/// Bytes of nodes of a device, as an attribute says.
pub fn attribute(device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64, CUresult> {
    let usage = reservation::usage(device);
    match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => Ok(usage.used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => Ok(usage.reserved),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => Ok(usage.used_high),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => Ok(usage.reserved_high),
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
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => |usage: &mut Usage| usage.used_high = 0,
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
            |usage: &mut Usage| usage.reserved_high = 0
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
