//! Managed memory: one address for host and device, and a mirror from the beginning.

use super::{advice, regions, window};
use crate::memory::{self, Origin, Piece};
use crate::{context, session};
use causeway_api::sys::{CUdeviceptr, CUresult};

/// Allocates managed memory in the current context.
pub fn allocate(size: usize) -> Result<CUdeviceptr, CUresult> {
    let context = context::current_state()?;
    let session = session::of(context.handle)?;
    if !window::is_open_for(session.snapshot.host_window) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    session.faults().check()?;
    let address = window::allocate(size, None).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as usize;
    let (device, length) = (address as CUdeviceptr, size as u64);
    let made = regions::create(context.handle, address, size, device, true).and_then(|_| {
        memory::add(device, length, context.handle, context.device, Origin::Managed).inspect_err(|_| {
            // The first error is the one to report.
            let _ = regions::forget(address);
        })
    });
    made.inspect_err(|_| window::release(address, size))?;
    Ok(device)
}

/// Frees managed memory, which has been taken out of the table of memory.
pub fn free(piece: &Piece) -> Result<(), CUresult> {
    advice::forget(piece.base..piece.base + piece.size);
    let freed = regions::forget(piece.base as usize);
    window::release(piece.base as usize, piece.size as usize);
    freed
}
