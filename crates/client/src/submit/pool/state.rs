//! State and attributes of a memory pool.

use super::locations::PoolLocation;
use super::ranges::{self, Ranges};
use crate::model::address::heap::Heap;
use crate::model::address::window;
use crate::model::device;
use crate::model::handles;
use crate::model::memory::{Origin, Piece};
use crate::submit::blocks;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Handle, MemoryPool};
use causeway_api::sys::{CUdevice, CUmemPool_attribute, CUresult};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A pool.
pub struct PoolState {
    /// Its handle.
    pub handle: Handle<MemoryPool>,
    /// Where its memory lies.
    pub location: PoolLocation,
    /// The program's number of its device; of the first one where the memory is no device's.
    pub device: CUdevice,
    /// `CUmemAllocationHandleType`s that it was made for.
    pub handle_types: u32,
    /// Its memory of a device; nothing for a pool of the server, or of another place.
    pub heap: Option<Arc<Heap>>,
    /// Its memory that the program reaches, too.
    pub ranges: Option<Arc<Ranges>>,
    /// Whether the pool is another process's, from which nothing can be allocated here.
    pub is_imported: bool,
    /// The three attributes that permit reuse across streams, in the order of their numbers.
    reuse: [AtomicBool; 3],
    release_threshold: AtomicU64,
}

impl handles::Object for PoolState {
    type Kind = MemoryPool;
}

impl PoolState {
    pub(super) fn new(location: PoolLocation, limit: u64, handle_types: u32, is_imported: bool) -> Arc<Self> {
        let handle = handles::create::<MemoryPool>();
        let (device, is_devices) = match location {
            PoolLocation::Device(device) => (device, true),
            _ => (0, false),
        };
        let known = device::device(device).ok().filter(|_| is_devices);
        let pool = Arc::new(Self {
            handle,
            location,
            device,
            handle_types,
            is_imported,
            heap: known.and_then(|known| window::window(known.server)).map(|_| blocks::new(device, limit)),
            ranges: location.kind().map(|kind| Ranges::new(kind, handle, limit)),
            reuse: [const { AtomicBool::new(true) }; 3],
            release_threshold: AtomicU64::new(0),
        });
        handles::insert(pool.handle, Arc::clone(&pool));
        pool
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64, CUresult> {
        type Attribute = CUmemPool_attribute;
        let (used, reserved) = match (&self.ranges, &self.heap) {
            (Some(ranges), _) => ranges.gauges(),
            (None, Some(heap)) => heap.gauges(),
            (None, None) => {
                let request = calls::memory_pool_attribute_get { pool: self.handle, attribute };
                return send::call_in(device::without_context(self.device)?, &request);
            }
        };
        Ok(match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => self.release_threshold.load(Ordering::Relaxed),
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => reserved.current,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => reserved.high,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => used.current,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => used.high,
            other => self.reuse(other)?.load(Ordering::Relaxed).into(),
        })
    }

    /// Sets an attribute. High marks can only be taken back, by setting them to 0.
    pub fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> Result<(), CUresult> {
        type Attribute = CUmemPool_attribute;
        if self.is_on_server() {
            let request = calls::memory_pool_attribute_set { pool: self.handle, attribute, value };
            return send::call_in(device::without_context(self.device)?, &request);
        }
        let reset_high = |of_reserved| match (&self.ranges, &self.heap) {
            (Some(ranges), _) => ranges.reset_high(of_reserved),
            (None, heap) => heap.iter().for_each(|heap| heap.reset_high(of_reserved)),
        };
        match attribute {
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                self.release_threshold.store(value, Ordering::Relaxed);
                self.heap.iter().for_each(|heap| heap.set_keep(value));
                self.ranges.iter().for_each(|ranges| ranges.set_keep(value));
            }
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => reset_high(true),
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value == 0 => reset_high(false),
            other => self.reuse(other)?.store(value != 0, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Whether its memory is the server's to manage.
    pub fn is_on_server(&self) -> bool {
        self.heap.is_none() && self.ranges.is_none()
    }

    fn reuse(&self, attribute: CUmemPool_attribute) -> Result<&AtomicBool, CUresult> {
        let first = CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES.0;
        let index = attribute.0.wrapping_sub(first) as usize;
        self.reuse.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Whether streams may be made to wait for each other so that one can use memory that another freed.
    pub(super) fn may_join(&self) -> bool {
        let [_, _, internal_dependencies] = &self.reuse;
        internal_dependencies.load(Ordering::Relaxed)
    }
}

/// The pool of a handle.
pub fn get(handle: Handle<MemoryPool>) -> Result<Arc<PoolState>, CUresult> {
    handles::get::<PoolState>(handle)
}

/// The pool that a piece of memory came from, while it exists.
pub fn of_piece(piece: &Piece) -> Option<Arc<PoolState>> {
    if let Some(handle) = ranges::pool_of(piece.base) {
        return get(handle).ok();
    }
    let heap = piece.heap.as_ref().filter(|_| piece.origin == Origin::Pool)?;
    let is_owner = |pool: &PoolState| pool.heap.as_ref().is_some_and(|other| Arc::ptr_eq(other, heap));
    handles::select::<PoolState>(is_owner).pop().map(|(_, pool)| pool)
}
