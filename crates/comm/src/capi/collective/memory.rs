//! The functions of `libcauseway_comm.so` for elements with gaps, and for memory that a call needs for a
//! while. `mpi/causeway_comm.h` declares and describes them.

use core::ffi::{c_int, c_void};

use crate::capi::fail;
use crate::collective::host::HostMemory;
use crate::collective::launch::memory_at;
use crate::collective::runs::{self, Elements, Run};
use crate::collective::temporary::Temporary;
use crate::cuda::{CudaError, Scope};

/// `struct causeway_comm_runs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RunsOfC {
    id: u64,
    count: u64,
    runs: *const Run,
    extent: i64,
}

/// Copies elements with gaps to or from a place where their bytes lie one behind the other. 0, or -1.
///
/// # Safety
/// The list is as `causeway_comm.h` describes it, and both places are valid for what it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_copy_runs(
    list: *const RunsOfC,
    typed: *mut c_void,
    packed: *mut c_void,
    bytes: u64,
    is_pack: c_int,
) -> c_int {
    // SAFETY: as promised.
    let list = unsafe { *list };
    if list.count == 0 {
        return 0;
    }
    // SAFETY: as promised.
    let runs = unsafe { core::slice::from_raw_parts(list.runs, list.count as usize) };
    let what = Elements {
        id: list.id,
        runs,
        extent: list.extent,
        typed: typed as u64,
        packed: packed as u64,
        bytes,
        is_pack: is_pack != 0,
    };
    // SAFETY: as promised.
    unsafe { runs::copy(&what) }.map_or_else(fail, |()| 0)
}

/// A list of runs that will not be used any more.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_forget_runs(id: u64) {
    runs::forget(id);
}

/// Memory on the GPU where other memory lies, for a while; null where there is none. Writes what gives it
/// back.
///
/// # Safety
/// There is room for the pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_take(
    near: *const c_void,
    bytes: u64,
    holder: *mut *mut c_void,
) -> *mut c_void {
    let taken = memory_at(near as u64).ok_or(CudaError::UNKNOWN_MEMORY).and_then(|(driver, memory)| {
        let _scope = Scope::of(driver, &memory)?;
        Temporary::new(driver, memory.device, bytes)
    });
    match taken {
        Ok(temporary) => {
            let address = temporary.address();
            // SAFETY: as promised.
            unsafe { *holder = Box::into_raw(Box::new(temporary)).cast() };
            address as *mut c_void
        }
        Err(error) => {
            fail(error);
            core::ptr::null_mut()
        }
    }
}

/// Gives such memory back.
///
/// # Safety
/// The holder is one of [`causeway_comm_take`], and is not given back twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_give_back(holder: *mut c_void) {
    if !holder.is_null() {
        // SAFETY: as promised.
        drop(unsafe { Box::from_raw(holder.cast::<Temporary>()) });
    }
}

/// Memory of the host for copies to and from the GPU where other memory lies, pinned where it can be; null
/// where so many bytes are not to be had so. Writes what gives it back. What it holds is not said.
///
/// # Safety
/// There is room for the pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_take_host(
    near: *const c_void,
    bytes: u64,
    holder: *mut *mut c_void,
) -> *mut c_void {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let Some(mut taken) = HostMemory::new(near as u64, bytes) else { return core::ptr::null_mut() };
    let address = taken.address();
    // SAFETY: as promised.
    unsafe { *holder = Box::into_raw(Box::new(taken)).cast() };
    address as *mut c_void
}

/// Gives such memory back.
///
/// # Safety
/// The holder is one of [`causeway_comm_take_host`], and is not given back twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_give_back_host(holder: *mut c_void) {
    if !holder.is_null() {
        // SAFETY: as promised.
        drop(unsafe { Box::from_raw(holder.cast::<HostMemory>()) });
    }
}
