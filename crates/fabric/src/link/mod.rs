//! The link: one session's messages and transfers.
//!
//! | Module        | Question it answers                                                              |
//! |---------------|----------------------------------------------------------------------------------|
//! | `batch`       | When does an appended message leave, and in which order?                          |
//! | `receiver`    | How do the peer's frames come in, and when is the peer gone?                      |
//! | `reception`   | Who receives: the thread whose task it is, or one that waits?                     |
//! | `sending`     | What is sent as a transfer, how, and until when is its memory in use?              |
//! | `transfers`   | Where do the bytes of a transfer go, and who hears of its end?                    |
//! | `one_sided`   | What is moved without a copy, where network cards reach memory?                   |
//! | `ending`      | How does a link end, and who is told first?                                       |
//! | `counters`    | What has gone over it?                                                           |
//! | `error`       | What can go wrong?                                                               |
//!
//! How frames and transfers move is the business of the module that carries the link (`module.rs`).
//!
//! Locks, in the order in which they may be taken: `writer`, `batch`, `numbers`; the module's; `transfers`. No
//! callback of the link's owner runs under any of them, except the closures of [`Link::append`] and
//! [`Link::send`], which run under `batch`.

mod batch;
mod counters;
mod ending;
mod error;
mod one_sided;
mod receiver;
mod reception;
mod sending;
mod transfers;

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use causeway_wire::sequence::Sequencer;
use parking_lot::Mutex;

use crate::connect::LaneDialer;
use crate::module::{Memory, Parts};
use crate::staging::{Lease, Piece, Region};
use crate::tcp;
use crate::via::Via;
use causeway_connection::channel::Connection;
use causeway_memory::SealedMemory;
use causeway_pipeline::MOST_LANES;
use causeway_sync::threads;

pub use counters::Counters;
pub(crate) use counters::{AtomicCounters, count};
use ending::{CLOSED, LOST, OPEN};
pub use error::{DescriptorError, LaneError, LinkError, TransferError};
pub use one_sided::{DeviceMemory, DeviceUse, NotRegistered, Then};
pub use receiver::{Meanwhile, Receiver};
pub use reception::{Guest, Reception};
pub(crate) use sending::{Address, Keeper, Order, Pending};
pub use sending::{Carriage, Sending};
pub use transfers::{ChooseMemory, Destination};
pub(crate) use transfers::{ChunkAddress, Landed, Place, Transfers};

/// What the owner of a link is told.
pub trait LinkEvents: Send + Sync {
    /// The first bytes of a transfer have come that nobody expects: where shall they go? With `None` they
    /// are read and dropped. Runs on a thread that receives and must not block; `total` is the transfer's size in
    /// bytes, as the peer says.
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let _ = (transfer, total);
        None
    }

    /// All bytes of a transfer that nobody expects lie in memory that both processes share. The owner may take them where
    /// they lie, or give the lease back to have them copied as if they came in parts. Runs on a thread of the link and
    /// must not block.
    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let _ = transfer;
        Err(lease)
    }

    /// The peer has handed over memory with [`Link::send_descriptor`], or tried to. Nothing says in which order that comes
    /// with messages and transfers.
    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let _ = (number, memory);
    }

    /// The peer has handed over a descriptor of device memory with [`Link::send_allocation`], or tried to. What it really is
    /// only a device's driver can tell.
    fn allocation(&self, number: u64, allocation: Result<OwnedFd, DescriptorError>) {
        let _ = (number, allocation);
    }

    /// The link is lost; runs once, on some thread, before transfers and calls fail because of it. Not called
    /// when the owner itself closes the link.
    fn lost(&self, cause: &LinkError);
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A message of the peer.
    Message,
    /// A transfer of the peer.
    Transfer,
}

/// A link to the other end of a session. Clones share it.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// Marks a free place in [`Shared::descriptors`].
const NO_DESCRIPTOR: RawFd = -1;

/// A command connection and what wakes its receiver, for each lane a connection and the two ends of a pipe, and two that wait for all lanes.
const MOST_DESCRIPTORS: usize = 2 + 3 * MOST_LANES as usize + 2;

/// What a link's threads and its module share.
pub(crate) struct Shared {
    sending: batch::Sending,
    numbers: Mutex<Sequencer>,
    memory: Box<dyn Memory>,
    transfers: Transfers,
    state: AtomicU8,
    cause: OnceLock<LinkError>,
    events: OnceLock<Arc<dyn LinkEvents>>,
    /// The thread that tells the owner of the loss.
    teller: OnceLock<ThreadId>,
    /// Whether it, or [`Link::start`], has begun to do so.
    telling: AtomicBool,
    /// Whether that is done.
    told: AtomicBool,
    counters: AtomicCounters,
    /// All our descriptors, for a forked child that may take no lock.
    descriptors: [AtomicI32; MOST_DESCRIPTORS],
}

impl Link {
    /// A link over the parts of a module. `descriptors` are what the module holds open by now.
    pub(crate) fn new(parts: Parts, descriptors: &[RawFd]) -> io::Result<(Self, Receiver)> {
        let Parts { sender, receiver, memory } = parts;
        let shared = Arc::new(Shared {
            sending: batch::Sending::new(sender),
            numbers: Mutex::new(Sequencer::new()),
            memory,
            transfers: Transfers::default(),
            state: AtomicU8::new(OPEN),
            cause: OnceLock::new(),
            events: OnceLock::new(),
            teller: OnceLock::new(),
            telling: AtomicBool::new(false),
            told: AtomicBool::new(false),
            counters: AtomicCounters::default(),
            descriptors: [const { AtomicI32::new(NO_DESCRIPTOR) }; MOST_DESCRIPTORS],
        });
        descriptors.iter().for_each(|descriptor| shared.note_descriptor(*descriptor));
        let receiver = Receiver::new(Arc::clone(&shared), receiver);
        batch::start_flusher(&shared)?;
        Ok((Self(shared), receiver))
    }

    /// A link over TCP whose lanes are opened by `dialer` at [`Link::start`].
    pub(crate) fn dialled(connection: Connection, dialer: LaneDialer) -> io::Result<(Self, Receiver)> {
        let descriptor = connection.socket().as_raw_fd();
        Self::new(tcp::messages::parts(connection, Some(dialer))?, &[descriptor])
    }

    /// A link over a TCP connection that was accepted, whose lanes come by [`Link::attach_lane`].
    pub fn accepted(connection: Connection) -> io::Result<(Self, Receiver)> {
        let descriptor = connection.socket().as_raw_fd();
        Self::new(tcp::messages::parts(connection, None)?, &[descriptor])
    }

    /// Says who is told of transfers and of the end, and opens the bulk lanes in the background. Once,
    /// before the first transfer.
    ///
    /// # Panics
    /// When called twice.
    pub fn start(&self, events: Arc<dyn LinkEvents>) {
        assert!(self.0.events.set(events).is_ok(), "a link is started once");
        // With the fence in `tell_loss`: either we see the loss here, or the loser sees the events.
        fence(Ordering::SeqCst);
        if self.0.state.load(Ordering::SeqCst) == LOST
            && let Some(cause) = self.0.cause.get()
        {
            self.0.tell_loss(cause);
        }
        self.0.memory.start(&self.0);
    }

    /// Adds a bulk lane that the peer has opened.
    pub fn attach_lane(&self, connection: Connection) {
        self.0.memory.attach(&self.0, connection);
    }

    /// Appends a posted message to the current batch. It leaves when the batch is big, when it is about 30
    /// us old, or with the next [`send`](Self::send) or [`flush`](Self::flush), whichever comes first;
    /// messages leave in the order in which they were appended. `encode` runs under a lock: it must be
    /// short and may not use the link.
    ///
    /// While the peer takes nothing this blocks once the batch is full, which bounds the memory used.
    #[inline]
    pub fn append<R>(&self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, LinkError> {
        batch::append(&self.0, encode, false)
    }

    /// Appends a message and lets the batch leave now.
    #[inline]
    pub fn send<R>(&self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, LinkError> {
        batch::append(&self.0, encode, true)
    }

    /// Lets everything appended so far leave now.
    pub fn flush(&self) -> Result<(), LinkError> {
        batch::flush(&self.0)
    }

    /// Somebody begins to wait for what the peer will say or send. The thread that receives it is woken if it sleeps, to be
    /// awake when it comes, which makes sense where it [looks](causeway_sync::awake) then; one that is about to sleep may be missed. Never
    /// blocks.
    pub fn rouse(&self, awaited: Awaited) {
        self.0.memory.rouse(awaited);
    }

    /// Sends a transfer and returns when the bytes have left the program's memory.
    pub fn send_transfer(&self, transfer: u64, bytes: &[u8]) -> Result<(), LinkError> {
        // SAFETY: the slice is readable until this returns.
        unsafe { self.begin_transfer(transfer, bytes.as_ptr(), bytes.len(), Carriage::default())?.wait() }
    }

    /// Begins to send a transfer whose bytes are memory of the program.
    ///
    /// # Safety
    /// The memory must be readable until the result has been dropped. Other threads may write to it; then either value
    /// is sent.
    pub unsafe fn begin_transfer(
        &self,
        transfer: u64,
        bytes: *const u8,
        length: usize,
        carriage: Carriage,
    ) -> Result<Sending, LinkError> {
        let order = Order { transfer, start: Address(bytes), length, carriage, keeper: None };
        // SAFETY: passed on to the caller.
        unsafe { self.0.memory.send(&self.0, order) }
    }

    /// Puts a transfer in line, to be sent when its turn comes, and returns at once where the module can. `keeper` keeps
    /// the memory as it is, so that it counts as steady; it is dropped, on some thread, when the bytes are with the peer or the link has ended.
    ///
    /// # Safety
    /// The memory must be readable until `keeper` has been dropped. Other threads may write to it; then either value is
    /// sent.
    pub unsafe fn post_transfer(
        &self,
        transfer: u64,
        bytes: *const u8,
        length: usize,
        carriage: Carriage,
        keeper: impl Send + 'static,
    ) -> Result<(), LinkError> {
        let carriage = Carriage { steady: true, ..carriage };
        let order =
            Order { transfer, start: Address(bytes), length, carriage, keeper: Some(Box::new(keeper)) };
        // SAFETY: passed on to the caller.
        unsafe { self.0.memory.send(&self.0, order) }.map(drop)
    }

    /// Which module moves the bytes.
    pub fn via(&self) -> Via {
        self.0.memory.via()
    }

    /// Memory of `length` bytes that the peer will read where it lies: to be filled, and then sent with
    /// [`send_piece`](Self::send_piece). `None` when the module has no such memory, when none is free now, or when `length`
    /// is more than a piece can have. Never blocks.
    pub fn piece(&self, length: usize) -> Option<Piece> {
        self.0.memory.piece(&self.0, length)
    }

    /// Sends a piece of this link as a whole transfer. Never blocks.
    pub fn send_piece(&self, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        self.0.memory.send_piece(&self.0, transfer, piece)
    }

    /// The memory in which pieces of this side and leases of the peer's lie, for whoever registers it with a device, in
    /// [segments](crate::shm::layout::SEGMENT). Nothing where the module has no such memory.
    pub fn regions(&self) -> Option<[Region; 2]> {
        self.0.memory.regions()
    }

    /// Hands memory to the peer, which gets it under `number` ([`LinkEvents::descriptor`]). Only a module of one host can do
    /// that.
    pub fn send_descriptor(&self, number: u64, memory: &SealedMemory) -> Result<(), LinkError> {
        self.0.memory.send_descriptor(&self.0, number, memory)
    }

    /// Hands a descriptor of device memory to the peer, which gets it under `number` ([`LinkEvents::allocation`]). Only a module
    /// of one host can do that.
    pub fn send_allocation(&self, number: u64, allocation: BorrowedFd<'_>) -> Result<(), LinkError> {
        self.0.memory.send_allocation(&self.0, number, allocation)
    }

    /// Says where a transfer of the peer goes, before anything makes the peer send it. When it has ended,
    /// well or not, the destination's callback runs. On an error here the callback does not run.
    pub fn expect_transfer(&self, transfer: u64, destination: Destination) -> Result<(), TransferError> {
        self.0.check()?;
        self.0.transfers.expect(transfer, destination)?;
        // The link may have been lost between the check and the entry.
        if let Err(error) = self.0.check() {
            self.0.transfers.fail_all(&error);
        }
        Ok(())
    }

    /// Gives up a transfer of the peer. When this returns nothing writes to its destination any more, and
    /// its callback has run. Waits for a chunk that is being received. Not to be called in a destination's
    /// callback.
    pub fn cancel_transfer(&self, transfer: u64) {
        self.0.transfers.cancel(transfer);
    }

    /// Whether the link is lost or closed.
    pub fn is_lost(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) != OPEN
    }

    /// Ends the session: what was appended leaves, then all connections end and all transfers fail.
    /// [`LinkEvents::lost`] is not called for that.
    pub fn close(&self) {
        // The peer may be gone already, then there is nobody to tell.
        let _ = self.flush();
        if self.0.state.compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.0.end_connections();
            self.0.transfers.fail_all(&LinkError::Closed);
        }
    }

    /// Closes the descriptors in a forked child, so that the child does not keep its parent's session
    /// alive. Takes no lock and allocates nothing. The parent's threads do not exist here: the child must
    /// never use or drop this link, nor its receiver.
    pub fn abandon_after_fork(&self) {
        for descriptor in &self.0.descriptors {
            let descriptor = descriptor.swap(NO_DESCRIPTOR, Ordering::SeqCst);
            if descriptor != NO_DESCRIPTOR {
                // SAFETY: the child owns its copies of the descriptors, and never uses the link that names
                // them.
                unsafe { libc::close(descriptor) };
            }
        }
    }

    /// What has gone over the link so far.
    pub fn counters(&self) -> Counters {
        self.0.counters.now()
    }
}

impl Shared {
    /// Where the peer's transfers go.
    pub(crate) fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// The owner, once it has started the link.
    pub(crate) fn events(&self) -> Option<&dyn LinkEvents> {
        self.events.get().map(|events| &**events)
    }

    pub(crate) fn counters(&self) -> &AtomicCounters {
        &self.counters
    }

    /// Takes note of a descriptor that a forked child is to close.
    pub(crate) fn note_descriptor(&self, descriptor: RawFd) {
        let free = |place: &&AtomicI32| {
            place.compare_exchange(NO_DESCRIPTOR, descriptor, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let noted = self.descriptors.iter().find(free);
        debug_assert!(noted.is_some(), "there is a place for the command connection and for every lane");
    }
}

/// Starts one of the link's threads, or loses the link where the system has no thread to give.
pub(crate) fn spawn_or_lose(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce(&Arc<Shared>) + Send + 'static,
) {
    let own = Arc::clone(shared);
    if let Err(error) = threads::spawn(name, move || body(&own)) {
        shared.lose(LinkError::local(&error));
    }
}
