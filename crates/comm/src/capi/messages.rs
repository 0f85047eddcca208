//! Point-to-point messages for C programs: joining a job, queries of memory, offers, fetches and the queue of
//! unexpected messages. `mpi/causeway_comm.h` declares and describes the functions.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use std::sync::Arc;

use causeway_sync::fork;

use super::{FAILED, WORLD, fail, guard, world};
use crate::channels::Channel;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::locks::{Mutex, rank};
use crate::matching::{Arrived, DESCRIPTOR_BYTES, Descriptor, Pattern, Unexpected, classify};
use crate::report::{self, Inline};
use crate::settings::Settings;
use crate::tracer::Operation;
use crate::transfer::offers::OfferState;
use crate::world::World;

/// Joins a job. 0, or -1.
///
/// # Safety
/// `nonce` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_join(nonce: *const c_char, rank: u32, ranks: u32) -> c_int {
    guard(FAILED, || {
        // SAFETY: `nonce` is a C string of the caller, which stays until the call returns.
        let text = unsafe { CStr::from_ptr(nonce) }.to_str().unwrap_or_default().trim();
        let nonce = u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32);
        let Some(nonce) = nonce else {
            return fail("CAUSEWAY_COMM_JOB must be 32 hexadecimal digits, new ones for each job");
        };
        if fork::is_child() {
            return fail("this process was forked by one that has joined a job: start a new program");
        }
        let joined = Settings::from_environment().map_err(|error| error.to_string()).and_then(|settings| {
            World::join(nonce.to_be_bytes(), rank, ranks, settings).map_err(|error| error.to_string())
        });
        match joined {
            Ok(joined) => {
                if let Some(error) = joined.profile_error() {
                    report::print([error.to_string()]);
                }
                *WORLD.write() = Some(Arc::new(joined));
                0
            }
            Err(error) => fail(error),
        }
    })
}

/// Updates this process's locality after it has entered another container. 0, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_move() -> c_int {
    guard(FAILED, || {
        let Some(world) = world() else { return fail("this process has not joined a job") };
        match world.move_here() {
            Ok(()) => 0,
            Err(error) => fail(error),
        }
    })
}

/// Leaves the job, after all messages, when all ranks have joined. Prints the report of
/// `CAUSEWAY_COMM_EXPLAIN`.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_leave() {
    guard((), || {
        if world().is_some_and(|world| !world.drain()) {
            report::print(["a sent message was not received before the end of the job".to_owned()]);
        }
        if fork::is_child() {
            return;
        }
        let left = WORLD.write().take();
        if let Some(world) = &left {
            world.forget_names();
            if let Err(error) = world.keep_profile() {
                report::print([error.to_string()]);
            }
        }
        report::print(left.iter().filter_map(|world| world.report()).flatten());
    })
}

/// Whether an address is that of memory on a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_on_gpu(address: *const c_void) -> c_int {
    guard(0, || {
        let driver = Driver::loaded();
        c_int::from(driver.is_some_and(|driver| DeviceMemory::is_at(driver, address as u64)))
    })
}

/// Whether a CUDA driver is loaded. Without one, no address is that of memory on a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_has_driver() -> c_int {
    guard(0, || c_int::from(Driver::loaded().is_some()))
}

/// Whether the processor can access an address: that of memory of the host, or of managed memory.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_host_accessible(address: *const c_void) -> c_int {
    guard(0, || {
        let memory = Driver::loaded().and_then(|driver| DeviceMemory::at(driver, address as u64));
        c_int::from(memory.is_none_or(|memory| memory.is_managed))
    })
}

/// Waits until all that the calling thread has started in the default streams is complete, as `cudaMemcpy`
/// does.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_sync_memory(address: *const c_void) {
    guard((), || {
        if let Some(driver) = Driver::loaded() {
            cuda::synchronize_call(driver, address as u64);
        }
    })
}

/// Copies between a GPU and any memory. 0, or -1.
///
/// # Safety
/// Both are valid for so many bytes, or were memory on a GPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_copy(to: *mut c_void, from: *const c_void, bytes: u64) -> c_int {
    guard(FAILED, || {
        if bytes == 0 {
            return 0;
        }
        let (to, from, bytes) = (to as u64, from as u64, bytes as usize);
        let copied = match world() {
            // SAFETY: the caller guarantees that both addresses are valid for `bytes` bytes, or were memory on a GPU.
            Some(world) => unsafe { world.copy(to, from, bytes) }.map(drop),
            // SAFETY: the caller guarantees that both addresses are valid for `bytes` bytes, or were memory on a GPU.
            None => unsafe { cuda::copy(to, from, bytes) },
        };
        copied.map_or_else(fail, |()| 0)
    })
}

/// The same for the bytes of a message that the MPI has delivered, which are counted. The peer is `u32::MAX`
/// if it is not known. 0, or -1.
///
/// # Safety
/// As of [`causeway_comm_copy`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_deliver(
    peer: u32,
    to: *mut c_void,
    from: *const c_void,
    bytes: u64,
) -> c_int {
    guard(FAILED, || {
        let Some(world) = world().filter(|_| bytes > 0) else {
            // SAFETY: the caller guarantees that both addresses are valid for `bytes` bytes, or were memory on a GPU.
            return unsafe { causeway_comm_copy(to, from, bytes) };
        };
        let peer = (peer != u32::MAX).then_some(peer);
        // SAFETY: the caller guarantees that both addresses are valid for `bytes` bytes, or were memory on a GPU.
        let copied = unsafe { world.deliver(peer, to as u64, from as u64, bytes as usize) };
        copied.map_or_else(fail, |()| 0)
    })
}

/// Whether a message to a peer should be offered, 1; or sent with the MPI, 0, which is counted. The address
/// may be null: then the message is from memory that has not been sent before.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_offered(peer: u32, address: *const c_void, bytes: u64) -> c_int {
    guard(0, || {
        let Some(world) = world() else { return 0 };
        let address = (!address.is_null()).then_some(address as u64);
        match world.offers(peer, address, bytes) {
            Ok(()) => 1,
            Err(why) => {
                world.count_inline(peer, bytes, why);
                0
            }
        }
    })
}

/// Whether a message of so many bytes is short: its sender detaches the offer if the receiver is late.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_is_short(bytes: u64) -> c_int {
    guard(0, || world().map_or(0, |world| c_int::from(world.is_short(bytes))))
}

/// Counts a send of memory on a GPU to a peer of this node, or a receive of bytes that the MPI delivered: by
/// a blocking call, or a non-blocking one.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_count_operation(peer: u32, is_blocking: c_int) {
    guard((), || {
        let operation = if is_blocking != 0 { Operation::Blocking } else { Operation::NonBlocking };
        if let Some(world) = world() {
            world.count_operation(peer, operation);
        }
    })
}

/// Counts a message that is sent with the MPI because the call buffers it.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_count_copied(peer: u32, bytes: u64) {
    guard((), || {
        if let Some(world) = world() {
            world.count_inline(peer, bytes, Inline::Buffered);
        }
    })
}

/// The number of messages of a GPU's memory so far that were received by the channel of this name, or that
/// were sent with the MPI if it is `mpi`. 0 for other names.
///
/// # Safety
/// `channel` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_messages(channel: *const c_char) -> u64 {
    guard(0, || {
        // SAFETY: `channel` is a C string of the caller, which stays until the call returns.
        let channel = unsafe { CStr::from_ptr(channel) }.to_str().unwrap_or_default();
        let Some(world) = world() else { return 0 };
        match channel.parse::<Channel>() {
            Ok(channel) => world.messages(Some(channel)),
            Err(_) if channel == "mpi" => world.messages(None),
            Err(_) => 0,
        }
    })
}

/// The name of a channel by its number, as [`causeway_comm_messages`] takes it, and behind the last one `mpi`; null for greater
/// numbers.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_channel(number: u32) -> *const c_char {
    guard(ptr::null(), || {
        let number = number as usize;
        match Channel::ALL.get(number) {
            Some(channel) => channel.c_name().as_ptr(),
            None if number == Channel::COUNT => c"mpi".as_ptr(),
            None => ptr::null(),
        }
    })
}

/// Offers memory on a GPU to a peer, and writes the bytes of the descriptor. The number of the offer, or 0
/// if no channel supports such memory: then the caller sends the message with the MPI.
///
/// # Safety
/// `descriptor` has capacity for [`DESCRIPTOR_BYTES`]. The memory does not change until the offer ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_offer(
    peer: u32,
    address: *const c_void,
    bytes: u64,
    descriptor: *mut [u8; DESCRIPTOR_BYTES],
) -> u64 {
    guard(0, || {
        let offered = world().and_then(|world| Some((world.offer(peer, address as u64, bytes)?, world)));
        let Some(((operation, word), world)) = offered else {
            if let Some(world) = world() {
                world.count_inline(peer, bytes, Inline::NoChannel);
            }
            return 0;
        };
        // SAFETY: the caller has room at `descriptor`, which nobody else uses during the call.
        unsafe { *descriptor = word.encode(world.job()) };
        operation
    })
}

/// 0 while an offer is in flight, 1 when the peer has it, -1 when it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_offer_state(operation: u64) -> c_int {
    guard(FAILED, || match world().map(|world| world.offer_state(operation)) {
        Some(OfferState::InFlight) => 0,
        Some(OfferState::Done) => 1,
        Some(OfferState::Failed) => fail("the receiver has ended, or could not fetch the message"),
        None => fail("the message was in flight when the job ended"),
    })
}

/// Copies the message of an offer that the peer is late to fetch, unless the fetch has started, and releases
/// the memory. The state of the offer says whether it did.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_detach(operation: u64) {
    guard((), || {
        if let Some(world) = world() {
            world.detach_late(operation);
        }
    })
}

/// A thread waits in a call of the MPI from now on, in which this rank makes no progress on receives that
/// it has started: the senders of such messages detach them soon.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_begin_wait() {
    guard((), || {
        if let Some(world) = world() {
            world.begin_wait();
        }
    })
}

/// The thread has come back from that call.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_end_wait() {
    guard((), || {
        if let Some(world) = world() {
            world.end_wait();
        }
    })
}

/// Classifies a received message, for a buffer of `capacity` bytes: 0 a payload, 1 one that is too long, 2 a
/// descriptor. Writes the length of the payload.
///
/// # Safety
/// `start` has `length` bytes if that is [`DESCRIPTOR_BYTES`], and `payload` is valid for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_classify(
    start: *const u8,
    length: u64,
    capacity: u64,
    payload: *mut u64,
) -> c_int {
    guard(FAILED, || {
        let bytes: &[u8] = if length == DESCRIPTOR_BYTES as u64 {
            // SAFETY: the caller has as many elements at `start`, and leaves them alone until the call returns.
            unsafe { core::slice::from_raw_parts(start, DESCRIPTOR_BYTES) }
        } else {
            &[]
        };
        let arrived = match world() {
            Some(world) => classify(world.job(), world.rank(), bytes, length, capacity),
            None if length > capacity => Arrived::TooLong(length),
            None => Arrived::Payload(length),
        };
        let (kind, count) = match arrived {
            Arrived::Payload(count) => (0, count),
            Arrived::TooLong(count) => (1, count),
            Arrived::Descriptor(descriptor) => (2, descriptor.bytes),
        };
        // SAFETY: the caller has room at `payload`, which nobody else uses during the call.
        unsafe { *payload = count };
        kind
    })
}

/// Fetches the message of a descriptor into memory of `capacity` bytes, which is on a GPU if `on_gpu` is not
/// 0, and waits for it. A longer message is not fetched. 0, or -1.
///
/// # Safety
/// `descriptor` has [`DESCRIPTOR_BYTES`], and `to` is valid for `capacity` bytes that nothing else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_fetch(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    to: *mut c_void,
    on_gpu: c_int,
    capacity: u64,
    is_blocking: c_int,
) -> c_int {
    guard(FAILED, || {
        let by = if is_blocking != 0 { Operation::Blocking } else { Operation::NonBlocking };
        let Some(world) = world() else { return fail("this process has not joined a job") };
        // SAFETY: the caller has a whole descriptor there, which stays until the call returns.
        let Some(word) = Descriptor::decode(unsafe { &*descriptor }, world.job()) else {
            return fail("the message is not a descriptor of this job");
        };
        // SAFETY: the caller has `capacity` bytes at `to`, and leaves them alone until the message is there.
        match unsafe { world.fetch(&word, to as u64, on_gpu != 0, capacity, by) } {
            Ok(()) => 0,
            Err(error) => fail(error),
        }
    })
}

/// Starts to fetch the message of a descriptor. 0 if it is complete; 1 if it is in flight, with a number for
/// [`causeway_comm_fetch_state`]; -1.
///
/// # Safety
/// As of [`causeway_comm_fetch`], until it is complete. `number` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn causeway_comm_start_fetch(
    descriptor: *const [u8; DESCRIPTOR_BYTES],
    to: *mut c_void,
    on_gpu: c_int,
    capacity: u64,
    number: *mut u64,
) -> c_int {
    guard(FAILED, || {
        let Some(world) = world() else { return fail("this process has not joined a job") };
        // SAFETY: the caller has a whole descriptor there, which stays until the call returns.
        let Some(word) = Descriptor::decode(unsafe { &*descriptor }, world.job()) else {
            return fail("the message is not a descriptor of this job");
        };
        // SAFETY: the caller has `capacity` bytes at `to`, and leaves them alone until the message is there.
        match unsafe { world.start_fetch(&word, to as u64, on_gpu != 0, capacity) } {
            Ok(None) => 0,
            Ok(Some(started)) => {
                // SAFETY: the caller has room at `number`, which nobody else uses during the call.
                unsafe { *number = started };
                1
            }
            Err(error) => fail(error),
        }
    })
}

/// 1 while a fetch is in flight, 0 when it is complete, -1 when it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_fetch_state(number: u64) -> c_int {
    guard(FAILED, || {
        let Some(world) = world() else { return fail("this process has not joined a job") };
        match world.fetch_end(number) {
            None => 1,
            Some(Ok(())) => 0,
            Some(Err(error)) => fail(error),
        }
    })
}

/// Unexpected messages, which probes have received: the caller's addresses.
static UNEXPECTED: Mutex<rank::Leaf, Option<Unexpected<usize>>> = Mutex::new(None);

fn pattern(communicator: u64, source: c_int, tag: c_int) -> Pattern {
    let known = |number: c_int| (number >= 0).then_some(number);
    Pattern { communicator, source: known(source), tag: known(tag) }
}

/// Appends a message that a probe has received to the queue of unexpected messages.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_queue_unexpected(
    communicator: u64,
    source: c_int,
    tag: c_int,
    message: *mut c_void,
) {
    guard((), || {
        let mut list = UNEXPECTED.lock();
        list.get_or_insert_default().push(communicator, source, tag, message as usize);
    })
}

/// The first unexpected message that matches, or null; -1 matches any source or tag. It is removed if
/// `is_removed` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_comm_take_unexpected(
    communicator: u64,
    source: c_int,
    tag: c_int,
    is_removed: c_int,
) -> *mut c_void {
    guard(ptr::null_mut(), || {
        let mut list = UNEXPECTED.lock();
        let found = list.as_mut().and_then(|list| {
            let pattern = pattern(communicator, source, tag);
            if is_removed != 0 { list.take(pattern) } else { list.find(pattern).copied() }
        });
        found.map_or(ptr::null_mut(), |message| message as *mut c_void)
    })
}
