//! The functions of `libcauseway_comm.so` that make collective calls. `mpi/causeway_comm.h` declares and
//! describes them.

use core::ffi::{c_int, c_void};

use super::group::{GroupOfC, with_group, with_root};
use super::questions::reduction;
use crate::capi::fail;
use crate::collective::chunks::Reduction;
use crate::collective::element::Element;
use crate::collective::error::CollectiveError;
use crate::collective::group::Group;
use crate::collective::launch::{self, memory_at};
use crate::collective::range::Range;
use crate::collective::{calls, reductions};
use crate::cuda::{self, CudaError, Scope};

/// What call is meant, in front of the other numbers that describe it.
mod name {
    pub(super) const ALLREDUCE: u64 = 1;
    pub(super) const REDUCE: u64 = 2;
    pub(super) const SCAN: u64 = 3;
    pub(super) const REDUCE_SCATTER: u64 = 4;
    pub(super) const EXCHANGE: u64 = 5;
    pub(super) const BROADCAST: u64 = 6;
    pub(super) const ALLGATHER: u64 = 7;
    pub(super) const ALLTOALL: u64 = 8;
}

/// Puts elements of two places on a GPU together: to = from, operation, to. 0, 1 where no kernel takes such
/// addresses, or -1.
///
/// # Safety
/// Both are valid for so many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_reduce_local(
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
) -> c_int {
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let (from, to) = (from as u64, to as u64);
    if [from, to].iter().any(|address| !address.is_multiple_of(what.element.alignment())) {
        return 1;
    }
    let reduced = memory_at(to).zip(memory_at(from)).ok_or(CudaError::UNKNOWN_MEMORY).and_then(
        |((driver, memory), (_, other))| {
            cuda::settle(driver, &memory);
            cuda::settle(driver, &other);
            let scope = Scope::of(driver, &memory)?;
            // SAFETY: as promised.
            unsafe { launch::reduce(&scope, what.element, what.operation, (to, to), count, &[from, to]) }
        },
    );
    reduced.map_or_else(fail, |()| 0)
}

const NO_REDUCTION: &str = "no kernel reduces such elements by that operation";

/// An address of elements, or null, which is on no GPU, where no kernel can load them: so all ranks hear that this
/// one cannot.
fn aligned(address: *const c_void, element: c_int) -> u64 {
    let alignment = Element::of_code(element).map_or(1, Element::alignment);
    if (address as u64).is_multiple_of(alignment) { address as u64 } else { 0 }
}

/// Has a group reduce elements, which the numbers behind the first, the call's, describe further.
///
/// # Safety
/// As [`with_group`].
unsafe fn with_reduction(
    group: *const GroupOfC,
    near: u64,
    (element, operation): (c_int, c_int),
    numbers: &[u64],
    call: impl FnOnce(&mut Group<'_>, Reduction) -> Result<bool, CollectiveError>,
) -> c_int {
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let numbers = [numbers, &[element as u64, operation as u64]].concat();
    // SAFETY: as promised.
    unsafe { with_group(group, near, &numbers, |group| call(group, what)) }
}

/// As `MPI_Allreduce`.
///
/// # Safety
/// As [`reductions::allreduce`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allreduce(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
) -> c_int {
    let (from, to) = (aligned(from, element), aligned(to, element));
    // SAFETY: as promised.
    unsafe {
        with_reduction(group, to, (element, operation), &[name::ALLREDUCE, count], |group, what| {
            reductions::allreduce(group, what, from, to, count)
        })
    }
}

/// As `MPI_Reduce`.
///
/// # Safety
/// As [`reductions::reduce`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_reduce(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
    root: u32,
) -> c_int {
    let (from, to) = (aligned(from, element), aligned(to, element));
    let numbers = [name::REDUCE, count, root.into()];
    // SAFETY: as promised.
    unsafe {
        with_root(group, root, |root| {
            with_reduction(group, from, (element, operation), &numbers, |group, what| {
                reductions::reduce(group, what, from, to, count, root)
            })
        })
    }
}

/// As `MPI_Scan`, or as `MPI_Exscan` where it is exclusive.
///
/// # Safety
/// As [`reductions::scan`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_scan(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
    is_exclusive: c_int,
) -> c_int {
    let (from, to) = (aligned(from, element), aligned(to, element));
    let with_own = is_exclusive == 0;
    let numbers = [name::SCAN, count, with_own.into()];
    // SAFETY: as promised.
    unsafe {
        with_reduction(group, to, (element, operation), &numbers, |group, what| {
            reductions::scan(group, what, from, to, count, with_own)
        })
    }
}

/// As `MPI_Reduce_scatter`.
///
/// # Safety
/// As [`reductions::reduce_scatter`], for a group of `causeway_comm.h`; there is a count for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_reduce_scatter(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    counts: *const u64,
    element: c_int,
    operation: c_int,
) -> c_int {
    let (from, to) = (aligned(from, element), aligned(to, element));
    // SAFETY: as promised.
    unsafe {
        let counts = core::slice::from_raw_parts(counts, (*group).ranks as usize);
        let numbers = [&[name::REDUCE_SCATTER], counts].concat();
        with_reduction(group, from, (element, operation), &numbers, |group, what| {
            reductions::reduce_scatter(group, what, from, to, counts)
        })
    }
}

/// Gives each rank a range and takes one from each: what `MPI_Alltoallw` does, and with ranges of no bytes any
/// call that only moves.
///
/// # Safety
/// As [`calls::exchange`], for a group of `causeway_comm.h`; there are two ranges for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_exchange(
    group: *const GroupOfC,
    gives: *const Range,
    takes: *const Range,
    bytes: u64,
) -> c_int {
    // SAFETY: as promised.
    unsafe {
        let ranks = (*group).ranks as usize;
        let gives = core::slice::from_raw_parts(gives, ranks);
        let takes = core::slice::from_raw_parts(takes, ranks);
        let near = gives.iter().chain(takes).find(|range| range.bytes > 0).map_or(0, |range| range.address);
        let numbers = [name::EXCHANGE, bytes];
        with_group(group, near, &numbers, |group| calls::exchange(group, gives, takes, bytes))
    }
}

/// As `MPI_Bcast`.
///
/// # Safety
/// As [`calls::broadcast`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_broadcast(
    group: *const GroupOfC,
    buffer: *mut c_void,
    bytes: u64,
    root: u32,
) -> c_int {
    let buffer = buffer as u64;
    let numbers = [name::BROADCAST, bytes, root.into()];
    // SAFETY: as promised.
    unsafe {
        with_root(group, root, |root| {
            with_group(group, buffer, &numbers, |group| calls::broadcast(group, buffer, bytes, root))
        })
    }
}

/// As `MPI_Allgather`.
///
/// # Safety
/// As [`calls::allgather`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allgather(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    let (from, to) = (from as u64, to as u64);
    let numbers = [name::ALLGATHER, bytes];
    // SAFETY: as promised.
    unsafe { with_group(group, from, &numbers, |group| calls::allgather(group, from, to, bytes)) }
}

/// As `MPI_Alltoall`.
///
/// # Safety
/// As [`calls::alltoall`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_alltoall(
    group: *const GroupOfC,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    let (from, to) = (from as u64, to as u64);
    let numbers = [name::ALLTOALL, bytes];
    // SAFETY: as promised.
    unsafe { with_group(group, from, &numbers, |group| calls::alltoall(group, from, to, bytes)) }
}
