//! Managed memory: one address for host and device, and a mirror from the beginning.

use super::{advice, regions, window};
use crate::memory::{self, Origin, Piece};
use crate::{context, session};
use causeway_api::sys::{CUdeviceptr, CUresult};

/// Allocates managed memory in the current context.
pub fn allocate(size: usize) -> Result<CUdeviceptr, CUresult> {
    let context = context::current_state()?;
    if !window::is_open() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    session::session()?.faults().check()?;
    let address = window::allocate(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as usize;
    regions::create(context.handle, address, size, address as u64)
        .inspect_err(|_| window::release(address, size))?;
    memory::add(address as u64, size as u64, context.handle, context.device, Origin::Managed)?;
    Ok(address as CUdeviceptr)
}

/// Frees managed memory, which has been taken out of the table of memory.
pub fn free(piece: &Piece) -> Result<(), CUresult> {
    advice::forget(piece.base..piece.base + piece.size);
    let freed = regions::forget(piece.base as usize);
    window::release(piece.base as usize, piece.size as usize);
    freed
}
