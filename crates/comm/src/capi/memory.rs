//! The functions by which a program asks what an address is of, and copies.

use core::ffi::{c_int, c_void};

use super::state::fail;
use crate::cuda::{self, DeviceMemory, Driver};

/// Whether an address is that of memory on a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_on_gpu(address: *const c_void) -> c_int {
    let driver = Driver::loaded();
    c_int::from(driver.is_some_and(|driver| DeviceMemory::is_at(driver, address as u64)))
}

/// Whether this process has a driver: without one no address is that of memory on a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_has_driver() -> c_int {
    c_int::from(Driver::loaded().is_some())
}

/// Whether the processor reaches an address: that of memory of the host, or of managed memory.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_reachable(address: *const c_void) -> c_int {
    let memory = Driver::loaded().and_then(|driver| DeviceMemory::at(driver, address as u64));
    c_int::from(memory.is_none_or(|memory| memory.is_managed))
}

/// Waits until all that the calling thread has begun in the default streams is done, as `cudaMemcpy` does.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_settle(address: *const c_void) {
    if let Some(driver) = Driver::loaded() {
        cuda::settle_call(driver, address as u64);
    }
}

/// Copies between a GPU and any memory. 0, or -1.
///
/// # Safety
/// Both are valid for so many bytes, or were memory on a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_copy(to: *mut c_void, from: *const c_void, bytes: u64) -> c_int {
    if bytes == 0 {
        return 0;
    }
    // SAFETY: as promised.
    match unsafe { cuda::copy(to as u64, from as u64, bytes as usize) } {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}
