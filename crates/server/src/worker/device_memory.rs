//! Device memory of a session: what it has asked for, and the broker's leave to have more.
//!
//! Counted is what a command asks for: allocations, arrays, managed memory of a device, imported allocations. What the
//! driver takes for itself (contexts, code and its variables, local memory) is not.

use crate::locks::{Mutex, rank};
use crate::worker_process::Exchange;
use causeway_api::calls::Request;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUDA_ARRAY3D_DESCRIPTOR, CUlimit, CUmemLocationType, CUresult};
use causeway_api::types::{AllocationProperties, channel_bytes};
use causeway_gpu::CuResult;
use causeway_wire::codec::Decoder;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: arrays whose memory is that of allocations.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Whom to ask.
struct Account {
    exchange: Arc<Exchange>,
    /// All memory of a device that the broker alone divides up among sessions; 0 for another one.
    capacity: u64,
}

/// Memory that a session may have until this is dropped.
pub struct Reservation {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.account.exchange.activity().memory_released(self.bytes);
        self.account.exchange.release(self.bytes);
    }
}

/// What may be freed, and with which context at the latest.
struct Owned {
    context: Handle<Context>,
    reservation: Arc<Reservation>,
}

#[derive(Default)]
struct Table {
    /// Memory of `memory_allocate` and its like, and mirrors, by their addresses.
    addresses: HashMap<u64, Owned>,
    /// Allocations, blocks and arrays, by the client's handles.
    objects: HashMap<u64, Owned>,
    /// The heaps of `malloc` in kernels, by their contexts.
    heaps: HashMap<u64, Reservation>,
    /// Allocations stay as long as they are mapped: by address, with the size.
    mappings: BTreeMap<u64, (u64, Arc<Reservation>)>,
}

/// The device memory that a session has.
pub struct DeviceMemory {
    account: Arc<Account>,
    table: Mutex<rank::Leaf, Table>,
}

impl DeviceMemory {
    /// Nothing yet. `capacity` is all memory of a device that only the broker divides up, if it is such a one.
    pub fn new(exchange: Arc<Exchange>, capacity: Option<u64>) -> Self {
        let account = Arc::new(Account { exchange, capacity: capacity.unwrap_or(0) });
        Self { account, table: Mutex::default() }
    }

    /// Asks for what a command takes; nothing where it takes none.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` where the session may not have as much.
    pub fn reserve_for(&self, request: &Request<'_>) -> CuResult<Option<Reservation>> {
        let bytes = match request {
            // A device in software has no memory of its own for it.
            Request::context_limit_set(_) if self.account.capacity != 0 => 0,
            request => bytes_of(request),
        };
        if bytes == 0 { Ok(None) } else { self.reserve(bytes).map(Some) }
    }

    /// Asks for so many bytes.
    ///
    /// # Errors
    /// As [`Self::reserve_for`].
    pub fn reserve(&self, bytes: u64) -> CuResult<Reservation> {
        let account = Arc::clone(&self.account);
        if !account.exchange.reserve(bytes, account.capacity) {
            tracing::debug!(bytes, "the broker refused device memory");
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        account.exchange.activity().memory_reserved(bytes);
        Ok(Reservation { account, bytes })
    }

    /// Takes note of a command that has been carried out in `context` with this reply, and took this memory.
    pub fn carried_out(
        &self,
        request: &Request<'_>,
        context: Handle<Context>,
        reply: &[u8],
        reservation: Option<Reservation>,
    ) {
        if let Some(reservation) = reservation {
            return self.keep(request, context, reply, reservation);
        }
        // Dropped when the lock is not held any more.
        let _released: Vec<Arc<Reservation>> = match request {
            Request::memory_block_release(block) => self.take_object(block.block.value()),
            Request::allocation_release(release) => self.take_object(release.allocation.value()),
            Request::allocation_map(map) => {
                let mut table = self.table.lock();
                let owned = table.objects.get(&map.allocation.value());
                let reservation = owned.map(|owned| Arc::clone(&owned.reservation));
                let before = reservation.and_then(|reservation| {
                    table.mappings.insert(map.address, (map.size as u64, reservation))
                });
                before.map(|(_, reservation)| reservation).into_iter().collect()
            }
            Request::allocation_unmap(unmap) => {
                let (start, size) = (unmap.address, unmap.size as u64);
                let mut table = self.table.lock();
                let end = start.saturating_add(size);
                let unmapped: Vec<_> =
                    table.mappings.range(start..end).map(|(address, _)| *address).collect();
                unmapped.iter().filter_map(|address| Some(table.mappings.remove(address)?.1)).collect()
            }
            _ => Vec::new(),
        };
    }

    fn keep(&self, request: &Request<'_>, context: Handle<Context>, reply: &[u8], reservation: Reservation) {
        if let Request::context_limit_set(_) = request {
            let before = self.table.lock().heaps.insert(context.value(), reservation);
            return drop(before);
        }
        // What the client has mapped itself outlives contexts.
        let (object, context) = match request {
            Request::memory_block_create(block) => (Some(block.block.value()), Handle::NULL),
            Request::allocation_create(create) => (Some(create.allocation.value()), Handle::NULL),
            Request::cuArray3DCreate_v2(create) => (Some(create.pHandle.value()), context),
            Request::cuMipmappedArrayCreate(create) => (Some(create.pHandle.value()), context),
            // The others answer with an address.
            _ => (None, context),
        };
        let owned = Owned { context, reservation: Arc::new(reservation) };
        let mut table = self.table.lock();
        let before = match object {
            Some(handle) => table.objects.insert(handle, owned),
            None => table.addresses.insert(Decoder::new(reply).value().unwrap_or(0), owned),
        };
        drop(table);
        drop(before);
    }

    /// An imported allocation is there, under the client's handle.
    pub fn imported(&self, allocation: u64, reservation: Reservation) {
        let owned = Owned { context: Handle::NULL, reservation: Arc::new(reservation) };
        let before = self.table.lock().objects.insert(allocation, owned);
        drop(before);
    }

    /// What is at an address that is about to be freed; it is to be dropped when that has been done.
    pub fn take_address(&self, address: u64) -> impl Send + use<> {
        self.table.lock().addresses.remove(&address).map(|owned| owned.reservation)
    }

    /// What belongs to an array that is about to be destroyed; it is to be dropped when that has been done.
    pub fn take_array(&self, handle: u64) -> impl Send + use<> {
        self.take_object(handle)
    }

    fn take_object(&self, handle: u64) -> Vec<Arc<Reservation>> {
        let removed = self.table.lock().objects.remove(&handle);
        removed.map(|owned| owned.reservation).into_iter().collect()
    }

    /// A context has ended, and its memory with it.
    pub fn context_ended(&self, context: Handle<Context>) {
        let mut table = self.table.lock();
        let is_its = |owned: &Owned| owned.context == context;
        let addresses: Vec<_> = table.addresses.extract_if(|_, owned| is_its(owned)).collect();
        let objects: Vec<_> = table.objects.extract_if(|_, owned| is_its(owned)).collect();
        let heap = table.heaps.remove(&context.value());
        drop(table);
        drop((addresses, objects, heap));
    }

    /// What the session sees of a device's free and total memory.
    pub fn visible(&self, free: usize, total: usize) -> (usize, usize) {
        let Some((limit, left)) = self.account.exchange.memory_info(self.account.capacity) else {
            return (free, total);
        };
        let of = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        (free.min(of(left)), total.min(of(limit)))
    }
}

/// Bytes of device memory that a command takes; 0 for one that takes none.
fn bytes_of(request: &Request<'_>) -> u64 {
    match request {
        Request::memory_allocate(allocate) => allocate.size as u64,
        Request::memory_allocate_async(allocate) => allocate.size as u64,
        Request::memory_block_create(block) => block.size as u64,
        Request::allocation_create(create) if is_on_device(&create.properties) => create.size as u64,
        Request::mirror_create(create) if create.managed != 0 => create.size as u64,
        Request::cuArray3DCreate_v2(create) => array_bytes(&create.pAllocateArray, 1),
        Request::cuMipmappedArrayCreate(create) => {
            array_bytes(&create.pMipmappedArrayDesc, create.numMipmapLevels)
        }
        Request::context_limit_set(set) if set.limit == CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => {
            set.value as u64
        }
        _ => 0,
    }
}

/// Whether an allocation is memory of a device.
pub fn is_on_device(properties: &AllocationProperties) -> bool {
    properties.location == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0
}

/// Bytes of an array and its smaller levels; what the driver adds for alignment is not counted.
fn array_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    if descriptor.Flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    // Compressed formats and those of video have a byte or less for each channel of a texel.
    let channel = channel_bytes(descriptor.Format).unwrap_or(1);
    let texel = channel.saturating_mul(descriptor.NumChannels.into());
    let extent = [descriptor.Width, descriptor.Height, descriptor.Depth];
    let level = |number: u32| {
        let texels = extent.map(|length| (length as u64).checked_shr(number).unwrap_or(0).max(1));
        texels.into_iter().fold(texel, u64::saturating_mul)
    };
    // No array has more levels.
    (0..levels.min(u64::BITS)).fold(0, |sum: u64, number| sum.saturating_add(level(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::sys::CUarray_format;

    #[test]
    fn arrays_take_what_their_levels_have() {
        let descriptor = |width, height, depth, flags| CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: CUarray_format::CU_AD_FORMAT_FLOAT,
            NumChannels: 2,
            Flags: flags,
        };
        assert_eq!(array_bytes(&descriptor(10, 0, 0, 0), 1), 80);
        assert_eq!(array_bytes(&descriptor(4, 4, 2, 0), 3), 8 * (32 + 4 + 1));
        assert_eq!(array_bytes(&descriptor(10, 10, 0, 0x40), 1), 0, "sparse");
        assert_eq!(array_bytes(&descriptor(usize::MAX, usize::MAX, 2, 0), u32::MAX), u64::MAX);
    }
}
