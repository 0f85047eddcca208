//! Memory of allocation nodes.
//!
//! The address of such memory is known when the node is made and stays what it is for as long as the graph and its
//! executable graphs live, so the memory is allocated once, with the node, and freed with the last of them. What is
//! in it between two launches is nobody's business; that it need not be freed and allocated anew is faster and costs
//! the reuse of one node's memory by another.

use crate::{calls, context, device};
use causeway_api::sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps, CUresult,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// The memory of one allocation node.
pub struct Allocation {
    /// Its first address.
    pub address: CUdeviceptr,
    /// Its size in bytes.
    pub size: usize,
    /// The program's number of its device.
    pub device: CUdevice,
    /// Whether a launch has allocated it and nothing has freed it since.
    is_live: AtomicBool,
}

/// Bytes that nodes of a device have, now and at most.
#[derive(Clone, Copy, Default)]
struct Usage {
    used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
}

static ALLOCATIONS: LazyLock<Mutex<HashMap<CUdeviceptr, Weak<Allocation>>>> = LazyLock::new(Mutex::default);
static USAGE: LazyLock<Mutex<HashMap<CUdevice, Usage>>> = LazyLock::new(Mutex::default);

impl Allocation {
    /// Allocates what a node describes.
    ///
    /// # Safety
    /// The list of access descriptions must be as long as it says.
    pub unsafe fn new(parameters: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Arc<Self>, CUresult> {
        let properties = &parameters.poolProps;
        let is_on_device = properties.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let is_pinned = properties.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        if !is_on_device || !is_pinned || parameters.bytesize == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let device = properties.location.id;
        // SAFETY: as this function demands.
        let others = unsafe { crate::entry::list(parameters.accessDescs, parameters.accessDescCount) }?;
        if others.iter().any(|access| access.location.id != device) {
            return Err(crate::entry::refuse_use!("memory of graphs that other devices reach"));
        }
        Self::on(device, parameters.bytesize)
    }

    /// Allocates on a device.
    pub fn on(device: CUdevice, size: usize) -> Result<Arc<Self>, CUresult> {
        device::on_server(device)?;
        let context = context::current_state()?;
        if context.device != device {
            return Err(crate::entry::refuse_use!("memory of graphs on another device than the current one"));
        }
        let address = calls::allocate_memory(size)?;
        let allocation = Arc::new(Self { address, size, device, is_live: AtomicBool::new(false) });
        ALLOCATIONS.lock().insert(address, Arc::downgrade(&allocation));
        let mut usage = USAGE.lock();
        let usage = usage.entry(device).or_default();
        usage.reserved += size as u64;
        usage.reserved_high = usage.reserved_high.max(usage.reserved);
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
    pub fn allocate(&self, frees_itself: bool) -> Result<(), CUresult> {
        if self.is_live.swap(true, Ordering::AcqRel) {
            return if frees_itself { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
        }
        let mut usage = USAGE.lock();
        let usage = usage.entry(self.device).or_default();
        usage.used += self.size as u64;
        usage.used_high = usage.used_high.max(usage.used);
        Ok(())
    }

    fn free(&self) {
        if self.is_live.swap(false, Ordering::AcqRel) {
            USAGE.lock().entry(self.device).or_default().used -= self.size as u64;
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.free();
        ALLOCATIONS.lock().remove(&self.address);
        USAGE.lock().entry(self.device).or_default().reserved -= self.size as u64;
        // An error of the work before is reported by the stream; the context may be gone, and its memory with it.
        let _ = calls::free_memory(self.address);
    }
}

/// Frees what a node allocated; false when the address is not that of a node's memory.
pub fn free(address: CUdeviceptr) -> bool {
    let found = ALLOCATIONS.lock().get(&address).and_then(Weak::upgrade);
    found.as_ref().map(|allocation| allocation.free()).is_some()
}

/// Whether an address is that of a node's memory.
pub fn is_ours(address: CUdeviceptr) -> bool {
    ALLOCATIONS.lock().contains_key(&address)
}

/// Bytes of nodes of a device, as an attribute says.
pub fn attribute(device: CUdevice, attribute: CUgraphMem_attribute) -> Result<u64, CUresult> {
    let usage = USAGE.lock().get(&device).copied().unwrap_or_default();
    match attribute {
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => Ok(usage.used),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => Ok(usage.used_high),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => Ok(usage.reserved),
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
    let mut usage = USAGE.lock();
    let usage = usage.entry(device).or_default();
    match attribute {
        _ if value != 0 => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => {
            usage.used_high = usage.used;
            Ok(())
        }
        CUgraphMem_attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => {
            usage.reserved_high = usage.reserved;
            Ok(())
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}
