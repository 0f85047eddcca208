//! Collective calls for C programs: groups, reductions, exchanges, and calls in CUDA graphs.
//! `mpi/causeway_comm.h` declares and describes the functions.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::{FAILED, fail, guard, world};
use crate::collective::captured::recording::Recording;
use crate::collective::chunks::Reduction;
use crate::collective::element::{self, Element};
use crate::collective::group::{CollectiveError, Group};
use crate::collective::kernels::{self, memory_at};
use crate::collective::memory::Range;
use crate::collective::{calls, reductions};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::report::Algorithm;

/// `struct causeway_comm_group`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CGroup {
    rank: u32,
    ranks: u32,
    members: *const u32,
    exchange: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, u64) -> c_int>,
    context: *mut c_void,
    stream: *mut c_void,
    fetched_from: u64,
}

/// Makes a call of a group, which all its ranks describe by the same numbers. 0 if it is complete, 1 if
/// nothing has been done, -1 if it has failed.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
unsafe fn with_group(
    group: *const CGroup,
    gpu_address: u64,
    numbers: &[u64],
    call: impl FnOnce(&mut Group<'_>) -> Result<bool, CollectiveError>,
) -> c_int {
    // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
    let stream = unsafe { (*group).stream } as u64;
    let make = |group: Group<'_>, caller| {
        let recording = match sync_stream(stream, gpu_address) {
            Ok(captured) => captured.map(|captured| recording(captured, caller, numbers)),
            Err(error) => return fail(error),
        };
        // During all of the call: what a capture forbids would invalidate it, and not every step has a scope.
        let relaxed = recording.as_ref().zip(Driver::loaded());
        let relaxed = relaxed.map(|(recording, driver)| Scope::of_context(driver, recording.context));
        let _relaxed = match relaxed.transpose() {
            Ok(scope) => scope,
            Err(error) => return fail(error),
        };
        match call(&mut group.recorded(recording)) {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(error) => fail(error),
        }
    };
    // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
    unsafe { with_ranks(group, make) }
}

/// Calls a function with a group, and with what identifies it among the caller's groups. -1 if there is no
/// such group.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
unsafe fn with_ranks(group: *const CGroup, make: impl FnOnce(Group<'_>, [u64; 2]) -> c_int) -> c_int {
    let Some(world) = world() else { return fail("this process has not joined a job") };
    // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
    let group = unsafe { *group };
    let Some(exchange) = group.exchange else { return fail("the group has no function `exchange`") };
    let (rank, ranks) = (group.rank as usize, group.ranks as usize);
    if rank >= ranks {
        return fail(format!("the group has {ranks} ranks, and this one is number {rank}"));
    }
    // SAFETY: the caller has as many elements at `group.members`, and leaves them alone until the call returns.
    let members = unsafe { core::slice::from_raw_parts(group.members, ranks) };
    let caller = [exchange as usize as u64, group.context as u64];
    let mut exchange = |out: &[u8], received: &mut [u8], bytes: usize| {
        // SAFETY: both have so many bytes for each rank.
        unsafe { exchange(group.context, out.as_ptr().cast(), received.as_mut_ptr().cast(), bytes as u64) }
    };
    make(Group::new(&world, rank, members, &mut exchange).fetching_from(group.fetched_from), caller)
}

/// A stream that is being captured.
struct Captured {
    stream: u64,
    context: u64,
    device: i32,
}

/// Waits for the earlier work of a stream; or returns that the stream is being captured, which a wait would
/// invalidate.
fn sync_stream(stream: u64, gpu_address: u64) -> Result<Option<Captured>, CudaError> {
    let Some(driver) = Driver::loaded().filter(|_| stream != 0) else { return Ok(None) };
    let Some(memory) = DeviceMemory::at(driver, gpu_address) else {
        // This rank has nothing to send: it waits for no work, and the other ranks wait for its message.
        return if cuda::is_captured(driver, stream) == Ok(true) {
            captured(driver, stream)
        } else {
            Ok(None)
        };
    };
    let scope = Scope::of(driver, &memory)?;
    if cuda::is_captured(driver, stream)? {
        return captured(driver, stream);
    }
    scope.wait_for(stream).map(|()| None)
}

fn captured(driver: &'static Driver, stream: u64) -> Result<Option<Captured>, CudaError> {
    let context = cuda::context_of_stream(driver, stream)?;
    let _scope = Scope::of_context(driver, context)?;
    let device = cuda::current_device(driver).ok_or(CudaError::UNKNOWN_MEMORY)?;
    Ok(Some(Captured { stream, context, device }))
}

fn recording(captured: Captured, caller: [u64; 2], numbers: &[u64]) -> Recording {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let hash = blake3::hash(&bytes);
    let call = hash.as_bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let Captured { stream, context, device } = captured;
    Recording { stream, context, device, caller, call, steps: Vec::new(), last: Vec::new(), held: Vec::new() }
}

/// Makes a call with a root, if it is one of the group's ranks.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
unsafe fn with_root(group: *const CGroup, root: u32, call: impl FnOnce(usize) -> c_int) -> c_int {
    // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
    let ranks = unsafe { (*group).ranks };
    if root >= ranks {
        return fail(format!("the group has {ranks} ranks, and the root is number {root}"));
    }
    call(root as usize)
}

/// The reduction of an element and an operation; none if no kernel supports it.
fn reduction(element: c_int, operation: c_int) -> Option<Reduction> {
    let (element, operation) = (Element::of_code(element)?, element::Operation::of_code(operation)?);
    element.supports(operation).then_some(Reduction { element, operation })
}

/// Whether kernels reduce such elements.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_reduces(element: c_int, operation: c_int) -> c_int {
    guard(0, || c_int::from(reduction(element, operation).is_some()))
}

/// The least bytes of a call that goes from GPU to GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_direct_bytes() -> u64 {
    guard(u64::MAX, || world().map_or(u64::MAX, |world| world.direct_bytes()))
}

/// Whether a rank is on this node.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_local(peer: u32) -> c_int {
    guard(0, || c_int::from(world().is_some_and(|world| world.is_local(peer))))
}

/// Whether ranks of other nodes may be reached over a network.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_uses_network() -> c_int {
    guard(0, || c_int::from(world().is_some_and(|world| world.uses_network())))
}

/// Whether the report of `CAUSEWAY_COMM_EXPLAIN` is enabled.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_explains() -> c_int {
    guard(0, || c_int::from(world().is_some_and(|world| world.explains())))
}

/// Counts a collective call for that report: `algorithm` is one of `causeway_comm.h`.
///
/// # Safety
/// The name is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_count_call(
    name: *const c_char,
    algorithm: c_int,
    hosts: u32,
    is_leader: c_int,
    bytes: u64,
) {
    guard((), || {
        // SAFETY: `name` is a C string of the caller, which stays until the call returns.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        if let Some((world, algorithm)) = world().zip(Algorithm::of_code(algorithm, hosts, is_leader != 0)) {
            world.count_call(&name, algorithm, bytes);
        }
    })
}

/// Whether the consistency of collective calls is checked (`CAUSEWAY_COMM_CHECK`).
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_checks() -> c_int {
    guard(0, || c_int::from(world().is_some_and(|world| world.checks())))
}

/// The first number of those that describe a call: which call it is.
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

/// Reduces two buffers on one GPU: to = from, operation, to. 0, 1 if no kernel supports such addresses, or
/// -1.
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
    guard(FAILED, || {
        let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
        let (from, to) = (from as u64, to as u64);
        if [from, to].iter().any(|address| !address.is_multiple_of(what.element.alignment())) {
            return 1;
        }
        let reduced = memory_at(to).zip(memory_at(from)).ok_or(CudaError::UNKNOWN_MEMORY).and_then(
            |((driver, memory), (_, other))| {
                cuda::synchronize(driver, &memory);
                cuda::synchronize(driver, &other);
                let scope = Scope::of(driver, &memory)?;
                // SAFETY: both ranges have `count` elements, which the caller leaves to this call.
                unsafe { kernels::reduce(&scope, what.element, what.operation, (to, to), count, &[from, to]) }
            },
        );
        reduced.map_or_else(fail, |()| 0)
    })
}

const NO_REDUCTION: &str = "no kernel reduces such elements by that operation";

/// An address of elements, or null, which is on no GPU, if no kernel can load them: then all ranks learn that
/// this one cannot take part.
fn aligned(address: *const c_void, element: c_int) -> u64 {
    let alignment = Element::of_code(element).map_or(1, Element::alignment);
    if (address as u64).is_multiple_of(alignment) { address as u64 } else { 0 }
}

/// Makes a reduction of a group; the numbers after the first, the call's, describe it further.
///
/// # Safety
/// As [`with_group`].
unsafe fn with_reduction(
    group: *const CGroup,
    gpu_address: u64,
    (element, operation): (c_int, c_int),
    numbers: &[u64],
    call: impl FnOnce(&mut Group<'_>, Reduction) -> Result<bool, CollectiveError>,
) -> c_int {
    let Some(what) = reduction(element, operation) else { return fail(NO_REDUCTION) };
    let numbers = [numbers, &[element as u64, operation as u64]].concat();
    // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
    unsafe { with_group(group, gpu_address, &numbers, |group| call(group, what)) }
}

/// As `MPI_Allreduce`.
///
/// # Safety
/// As [`reductions::allreduce`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allreduce(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (aligned(from, element), aligned(to, element));
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            with_reduction(group, to, (element, operation), &[name::ALLREDUCE, count], |group, what| {
                reductions::allreduce(group, what, from, to, count)
            })
        }
    })
}

/// As `MPI_Reduce`.
///
/// # Safety
/// As [`reductions::reduce`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_reduce(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
    root: u32,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (aligned(from, element), aligned(to, element));
        let numbers = [name::REDUCE, count, root.into()];
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            with_root(group, root, |root| {
                with_reduction(group, from, (element, operation), &numbers, |group, what| {
                    reductions::reduce(group, what, from, to, count, root)
                })
            })
        }
    })
}

/// As `MPI_Scan`, or as `MPI_Exscan` if it is exclusive.
///
/// # Safety
/// As [`reductions::scan`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_scan(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: c_int,
    operation: c_int,
    is_exclusive: c_int,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (aligned(from, element), aligned(to, element));
        let with_own = is_exclusive == 0;
        let numbers = [name::SCAN, count, with_own.into()];
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            with_reduction(group, to, (element, operation), &numbers, |group, what| {
                reductions::scan(group, what, from, to, count, with_own)
            })
        }
    })
}

/// As `MPI_Reduce_scatter`.
///
/// # Safety
/// As [`reductions::reduce_scatter`], for a group of `causeway_comm.h`; there is a count for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_reduce_scatter(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    counts: *const u64,
    element: c_int,
    operation: c_int,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (aligned(from, element), aligned(to, element));
        // SAFETY: the caller has as many elements at `counts`, and leaves them alone until the call returns.
        unsafe {
            let counts = core::slice::from_raw_parts(counts, (*group).ranks as usize);
            let numbers = [&[name::REDUCE_SCATTER], counts].concat();
            with_reduction(group, from, (element, operation), &numbers, |group, what| {
                reductions::reduce_scatter(group, what, from, to, counts)
            })
        }
    })
}

/// Sends a range to each rank and receives one from each: what `MPI_Alltoallw` does, and, with empty ranges,
/// any call that does not reduce.
///
/// # Safety
/// As [`calls::exchange`], for a group of `causeway_comm.h`; there are two ranges for each rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_exchange(
    group: *const CGroup,
    sends: *const Range,
    receives: *const Range,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            let ranks = (*group).ranks as usize;
            let sends = core::slice::from_raw_parts(sends, ranks);
            let receives = core::slice::from_raw_parts(receives, ranks);
            let gpu_address =
                sends.iter().chain(receives).find(|range| range.bytes > 0).map_or(0, |range| range.address);
            let numbers = [name::EXCHANGE, bytes];
            with_group(group, gpu_address, &numbers, |group| calls::exchange(group, sends, receives, bytes))
        }
    })
}

/// As `MPI_Bcast`.
///
/// # Safety
/// As [`calls::broadcast`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_broadcast(
    group: *const CGroup,
    buffer: *mut c_void,
    bytes: u64,
    root: u32,
) -> c_int {
    guard(FAILED, || {
        let buffer = buffer as u64;
        let numbers = [name::BROADCAST, bytes, root.into()];
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            with_root(group, root, |root| {
                with_group(group, buffer, &numbers, |group| calls::broadcast(group, buffer, bytes, root))
            })
        }
    })
}

/// As `MPI_Allgather`.
///
/// # Safety
/// As [`calls::allgather`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_allgather(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (from as u64, to as u64);
        let numbers = [name::ALLGATHER, bytes];
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe { with_group(group, from, &numbers, |group| calls::allgather(group, from, to, bytes)) }
    })
}

/// As `MPI_Alltoall`.
///
/// # Safety
/// As [`calls::alltoall`], for a group of `causeway_comm.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_alltoall(
    group: *const CGroup,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        let (from, to) = (from as u64, to as u64);
        let numbers = [name::ALLTOALL, bytes];
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe { with_group(group, from, &numbers, |group| calls::alltoall(group, from, to, bytes)) }
    })
}

/// Whether all completed collective calls in graphs of a group have succeeded. 0, or -1.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_check_graphs(group: *const CGroup) -> c_int {
    guard(FAILED, || {
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe { with_ranks(group, |group, caller| group.check_graphs(caller).map_or_else(fail, |()| 0)) }
    })
}

/// No graph with collective calls of a group is launched any more. 0, or -1.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_release_graphs(group: *const CGroup) -> c_int {
    guard(FAILED, || {
        // SAFETY: group, lists and buffers are as the C header says, and the caller leaves them to this call.
        unsafe {
            with_ranks(group, |group, caller| {
                group.release_graphs(caller);
                0
            })
        }
    })
}
