//! The functions of `libcauseway_comm.so` for collective calls. `mpi/causeway_comm.h` declares and describes
//! them.

use core::ffi::{c_int, c_void};

use thiserror::Error;

use super::calls;
use super::chunks::Reduction;
use super::element::{Element, Operation};
use super::group::{CollectiveError, Group, Range};
use super::launch::{self, memory_at};
use super::reductions;
use crate::c::{fail, world};
use crate::cuda::{self, CudaError, Scope};
use crate::report::Between;

/// `struct causeway_comm_group`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GroupOfC {
    rank: u32,
    ranks: u32,
    members: *const u32,
    exchange: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, u64) -> c_int>,
    context: *mut c_void,
    stream: *mut c_void,
}

/// Has a group make a call. 0 where it is done, 1 where nothing has been done, -1 where it has failed.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
unsafe fn with_group(
    group: *const GroupOfC,
    near: u64,
    call: impl FnOnce(&mut Group<'_>) -> Result<bool, CollectiveError>,
) -> c_int {
    let Some(world) = world() else { return fail("this process has no part in a job") };
    // SAFETY: as promised.
    let of_c = unsafe { *group };
    let Some(exchange) = of_c.exchange else { return fail("the group has no way to exchange words") };
    let (me, ranks) = (of_c.rank as usize, of_c.ranks as usize);
    if me >= ranks {
        return fail(format!("the group has {ranks} ranks, and this one is no. {me}"));
    }
    // SAFETY: as promised, there are so many members.
    let members = unsafe { core::slice::from_raw_parts(of_c.members, ranks) };
    // Where this rank has nothing to move no work comes before, and the others wait for what it says.
    if !of_c.stream.is_null()
        && near != 0
        && let Err(error) = wait_for_stream(near, of_c.stream as u64)
    {
        return fail(error);
    }
    let mut exchange = |out: &[u8], heard: &mut [u8], bytes: usize| {
        // SAFETY: both have room for so many bytes of each rank.
        unsafe { exchange(of_c.context, out.as_ptr().cast(), heard.as_mut_ptr().cast(), bytes as u64) }
    };
    let mut group = Group::new(&world, me, members, &mut exchange);
    match call(&mut group) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => fail(error),
    }
}

/// Waits for a stream's work. To wait for one that is being captured would end the capture.
fn wait_for_stream(near: u64, stream: u64) -> Result<(), StreamError> {
    let (driver, memory) = memory_at(near).ok_or(CudaError::UNKNOWN_MEMORY)?;
    let scope = Scope::of(driver, &memory)?;
    if scope.is_captured(stream)? {
        return Err(StreamError::Captured);
    }
    Ok(scope.wait_for(stream)?)
}

/// Why a call does not come after the work of its stream.
#[derive(Debug, Error)]
enum StreamError {
    /// A graph has no other processes in it.
    #[error(
        "the stream of this call is being captured: a collective call waits for other ranks, which no graph \
         can; make it between the launches of graphs"
    )]
    Captured,
    /// The driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

fn reduction(element: c_int, operation: c_int) -> Option<Reduction> {
    let (element, operation) = (Element::of_code(element)?, Operation::of_code(operation)?);
    element.takes(operation).then_some(Reduction { element, operation })
}

/// Whether kernels reduce such elements.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_reduces(element: c_int, operation: c_int) -> c_int {
    c_int::from(reduction(element, operation).is_some())
}

/// From how many bytes on calls are worth being made from GPU to GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_direct_bytes() -> u64 {
    world().map_or(u64::MAX, |world| world.direct_bytes())
}

/// Whether a rank is reached on this host.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_near(peer: u32) -> c_int {
    c_int::from(world().is_some_and(|world| world.is_near(peer)))
}

/// Whether ranks of other hosts may be reached over a network.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_uses_network() -> c_int {
    c_int::from(world().is_some_and(|world| world.uses_network()))
}

/// Counts a collective call between hosts for the report: `way` is one of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_count_between_hosts(way: c_int, leads: c_int, hosts: u32, bytes: u64) {
    let leads = leads != 0;
    let way = match way {
        1 => Between::Leaders { hosts, leads, by_channels: false },
        2 => Between::Leaders { hosts, leads, by_channels: true },
        _ => Between::Staged { hosts },
    };
    if let Some(world) = world() {
        world.count_between_hosts(way, bytes);
    }
}

/// Whether ranks are to tell each other of calls before they make them.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_checks() -> c_int {
    c_int::from(world().is_some_and(|world| world.checks()))
}

/// Puts elements of two places on a GPU together: to = from, operation, to. 0, or -1.
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
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let (from, to) = (from as u64, to as u64);
    // SAFETY: as promised.
    unsafe { with_group(group, to, |group| reductions::allreduce(group, what, from, to, count)) }
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
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let (from, to) = (from as u64, to as u64);
    // SAFETY: as promised.
    unsafe {
        with_root(group, from, root, |group, root| reductions::reduce(group, what, from, to, count, root))
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
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let (from, to) = (from as u64, to as u64);
    // SAFETY: as promised.
    unsafe {
        with_group(group, to, |group| reductions::scan(group, what, from, to, count, is_exclusive == 0))
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
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let (from, to) = (from as u64, to as u64);
    // SAFETY: as promised.
    unsafe {
        with_group(group, from, |group| {
            let counts = core::slice::from_raw_parts(counts, group.ranks());
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
        with_group(group, near, |group| calls::exchange(group, gives, takes, bytes))
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
    // SAFETY: as promised.
    unsafe { with_root(group, buffer, root, |group, root| calls::broadcast(group, buffer, bytes, root)) }
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
    // SAFETY: as promised.
    unsafe { with_group(group, from, |group| calls::allgather(group, from, to, bytes)) }
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
    // SAFETY: as promised.
    unsafe { with_group(group, from, |group| calls::alltoall(group, from, to, bytes)) }
}

/// [`with_group`], with a root that is one of its ranks.
///
/// # Safety
/// As [`with_group`].
unsafe fn with_root(
    group: *const GroupOfC,
    near: u64,
    root: u32,
    call: impl FnOnce(&mut Group<'_>, usize) -> Result<bool, CollectiveError>,
) -> c_int {
    // SAFETY: as promised.
    let ranks = unsafe { (*group).ranks };
    if root >= ranks {
        return fail(format!("the group has {ranks} ranks, and the root is no. {root}"));
    }
    // SAFETY: as promised.
    unsafe { with_group(group, near, |group| call(group, root as usize)) }
}
