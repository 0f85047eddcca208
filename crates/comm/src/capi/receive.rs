//! The functions by which a program receives a message: it judges what has come, and fetches.

use core::ffi::{c_int, c_void};

use super::state::{fail, world};
use crate::matching::{Arrived, DESCRIPTOR_BYTES, Descriptor, judge};
use crate::tracer::Operation;

/// What has come for a receive with `room` bytes: 0 the payload, 1 one that is too long, 2 a descriptor.
/// Writes the payload's bytes.
///
/// # Safety
/// `start` has `length` bytes where that is 79, and `payload` room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_judge(
    start: *const u8,
    length: u64,
    room: u64,
    payload: *mut u64,
) -> c_int {
    let bytes: &[u8] = if length == DESCRIPTOR_BYTES as u64 {
        // SAFETY: as promised.
        unsafe { core::slice::from_raw_parts(start, DESCRIPTOR_BYTES) }
    } else {
        &[]
    };
    let arrived = match world() {
        Some(world) => judge(world.job(), world.rank(), bytes, length, room),
        None if length > room => Arrived::TooLong(length),
        None => Arrived::Payload(length),
    };
    let (kind, count) = match arrived {
        Arrived::Payload(count) => (0, count),
        Arrived::TooLong(count) => (1, count),
        Arrived::Elsewhere(descriptor) => (2, descriptor.bytes),
    };
    // SAFETY: as promised.
    unsafe { *payload = count };
    kind
}

/// Fetches what a descriptor tells of into memory of `room` bytes, which is on a GPU if `on_gpu` is not 0,
/// and waits until it is there. What is longer is not fetched. 0, or -1.
///
/// # Safety
/// `descriptor` has 79 bytes, and `to` is valid for `room` bytes and nobody else's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_fetch(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    to: *mut c_void,
    on_gpu: c_int,
    room: u64,
    is_blocking: c_int,
) -> c_int {
    let by = if is_blocking != 0 { Operation::Blocking } else { Operation::NonBlocking };
    let Some(world) = world() else { return fail("this process has no part in a job") };
    // SAFETY: as promised.
    let Some(word) = Descriptor::decode(unsafe { &*descriptor }, world.job()) else {
        return fail("the message is no descriptor of this job");
    };
    // SAFETY: as promised.
    match unsafe { world.fetch(&word, to as u64, on_gpu != 0, room, by) } {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

/// Begins to fetch what a descriptor tells of, for a program that does not wait. 0 where it is there; 1 where
/// it is under way, with a number by which [`causeway_comm_fetch_state`] tells of it; -1.
///
/// # Safety
/// As of [`causeway_comm_fetch`], until it is over. There is room for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_start_fetch(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    to: *mut c_void,
    on_gpu: c_int,
    room: u64,
    number: *mut u64,
) -> c_int {
    let Some(world) = world() else { return fail("this process has no part in a job") };
    // SAFETY: as promised.
    let Some(word) = Descriptor::decode(unsafe { &*descriptor }, world.job()) else {
        return fail("the message is no descriptor of this job");
    };
    // SAFETY: as promised.
    match unsafe { world.start_fetch(&word, to as u64, on_gpu != 0, room) } {
        Ok(None) => 0,
        Ok(Some(begun)) => {
            // SAFETY: as promised.
            unsafe { *number = begun };
            1
        }
        Err(error) => fail(error),
    }
}

/// 1 while a fetch is under way, 0 when it is there, -1 when it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_fetch_state(number: u64) -> c_int {
    let Some(world) = world() else { return fail("this process has no part in a job") };
    match world.fetch_end(number) {
        None => 1,
        Some(Ok(())) => 0,
        Some(Err(error)) => fail(error),
    }
}
