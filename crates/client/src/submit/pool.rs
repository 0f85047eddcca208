//! Pools for stream-ordered allocation.
//!
//! A pool is a heap whose free memory belongs to the stream that freed it until the work before the free is
//! known to be done, so neither allocating nor freeing asks the server. Where the session has no window of
//! addresses, pools are the server's. Memory that the program reaches, too, is made of ranges of the host
//! window.

pub mod defaults;
mod lifetime;
pub mod locations;
pub mod ranges;
mod state;

use crate::log::info;
use crate::model::address::heap::{self, Heap, ReusePoint};
use crate::model::context;
use crate::model::handles;
use crate::model::memory::{self, Origin, Piece};
use crate::model::numbers;
use crate::model::stream::StreamState;
use crate::remote::session;
use crate::submit::{capture, event, ipc, send};
use causeway_api::calls;
use causeway_api::sys::{CUdeviceptr, CUresult};
use std::sync::Arc;

pub use lifetime::{create, import};
pub use state::{PoolState, get, of_piece};

/// Destroys a pool, which must be none that its place has from the start.
pub fn destroy(pool: &PoolState) -> Result<(), CUresult> {
    if defaults::is_default(pool) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    lifetime::end(pool)
}

/// Allocates from a pool, for use in `stream` from its end on.
pub fn allocate(pool: &PoolState, size: usize, stream: &StreamState) -> Result<CUdeviceptr, CUresult> {
    session::of(stream.context)?.faults().check()?;
    if pool.is_imported {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if let Some(ranges) = &pool.ranges {
        return ranges.allocate(size, stream, context::state(stream.context)?.device);
    }
    if let Some(heap) = &pool.heap {
        let outcome = match heap.take(size as u64, Some(stream)) {
            Some(base) => Ok(base),
            None => {
                if pool.may_join() && heap.is_full_of_free() {
                    join(heap, size as u64, stream)?;
                }
                heap.allocate(size as u64, Some(stream))
            }
        };
        let base = outcome?;
        memory::insert(Piece {
            base,
            size: size as u64,
            context: stream.context,
            device: pool.device,
            origin: Origin::Pool,
            id: numbers::of_memory(),
            heap: Some(Arc::clone(heap)),
        })?;
        return Ok(base);
    }
    let request = calls::memory_allocate_async { size, pool: pool.handle, stream: stream.handle };
    let address = send::call_in(stream.context, &request)?;
    memory::add(address, size as u64, stream.context, pool.device, Origin::Pool)?;
    Ok(address)
}

/// Frees memory when `stream` gets here.
pub fn free(address: CUdeviceptr, stream: &Arc<StreamState>) -> Result<(), CUresult> {
    if ranges::free(address, Some(heap::reuse_point(stream))).is_some() {
        return session::of(stream.context)?.faults().check();
    }
    let piece = match memory::take(address) {
        Err(_) if memory::starts(address, Origin::PoolImport) => {
            ipc::close_in(address, stream);
            return session::of(stream.context)?.faults().check();
        }
        taken => taken?,
    };
    match piece.heap {
        Some(heap) => {
            heap.free(piece.base, piece.size, Some(heap::reuse_point(stream)));
            session::of(stream.context)?.faults().check()
        }
        None => send::post_in(stream.context, &calls::memory_free_async { address, stream: stream.handle }),
    }
}

/// Makes `stream` wait for another one that freed enough memory, so that it can use that.
fn join(heap: &Heap, size: u64, stream: &StreamState) -> Result<(), CUresult> {
    let Some(ReusePoint { stream: other, .. }) = heap.blocking_reuse_point(size) else { return Ok(()) };
    let exists = other.is_legacy() || handles::is_valid(other.handle);
    if other.context != stream.context || !exists || capture::of(&other) != 0 {
        return Ok(());
    }
    info!("a stream waits for another one to use memory that it has freed");
    let sequence = other.newest();
    event::join(stream, &other)?;
    heap.join(stream.id, other.id, sequence);
    Ok(())
}
