//! Addresses that the program passes: checks that they can be the device's memory, or the program's own.

use crate::model::address::window;
use crate::model::{host_mappings, memory};
use crate::remote::{mirrored, session};
use crate::submit::{blocks, send};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdeviceptr, CUresult};

/// Refuses a range that begins in known memory of a device and ends outside it, and one in memory that was freed.
/// Only the server knows of other ranges: one may be a variable that the program never asked for.
pub fn check_range(address: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    if memory::contains_range(address, bytes)? || !blocks::is_vacant(address) {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

/// Refuses an address as the program's own that is one of a device: nothing can be read or written there.
pub fn check_host(address: usize) -> Result<(), CUresult> {
    if window::at(address as u64).is_some() && host_mappings::find(address).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
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
