//! Allocation of device memory (`cuMemAlloc`, `cuMemFree`).

use crate::model::memory::{self, Origin, Piece};
use crate::model::{context, device};
use crate::remote::session;
use crate::submit::pool::host_ranges;
use crate::submit::{device_memory, ipc, send};
use causeway_api::calls;
use causeway_api::sys::{CUdeviceptr, CUresult};

/// Allocates memory of the current context's device.
pub fn allocate(size: usize) -> Result<CUdeviceptr, CUresult> {
    let context = context::current_state()?;
    session::of(context.handle)?.faults().check()?;
    let (handle, device) = (context.handle, context.device);
    if let Some(heap) = device_memory::of_context(handle, device) {
        match heap.allocate(size as u64, None) {
            // The window has turned out not to be there.
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {}
            Err(error) => return Err(error),
            Ok(base) => {
                let id = device::of_memory();
                let (size, heap) = (size as u64, Some(heap));
                memory::insert(Piece {
                    base,
                    size,
                    context: handle,
                    device,
                    origin: Origin::Allocation,
                    id,
                    heap,
                })?;
                return Ok(base);
            }
        }
    }
    let address = send::call(&calls::memory_allocate { size })?;
    memory::add(address, size as u64, handle, device, Origin::Allocation)?;
    Ok(address)
}

/// Frees memory when the work that may use it is done; that of a pool at once.
pub fn free(dptr: CUdeviceptr) -> Result<(), CUresult> {
    if let Some(freed) = host_ranges::free_at_once(dptr) {
        return freed;
    }
    let piece = match memory::take(dptr) {
        Err(_) if memory::starts(dptr, Origin::PoolImport) => {
            return ipc::close(dptr, Origin::PoolImport);
        }
        taken => taken?,
    };
    if piece.origin == Origin::Managed {
        return crate::submit::managed::free(&piece);
    }
    let Some(heap) = piece.heap else {
        return send::call_in(piece.context, &calls::memory_free { address: dptr });
    };
    if piece.origin == Origin::Pool {
        // CUDA takes it for granted that the work is done, and waits for nothing: the thread may have to go on for that.
        heap.free(piece.base, piece.size, None);
        return session::of(piece.context)?.faults().check();
    }
    let waited = context::state(piece.context)?.synchronize();
    // It is freed even when the work before failed.
    heap.free(piece.base, piece.size, None);
    waited
}
