//! Creation and destruction of memory pools.

use super::locations::PoolLocation;
use super::ranges::Ranges;
use super::state::PoolState;
use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use crate::model::address::heap::Heap;
use crate::model::handles::{self, RawHandle as _};
use crate::model::{context, device, host_window};
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::MemoryPool;
use causeway_api::sys::{CUmemAllocationHandleType, CUresult};
use std::sync::Arc;

/// Memory of destroyed pools that is not free yet, or not known to be.
struct Ending {
    heaps: Mutex<rank::EndingPools, Vec<Arc<Heap>>>,
    ranges: Mutex<rank::EndingPools, Vec<Arc<Ranges>>>,
}

static ENDING: Ending = Ending { heaps: Mutex::new(Vec::new()), ranges: Mutex::new(Vec::new()) };

/// Makes a pool that holds at most `limit` bytes; 0 sets no limit.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` for memory that the program reaches, too, where there are no addresses for it.
pub fn create(location: PoolLocation, limit: usize, handle_types: u32) -> Result<Arc<PoolState>, CUresult> {
    if location.kind().is_some() && !host_window::is_open() {
        return Err(refuse_use!("pools of host or managed memory: no addresses are free for it"));
    }
    sweep();
    let pool = PoolState::new(location, limit as u64, handle_types, false);
    if pool.is_on_server() {
        let on_server = device::on_server(pool.device)?;
        let request = calls::memory_pool_create { pool: pool.handle, device: on_server, limit };
        send::call_in(device::without_context(pool.device)?, &request).inspect_err(|_| {
            handles::remove::<PoolState>(pool.handle);
            handles::drop_handle(pool.handle);
        })?;
    }
    Ok(pool)
}

/// A pool of another process, of the device with this number on the server.
pub fn import(ordinal: i32) -> Result<Arc<PoolState>, CUresult> {
    // The call says no device, so it is looked for where the current context is.
    let server = context::current_or_none().server();
    let number = device::number_of(server, ordinal).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let descriptor = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
    Ok(PoolState::new(PoolLocation::Device(number), 0, descriptor, true))
}

/// Ends a pool. Memory that is allocated from it stays valid until it is freed.
pub(super) fn end(pool: &PoolState) -> Result<(), CUresult> {
    handles::remove::<PoolState>(pool.handle);
    match (&pool.ranges, &pool.heap) {
        (Some(ranges), _) => {
            handles::drop_handle(pool.handle);
            ranges.end();
            ENDING.ranges.lock().push(Arc::clone(ranges));
            sweep();
            Ok(())
        }
        (None, Some(heap)) => {
            handles::drop_handle(pool.handle);
            heap.end();
            ENDING.heaps.lock().push(Arc::clone(heap));
            sweep();
            Ok(())
        }
        (None, None) => {
            let request =
                calls::cuMemPoolDestroy { pool: handles::retire::<MemoryPool>(pool.handle.as_raw())? };
            send::post_in(device::without_context(pool.device)?, &request)
        }
    }
}

/// Lets go of what destroyed pools have free by now.
fn sweep() {
    ENDING.heaps.lock().retain(|heap| {
        heap.trim(0);
        heap.gauges().1.current > 0
    });
    // The server is told without the lock.
    let ending = core::mem::take(&mut *ENDING.ranges.lock());
    let left = ending.into_iter().filter(|ranges| {
        ranges.trim(0);
        ranges.gauges().1.current > 0
    });
    let left: Vec<_> = left.collect();
    ENDING.ranges.lock().extend(left);
}
