//! Memory of collective calls for C programs: strided elements, scratch memory, and the control channel of the ranks of a
//! node. `mpi/causeway_comm.h` declares and describes the functions.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::{fail, world};
use crate::collective::control::ControlChannel;
use crate::collective::host::HostMemory;
use crate::collective::launch::memory_at;
use crate::collective::runs::{self, Elements, Run};
use crate::collective::temporary::Temporary;
use crate::cuda::{CudaError, Scope};
use crate::world::ControlSlots;

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
            ptr::null_mut()
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
    let Some(mut taken) = HostMemory::new(near as u64, bytes) else { return ptr::null_mut() };
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

/// Opens the mailboxes of a group, or gives null.
///
/// # Safety
/// There are so many members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_open_mail(
    members: *const u32,
    ranks: u32,
    me: u32,
    control_slot: u32,
    generation: u32,
) -> *mut ControlChannel {
    let (Some(world), Ok(control_slot)) = (world(), u16::try_from(control_slot)) else {
        return ptr::null_mut();
    };
    if me >= ranks || control_slot >= ControlSlots::COUNT {
        return ptr::null_mut();
    }
    // SAFETY: as promised.
    let members = unsafe { core::slice::from_raw_parts(members, ranks as usize) };
    let mail = ControlChannel::open(&world, members, me as usize, control_slot, generation);
    mail.map_or(ptr::null_mut(), |mail| Box::into_raw(Box::new(mail)))
}

/// Exchanges words. 1 where all have come, 0 where it is to be called again, -1 where it has failed.
///
/// # Safety
/// The mail is open, and no other thread uses it; both places have room for so many bytes of each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_exchange_mail(
    mail: *mut ControlChannel,
    out: *const c_void,
    into: *mut c_void,
    bytes: u64,
) -> c_int {
    // SAFETY: as promised.
    let mail = unsafe { &mut *mail };
    let Some(all) = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_mul(mail.ranks())) else {
        return fail("so many words cannot be exchanged");
    };
    // SAFETY: as promised.
    let (words, heard) = unsafe {
        (core::slice::from_raw_parts(out.cast(), all), core::slice::from_raw_parts_mut(into.cast(), all))
    };
    match mail.exchange(words, heard, bytes as usize) {
        Ok(are_here) => c_int::from(are_here),
        Err(error) => fail(error),
    }
}

/// Closes it.
///
/// # Safety
/// It is open, or null, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_close_mail(mail: *mut ControlChannel) {
    if !mail.is_null() {
        // SAFETY: as promised; it was made by `causeway_comm_open_mail`.
        drop(unsafe { Box::from_raw(mail) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../../../../mpi/causeway_comm.h");
        let (count, bytes) = (ControlSlots::COUNT, ControlSlots::MAX_BYTES);
        let line =
            format!("enum {{ CAUSEWAY_COMM_MAILBOXES = {count}, CAUSEWAY_COMM_MAIL_BYTES = {bytes} }};");
        assert!(header.contains(&line), "{line}");
    }
}
