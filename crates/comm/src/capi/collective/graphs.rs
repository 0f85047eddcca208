//! The functions of `libcauseway_comm.so` for collective calls in graphs. `mpi/causeway_comm.h` declares and
//! describes them.

use core::ffi::c_int;

use super::group::{GroupOfC, with_ranks};
use crate::capi::fail;

/// Whether all collective calls in graphs of a group that have come to their end are well. 0, or -1.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_check_graphs(group: *const GroupOfC) -> c_int {
    // SAFETY: as promised.
    unsafe { with_ranks(group, |group, caller| group.check_graphs(caller).map_or_else(fail, |()| 0)) }
}

/// No graph with collective calls of a group is launched any more. 0, or -1.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_release_graphs(group: *const GroupOfC) -> c_int {
    // SAFETY: as promised.
    unsafe {
        with_ranks(group, |group, caller| {
            group.release_graphs(caller);
            0
        })
    }
}
