//! Completion queue (CQ): polling and events.

use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr::{self, NonNull};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use crate::device::{Device, DeviceError, made};
use crate::sys::*;

/// Whether a request succeeded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(c_int);

impl Status {
    /// It did.
    pub const SUCCESS: Self = Self(IBV_WC_SUCCESS);
    /// It was not carried out, because the queue pair has ended.
    pub const FLUSHED: Self = Self(5);
    /// The peer does not allow access to the memory that was named.
    pub const REMOTE_ACCESS: Self = Self(10);

    /// The request succeeded.
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// What it means for the two ends.
    pub fn meaning(self) -> &'static str {
        match self.0 {
            0 => "success",
            1 => "a message was longer than the memory that waited for it",
            2 => "the queue pair met an inconsistency in a request of its own",
            4 => "a request named memory of this process that is not registered for it",
            5 => "the queue pair has ended",
            7 => "the peer answered something that does not belong here",
            9 => "the peer cannot carry out such a request",
            10 => "the peer does not allow access to the memory that was named",
            11 => "the peer failed in carrying out a request",
            12 => "the peer did not answer, however often it was asked: it or the path to it is down",
            13 => "the peer took no message, however often it was asked",
            19 => "the device has failed",
            20 => "the peer answered too late",
            _ => "the device reports a failure",
        }
    }

    /// The number that libibverbs has for it.
    pub fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (work completion status {})", self.meaning(), self.0)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What was done; known only for requests that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A message has left.
    Sent,
    /// Memory of the peer has been written.
    Written,
    /// Memory of the peer has been read.
    Read,
    /// A message of the peer has arrived.
    Received,
    /// The peer has written to memory of this process and said so.
    ReceivedWrite,
    /// Something that is not asked for here.
    Other,
}

/// The end of one request.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Completion(ibv_wc);

impl Completion {
    /// What the request was called.
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How the request ended.
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// What was done. Meaningful only after success.
    pub fn outcome(&self) -> Outcome {
        match self.0.opcode {
            IBV_WC_SEND => Outcome::Sent,
            IBV_WC_RDMA_WRITE => Outcome::Written,
            IBV_WC_RDMA_READ => Outcome::Read,
            IBV_WC_RECV => Outcome::Received,
            IBV_WC_RECV_RDMA_WITH_IMM => Outcome::ReceivedWrite,
            _ => Outcome::Other,
        }
    }

    /// Bytes that arrived. Meaningful only for successful receives and reads.
    pub fn length(&self) -> u32 {
        self.0.byte_len
    }

    /// The number that the peer sent with it. Meaningful only for successful receives.
    pub fn immediate(&self) -> Option<u32> {
        (self.0.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(self.0.imm_data))
    }

    /// The number of the queue pair in which it was.
    pub fn queue_pair(&self) -> u32 {
        self.0.qp_num
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id())
            .field("status", &self.status())
            .field("outcome", &self.outcome())
            .field("length", &self.length())
            .finish_non_exhaustive()
    }
}

struct Inner {
    raw: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    poll: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    request_notification: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    capacity: u32,
    device: Device,
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for Inner {}
// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        let verbs = self.device.libraries().verbs;
        // SAFETY: queue pairs hold their queue, so they have gone; every event that was taken has been
        // acknowledged.
        unsafe {
            (verbs.ibv_destroy_cq)(self.raw.as_ptr());
            (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}

/// Where the ends of requests are found, with a channel of its own to wait for them. Clones are the same
/// queue.
#[derive(Clone)]
pub struct CompletionQueue(Arc<Inner>);

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("capacity", &self.0.capacity).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// A queue with room for `capacity` completions, at least 1. A queue that overflows is lost with all its
    /// queue pairs, so it must have room for every request that can be under way in them.
    pub fn new(device: &Device, capacity: u32) -> Result<Self, DeviceError> {
        let verbs = device.libraries().verbs;
        // SAFETY: the context is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(device.0.raw) };
        let channel = made(channel, device, "a completion channel")?;
        // Waiting is done by `poll` on the descriptor, together with other things.
        // SAFETY: the descriptor belongs to the channel.
        unsafe {
            let flags = libc::fcntl(channel.as_ref().fd, libc::F_GETFL);
            libc::fcntl(channel.as_ref().fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        let entries = c_int::try_from(capacity.max(1)).unwrap_or(c_int::MAX);
        // SAFETY: context and channel are open; vector 0 always exists.
        let raw =
            unsafe { (verbs.ibv_create_cq)(device.0.raw, entries, ptr::null_mut(), channel.as_ptr(), 0) };
        let raw = match made(raw, device, "a completion queue") {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: made above, and without a queue.
                unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
                return Err(error);
            }
        };
        // SAFETY: the queue's own context has the functions of its provider.
        let (ops, capacity) = unsafe { (&(*raw.as_ref().context).ops, raw.as_ref().cqe.max(0) as u32) };
        let (Some(poll), Some(request_notification)) = (ops.poll_cq, ops.req_notify_cq) else {
            unreachable!("every provider can poll a completion queue")
        };
        Ok(Self(Arc::new(Inner {
            raw,
            channel,
            poll,
            request_notification,
            capacity,
            device: device.clone(),
        })))
    }

    /// Completions for which it has room; at least as many as were asked for.
    pub fn capacity(&self) -> u32 {
        self.0.capacity
    }

    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.0.raw.as_ptr()
    }

    /// Takes completions out, as many as there are and `into` has room for, and returns how many. One look,
    /// without waiting.
    pub fn poll(&self, into: &mut [Completion]) -> io::Result<usize> {
        let limit = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: a completion is an `ibv_wc`, and there is room for as many as are asked for.
        let taken = unsafe { (self.0.poll)(self.raw(), limit, into.as_mut_ptr().cast::<ibv_wc>()) };
        usize::try_from(taken).map_err(|_| io::Error::other("the completion queue has failed"))
    }

    /// Asks for an event with the next completion. Whoever waits asks, polls once more (the completion may
    /// have come before the question), and then sleeps on the [`descriptor`](Self::descriptor).
    pub fn request_event(&self) -> io::Result<()> {
        // SAFETY: the queue lives.
        match unsafe { (self.0.request_notification)(self.raw(), 0) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code.abs())),
        }
    }

    /// Readable when an event is there.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        let descriptor: RawFd = {
            // SAFETY: the channel lives as long as the queue.
            unsafe { self.0.channel.as_ref().fd }
        };
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Takes one event out of the channel, if there is one.
    pub fn take_event(&self) -> io::Result<bool> {
        let verbs = self.0.device.libraries().verbs;
        let (mut queue, mut context): (*mut ibv_cq, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives, and does not block.
        let code = unsafe { (verbs.ibv_get_cq_event)(self.0.channel.as_ptr(), &mut queue, &mut context) };
        if code == 0 {
            // SAFETY: the channel has this one queue, and the event was taken just now.
            unsafe { (verbs.ibv_ack_cq_events)(queue, 1) };
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        }
    }
}
