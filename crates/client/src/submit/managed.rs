//! Managed memory: one address for host and device. On the server's own host both have the same pages, where
//! its back end can; else there is a mirror from the beginning.

use crate::log::info;
use crate::model::memory::{self, Origin, Piece};
use crate::model::{advice, context, host_window, transfers};
use crate::remote::mirrored::shared::window::{self, Window};
use crate::remote::mirrored::{self, regions};
use crate::remote::session;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdeviceptr, CUresult};

/// Allocates managed memory in the current context.
pub fn allocate(size: usize) -> Result<CUdeviceptr, CUresult> {
    let context = context::current_state()?;
    let session = session::of(context.handle)?;
    if !host_window::is_open_for(session.snapshot.host_window) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    session.faults().check()?;
    let address = make(context.handle, size)?;
    memory::add(address, size as u64, context.handle, context.device, Origin::Managed).inspect_err(|_| {
        // The first error is the one to report.
        let _ = unmake(address, size as u64);
    })?;
    Ok(address)
}

/// Memory that both sides have, or that has a mirror at its own address. It is in no table of the program's
/// memory yet. The window must be open for the context's server.
///
/// Large memory is a device's own, where kernels have it at full speed, if the device has room for it: both
/// sides have it only where the device's memory is the host's.
pub fn make(context: Handle<Context>, size: usize) -> Result<CUdeviceptr, CUresult> {
    let managed_window = session::of(context)?.snapshot.managed_window;
    if size >= host_window::HUGE_PAGE && host_window::managed().is_open_for(managed_window) {
        if let Some(address) = window::allocate(context, size, Window::Managed) {
            return Ok(address as CUdeviceptr);
        }
        if let Some(made) = make_on_device(context, size) {
            return Ok(made);
        }
    }
    if let Some(address) = window::allocate(context, size, Window::Host) {
        return Ok(address as CUdeviceptr);
    }
    let address = host_window::allocate(size, None).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as usize;
    let made = regions::create(context, address, size, address as CUdeviceptr, false);
    made.inspect_err(|_| host_window::release(address, size))
}

/// Memory of a device with a mirror here; nothing where the device has no room.
fn make_on_device(context: Handle<Context>, size: usize) -> Option<CUdeviceptr> {
    let address = host_window::managed().allocate(size, None)? as usize;
    match regions::create(context, address, size, address as CUdeviceptr, true) {
        Ok(device) => Some(device),
        Err(status) => {
            info!("{size} bytes of managed memory are in host memory, not on the device ({status:?})");
            host_window::managed().release(address, size);
            None
        }
    }
}

/// Gives back what [`make`] made, once the device is idle.
pub fn unmake(base: CUdeviceptr, size: u64) -> Result<(), CUresult> {
    let freed = mirrored::forget(base as usize);
    release(base, size);
    freed
}

/// Gives back what this process has of it, after the copies that still use it; the server has nothing of it any more.
pub fn release(base: CUdeviceptr, size: u64) {
    transfers::wait_for_range(base as usize, (base + size) as usize);
    advice::forget(base..base + size);
    if host_window::managed().contains(base as usize) {
        host_window::managed().release(base as usize, size as usize);
    } else {
        host_window::release(base as usize, size as usize);
    }
}

/// Frees managed memory, which has been taken out of the table of memory.
pub fn free(piece: &Piece) -> Result<(), CUresult> {
    unmake(piece.base, piece.size)
}
