//! How does a group of a program in C come to make a call? `struct causeway_comm_group`, and the stream behind
//! whose work the call comes.

use core::ffi::{c_int, c_void};

use crate::capi::{fail, world};
use crate::collective::captured::recording::Recording;
use crate::collective::error::CollectiveError;
use crate::collective::group::Group;
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};

/// `struct causeway_comm_group`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GroupOfC {
    rank: u32,
    pub(super) ranks: u32,
    members: *const u32,
    exchange: Option<unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, u64) -> c_int>,
    context: *mut c_void,
    stream: *mut c_void,
    fetched_from: u64,
}

/// Has a group make a call, which all its ranks describe by the same numbers. 0 where it is done, 1 where nothing
/// has been done, -1 where it has failed.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
pub(super) unsafe fn with_group(
    group: *const GroupOfC,
    near: u64,
    numbers: &[u64],
    call: impl FnOnce(&mut Group<'_>) -> Result<bool, CollectiveError>,
) -> c_int {
    // SAFETY: as promised.
    let stream = unsafe { (*group).stream } as u64;
    let make = |group: Group<'_>, caller| {
        let recording = match follow(stream, near) {
            Ok(captured) => captured.map(|captured| recording(captured, caller, numbers)),
            Err(error) => return fail(error),
        };
        // All of the call: what a capture forbids would end it, and not everything that is done here has a scope.
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
    // SAFETY: as promised.
    unsafe { with_ranks(group, make) }
}

/// Has a group, and what tells it from others of the caller's, do something. -1 where there is no such group.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
pub(super) unsafe fn with_ranks(
    group: *const GroupOfC,
    make: impl FnOnce(Group<'_>, [u64; 2]) -> c_int,
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
    let caller = [exchange as usize as u64, of_c.context as u64];
    let mut exchange = |out: &[u8], heard: &mut [u8], bytes: usize| {
        // SAFETY: both have room for so many bytes of each rank.
        unsafe { exchange(of_c.context, out.as_ptr().cast(), heard.as_mut_ptr().cast(), bytes as u64) }
    };
    make(Group::new(&world, me, members, &mut exchange).fetching_from(of_c.fetched_from), caller)
}

/// A stream that is being captured.
struct Captured {
    stream: u64,
    context: u64,
    device: i32,
}

/// Waits for a stream's work, which comes before a call; or tells that the call becomes a part of what the stream
/// captures: to wait for it then would end the capture.
fn follow(stream: u64, near: u64) -> Result<Option<Captured>, CudaError> {
    let Some(driver) = Driver::loaded().filter(|_| stream != 0) else { return Ok(None) };
    let Some(memory) = DeviceMemory::at(driver, near) else {
        // Where this rank has nothing to move no work comes before, and the others wait for what it says.
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
    let words: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let hash = blake3::hash(&words);
    let call = hash.as_bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let Captured { stream, context, device } = captured;
    let (steps, last, kept) = (Vec::new(), Vec::new(), Vec::new());
    Recording { stream, context, device, caller, call, steps, last, kept }
}

/// Makes a call with a root, where it is one of the group's ranks.
///
/// # Safety
/// The group is as `causeway_comm.h` describes it.
pub(super) unsafe fn with_root(
    group: *const GroupOfC,
    root: u32,
    call: impl FnOnce(usize) -> c_int,
) -> c_int {
    // SAFETY: as promised.
    let ranks = unsafe { (*group).ranks };
    if root >= ranks {
        return fail(format!("the group has {ranks} ranks, and the root is no. {root}"));
    }
    call(root as usize)
}
