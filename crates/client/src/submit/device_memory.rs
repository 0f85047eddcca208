//! Device memory: the blocks that the server makes for a heap, and checks of addresses that the program
//! passes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use causeway_api::calls;
use causeway_api::handle::{Allocation, Context, Handle};
use causeway_api::sys::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocationType, CUresult,
};
use causeway_api::types::{AddressAccess, AllocationProperties, ExportToken};

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::address::free_ranges::UNIT;
use crate::model::address::heap::{Block, BlockSource, Heap, of_device};
use crate::model::address::window::{self, Window};
use crate::model::memory::{self, Origin, Piece};
use crate::model::stream::StreamState;
use crate::model::{context, device, exchange, handles, host_memory};
use crate::remote::{mirrored, session};
use crate::submit::{ipc_imports, send};

/// Smaller allocations share blocks; larger ones have one of their own.
const MAX_SHARED_BYTES: u64 = 8 << 20;
/// Blocks for small allocations grow from the first size to the second with what the heap holds.
const BLOCK_SIZES: (u64, u64) = (4 << 20, 32 << 20);
const READ_AND_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/// The heaps of `cuMemAlloc`, by context.
static OF_CONTEXTS: LazyLock<Mutex<rank::HeapsOfContexts, HashMap<u64, Arc<Heap>>>> =
    LazyLock::new(Mutex::default);

/// A heap without memory of a device; `limit` is the most it may hold, 0 for no limit.
pub fn new(device: CUdevice, limit: u64) -> Arc<Heap> {
    Heap::new(device, limit, &Servers)
}

/// The heap that `cuMemAlloc` takes memory from; nothing where the session has no window.
pub fn of_context(context: Handle<Context>, device: CUdevice) -> Option<Arc<Heap>> {
    window::window(context.server())?;
    let mut heaps = OF_CONTEXTS.lock();
    Some(Arc::clone(heaps.entry(context.value()).or_insert_with(|| {
        let heap = new(device, 0);
        for peer in peers_of(device) {
            heap.note_access(peer, READ_AND_WRITE);
        }
        heap
    })))
}

/// Whether an address lies in the window, or in a block of `cuMemAlloc`, though the program has no memory there:
/// it was freed, or never allocated.
pub fn is_vacant(address: u64) -> bool {
    let Some(window) = window::at(address) else { return false };
    let contains =
        |heap: &Arc<Heap>| heap.block_of(address).is_some_and(|(base, block)| address - base < block.size);
    window.is_free(address) || {
        let heaps: Vec<_> = OF_CONTEXTS.lock().values().cloned().collect();
        heaps.iter().any(contains)
    }
}

/// The devices (the server's numbers) that reach memory of a device. They get access from the beginning: the
/// driver copies memory of its own from any device, with or without peer access, and must be able to do so
/// with ours.
pub fn peers_of(device: CUdevice) -> impl Iterator<Item = CUdevice> {
    let session = device::without_context(device).and_then(session::of).ok();
    let own = device::on_server(device).ok();
    let count = session.map_or(0, |session| session.snapshot.devices.len());
    (0..count).filter_map(move |peer| {
        let known = session?.snapshot.peers.get(peer * count + own? as usize)?;
        (known.can_access && Some(peer as CUdevice) != own).then_some(peer as CUdevice)
    })
}

/// Forgets the pieces of memory of a context that ends; pools get theirs back, and the caller what is no device's.
pub fn end_pieces(context: Handle<Context>) -> Vec<Piece> {
    let (of_pools, others): (Vec<_>, Vec<_>) =
        memory::context_ends(context).into_iter().partition(|piece| piece.origin == Origin::Pool);
    if !of_pools.is_empty() {
        // Its error, if there is one, ends with the context.
        let _ = context::state(context).and_then(|state| state.synchronize());
    }
    for piece in of_pools {
        if let Some(heap) = &piece.heap {
            heap.free(piece.base, piece.size, None);
        }
    }
    others
}

/// Releases the memory of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    let heap = OF_CONTEXTS.lock().remove(&context.value());
    if let Some(heap) = heap {
        // Its error, if there is one, ends with the context.
        let _ = context::state(context).and_then(|state| state.synchronize());
        heap.release_all();
    }
}

impl Heap {
    /// Allocates memory, for use in `stream` from its end on, or by everybody.
    ///
    /// # Errors
    /// What the server says when it has no more memory, `CUDA_ERROR_OUT_OF_MEMORY` as a rule.
    pub fn allocate(&self, size: u64, stream: Option<&StreamState>) -> Result<u64, CUresult> {
        let rounded = size.checked_next_multiple_of(UNIT).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        loop {
            if let Some(base) = self.take(rounded, stream) {
                return Ok(base);
            }
            // Another thread may be faster in taking what is new; then there is another turn.
            let window = window::window(self.without_context()?.server());
            self.grow(window.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?, rounded)?;
        }
    }

    /// Where commands about its memory go.
    fn without_context(&self) -> Result<Handle<Context>, CUresult> {
        device::without_context(self.device)
    }

    /// Has the server make a block for at least `size` bytes.
    fn grow(&self, window: &Window, size: u64) -> Result<(), CUresult> {
        let granularity = window.granularity();
        let exact = size.checked_next_multiple_of(granularity).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let held = self.gauges().1.current;
        let shared = held.clamp(BLOCK_SIZES.0, BLOCK_SIZES.1).next_multiple_of(granularity);
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if size <= MAX_SHARED_BYTES && shared > exact {
            match self.make_block(window, shared) {
                Err(error) if error == out_of_memory => {}
                outcome => return outcome,
            }
        }
        match self.make_block(window, exact) {
            Err(error) if error == out_of_memory => {}
            outcome => return outcome,
        }
        // What heaps of this device keep may be what is missing.
        info!("the device has no {exact} bytes left; cached free memory is released");
        let heaps = of_device(self.device);
        for stream in heaps.iter().flat_map(|heap| heap.streams()) {
            // An error of its work is no reason to give up; it is reported where the work is waited for.
            let _ = stream.synchronize();
        }
        heaps.iter().for_each(|heap| heap.trim(0));
        self.make_block(window, exact)
    }

    fn make_block(&self, window: &Window, size: u64) -> Result<(), CUresult> {
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let (reserved, accessors) = (self.gauges().1.current, self.accessors());
        if self.limit != 0
            && reserved.saturating_add(size) > self.limit.next_multiple_of(window.granularity())
        {
            return Err(out_of_memory);
        }
        let nowhere = self.without_context()?;
        let base = window.take(size, 0, 0).ok_or(out_of_memory)?;
        let block = handles::create::<Allocation>();
        let request = calls::memory_block_create {
            block,
            address: base,
            size: size as usize,
            device: device::on_server(self.device)?,
            accessors: accessors
                .iter()
                .filter(|(_, flags)| *flags == READ_AND_WRITE)
                .map(|(d, _)| *d)
                .collect(),
        };
        if let Err(error) = send::call_in(nowhere, &request) {
            handles::drop_handle(block);
            window.release(base, size);
            if error == CUresult::CUDA_ERROR_NOT_SUPPORTED {
                window::lose(nowhere.server());
            }
            return Err(error);
        }
        for (accessor, flags) in accessors.into_iter().filter(|(_, flags)| *flags != READ_AND_WRITE) {
            set_access(nowhere, base, size, accessor, flags)?;
        }
        self.add_block(base, Block { handle: block, size, token: None });
        Ok(())
    }

    /// Lets other processes have the block in which an address lies; gives its token and its first address.
    pub fn export(&self, address: u64) -> Result<(ExportToken, u64), CUresult> {
        let gone = CUresult::CUDA_ERROR_INVALID_VALUE;
        let (base, block) = self.block_of(address).ok_or(gone)?;
        if let Some(token) = block.token {
            return Ok((token, base));
        }
        let properties = AllocationProperties {
            kind: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED.0,
            handle_types: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0,
            location: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0,
            location_id: device::on_server(self.device)?,
            ..AllocationProperties::default()
        };
        let request =
            calls::allocation_export { allocation: block.handle, size: block.size as usize, properties };
        let token = send::call_in(self.without_context()?, &request)?;
        Ok((self.note_export(base, block.handle, token).ok_or(gone)?, base))
    }

    /// Sets what another device (the server's number) may do with the heap's memory, now and later.
    pub fn set_access(&self, accessor: CUdevice, flags: CUmemAccess_flags) -> Result<(), CUresult> {
        let ranges = self.note_access(accessor, flags);
        let nowhere = self.without_context()?;
        ranges.into_iter().try_for_each(|(base, size)| set_access(nowhere, base, size, accessor, flags))
    }
}

/// The servers, which make the blocks.
struct Servers;

impl BlockSource for Servers {
    fn release(&self, device: CUdevice, blocks: Vec<(u64, Block)>) {
        // A heap is of a device that the program has.
        let Ok(nowhere) = device::without_context(device) else { return };
        for (base, Block { handle, size, token }) in blocks {
            handles::drop_handle(handle);
            ipc_imports::end(handle);
            if let Some(token) = token {
                exchange::withdrawn(&token);
                // As below: an error means that the session is lost.
                let _ = send::post_in(nowhere, &calls::export_withdraw { token });
            }
            let request = calls::memory_block_release { block: handle, address: base, size: size as usize };
            // The addresses may be used again at once: the server carries commands out in order. An error
            // means that the session is lost, and its memory with it.
            let _ = send::post_in(nowhere, &request);
            if let Some(window) = window::window(nowhere.server()) {
                window.release(base, size);
            }
        }
    }
}

/// Lets a device use a block.
fn set_access(
    nowhere: Handle<Context>,
    base: u64,
    size: u64,
    device: CUdevice,
    flags: CUmemAccess_flags,
) -> Result<(), CUresult> {
    let location = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    let access = vec![AddressAccess { location, location_id: device, flags: flags.0 }];
    send::call_in(nowhere, &calls::address_access { address: base, size: size as usize, access })
}

/// Refuses a range that begins in known memory of a device and ends outside it, and one in memory that was freed.
/// Only the server knows of other ranges: one may be a variable that the program never asked for. Pinned memory gets its
/// mirror, since the device is about to use it.
pub fn check_range(address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    if memory::contains_range(address, bytes)? {
        return Ok(());
    }
    mirrored::note_address(address)?;
    if !is_vacant(address) { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

/// Whether an address is one of a device and not the program's own: the program itself can read and write nothing there.
pub fn is_of_device(address: usize) -> bool {
    window::at(address as u64).is_some() && host_memory::find_mapping(address).is_none()
}

/// Whether the client itself knows what lies at an address.
pub fn is_known(address: CUdeviceptr) -> bool {
    memory::is_known(address) || mirrored::contains(address)
}

/// Waits until the server has used an address that is not known here, so that the call that passed it reports the
/// error, and no other thread.
#[cold]
pub fn wait_for_server(context: Handle<Context>) -> Result<(), CUresult> {
    send::call_in(context, &calls::cuMemGetInfo_v2 {})?;
    session::of(context)?.faults().take()
}
