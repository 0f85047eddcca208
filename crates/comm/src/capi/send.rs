//! The functions by which a program sends a message: it offers memory, and hears what becomes of it.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::state::{fail, world};
use crate::channels::Channel;
use crate::matching::DESCRIPTOR_BYTES;
use crate::report::Inline;
use crate::tracer::Operation;
use crate::transfer::offers::OfferState;

/// Whether a message of so many bytes to a peer is to be offered, 1; or is to go with the MPI, 0, which is
/// counted. The address may be null: then a message from memory that has not been sent before is meant.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_offered(peer: u32, address: *const c_void, bytes: u64) -> c_int {
    let Some(world) = world() else { return 0 };
    let address = (!address.is_null()).then_some(address as u64);
    match world.offers(peer, address, bytes) {
        Ok(()) => 1,
        Err(why) => {
            world.count_inline(peer, bytes, why);
            0
        }
    }
}

/// Whether a message of so many bytes is short: whoever sends one that was offered is not to wait long for
/// the receiver.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_short(bytes: u64) -> c_int {
    world().map_or(0, |world| c_int::from(world.is_short(bytes)))
}

/// Counts a send of memory on a GPU to a peer of this host, or a receive of bytes that came with the MPI: one that its
/// caller waits for, or another one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_count_operation(peer: u32, is_blocking: c_int) {
    let operation = if is_blocking != 0 { Operation::Blocking } else { Operation::NonBlocking };
    if let Some(world) = world() {
        world.count_operation(peer, operation);
    }
}

/// Counts a message that goes with the MPI because the call keeps a copy.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_count_copied(peer: u32, bytes: u64) {
    if let Some(world) = world() {
        world.count_inline(peer, bytes, Inline::Buffered);
    }
}

/// How many messages of a GPU's memory have gone one way so far: those that were received by the channel of
/// this name, or those that were sent with the MPI where it is `mpi`. 0 for other names.
///
/// # Safety
/// `way` is text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_messages(way: *const c_char) -> u64 {
    // SAFETY: as promised.
    let way = unsafe { CStr::from_ptr(way) }.to_str().unwrap_or_default();
    let Some(world) = world() else { return 0 };
    match way.parse::<Channel>() {
        Ok(channel) => world.messages(Some(channel)),
        Err(_) if way == "mpi" => world.messages(None),
        Err(_) => 0,
    }
}

/// Offers memory on a GPU to a peer, and writes the 79 bytes that tell it. The offer's number, or 0 where no
/// channel takes such memory: then the message is to go with the MPI.
///
/// # Safety
/// `descriptor` has room for 79 bytes. The memory stays as it is until the offer ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_offer(
    peer: u32,
    address: *const c_void,
    bytes: u64,
    descriptor: *mut [u8; DESCRIPTOR_BYTES],
) -> u64 {
    let offered = world().and_then(|world| Some((world.offer(peer, address as u64, bytes)?, world)));
    let Some(((operation, word), world)) = offered else {
        if let Some(world) = world() {
            world.count_inline(peer, bytes, Inline::NoChannel);
        }
        return 0;
    };
    // SAFETY: as promised.
    unsafe { *descriptor = word.encode(world.job()) };
    operation
}

/// 0 while an offer is under way, 1 when the peer has it, -1 when it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_offer_state(operation: u64) -> c_int {
    match world().map(|world| world.offer_state(operation)) {
        Some(OfferState::UnderWay) => 0,
        Some(OfferState::Done) => 1,
        Some(OfferState::Failed) => fail("the receiver has ended, or could not fetch the message"),
        None => fail("the message was under way when the job's end came"),
    }
}

/// Gives the memory of an offer back, where the peer has not begun to fetch it and is late, and keeps a copy. The
/// offer's state tells whether it has.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_detach(operation: u64) {
    if let Some(world) = world() {
        world.detach_late(operation);
    }
}
