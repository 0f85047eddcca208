//! The link: one session's messages and transfers.
//!
//! How frames and transfers move is the business of the transport that carries the link
//! ([`causeway_transport::transport`]).
//!
//! Locks, in the order in which they may be taken: this crate's (`locks`); the transport's; `transfers`. No callback of the link's owner runs under any of them, except the closures of
//! [`Link::append`] and [`Link::send`], which run under that of the batch.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_connection::channel::Connection;
use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_memory::SealedMemory;
use causeway_sync::fork::in_background;
use causeway_transport::Pacer;
use causeway_transport::staging::{Piece, Region};
use causeway_transport::{
    Address, Awaited, BufferGuard, Carrier, Counters, Destination, LinkError, LinkEvents, Memory, OneSided,
    OutgoingTransfer, Parts, Sending, Shared, TransferError, TransferOptions, TransportKind,
};
use causeway_transport_tcp::TcpOptions;
use causeway_wire::relocation::LinkState;
use causeway_wire::sequence::Sequencer;

use crate::batch;
use crate::locks::Mutex;
use crate::receiver::Receiver;

/// How long a link that is closed waits for a connection on which it can notify the peer, and for the peer's response.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A link to the other end of a session. Clones share it.
#[derive(Clone)]
pub struct Link {
    sending: Arc<batch::Sending>,
    carried: Arc<Carried>,
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// What keeps memory of the program as it is. Where a thread of the link drops it, that is work for the program.
struct Guard<T>(Option<T>);

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        let _work = in_background();
        drop(self.0.take());
    }
}

/// What carries a link, and ends with it.
struct Carried {
    sending: Arc<batch::Sending>,
    memory: Box<dyn Memory>,
    /// What the transport knows of the link.
    shared: Arc<Shared>,
}

impl Carrier for Carried {
    fn end(&self) {
        self.memory.end();
        self.sending.wake_flusher();
    }

    fn send_keepalive(&self) {
        self.sending.send_keepalive();
    }

    fn send_acknowledgement(&self) -> bool {
        self.sending.send_acknowledgement()
    }

    fn send_goodbye(&self) -> bool {
        self.sending.send_goodbye()
    }
}

impl Link {
    /// What its transport can do where network cards reach memory by themselves.
    pub(crate) fn rdma(&self) -> Option<&dyn OneSided> {
        self.carried.memory.one_sided()
    }

    /// What its transport knows of it.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.carried.shared
    }

    /// A link over the parts of a transport, and its receiving end.
    pub fn new(parts: Parts) -> io::Result<(Self, Receiver)> {
        Self::with_numbers(parts, Sequencer::new())
    }

    fn with_numbers(parts: Parts, numbers: Sequencer) -> io::Result<(Self, Receiver)> {
        let Parts { sender, receiver, memory, descriptors, wait_for_capacity } = parts;
        let numbers = Arc::new(Mutex::new(numbers));
        let carried = Arc::new_cyclic(|own: &Weak<Carried>| {
            let shared = Arc::new(Shared::new(Weak::<Carried>::clone(own), &descriptors));
            let sending =
                batch::Sending::new(Arc::clone(&shared), Arc::clone(&numbers), sender, wait_for_capacity);
            Carried { sending: Arc::new(sending), memory, shared }
        });
        let shared = Arc::clone(&carried.shared);
        let is_resumable = carried.memory.is_resumable();
        let receiver =
            Receiver::new(shared, numbers, Arc::<Carried>::clone(&carried), receiver, is_resumable);
        carried.sending.start_flusher()?;
        Ok((Self { sending: Arc::clone(&carried.sending), carried }, receiver))
    }

    /// A link over the connection itself on which the session was asked for, whose lanes come by
    /// [`Link::attach_lane`].
    pub fn accepted(connection: Connection) -> io::Result<(Self, Receiver)> {
        Self::accepted_resumable(connection, Duration::ZERO, false)
    }

    /// The same; for as long as `resume` says it may be without a connection, and one that takes the place of this one
    /// comes as lanes do. Its receiver can be [woken](Self::wake_receiver) to yield then, and where it
    /// `is_interruptible`.
    pub fn accepted_resumable(
        connection: Connection,
        resume: Duration,
        is_interruptible: bool,
    ) -> io::Result<(Self, Receiver)> {
        let options = TcpOptions { resume, is_interruptible, ..TcpOptions::default() };
        Self::new(causeway_transport_tcp::parts(connection, options)?)
    }

    /// A link that another process has left in this state, over a connection that has failed: the peer's next one is
    /// awaited for `first_window`, and a later one for `resume`.
    pub fn taken_up(
        lost: Connection,
        state: LinkState,
        resume: Duration,
        first_window: Duration,
    ) -> io::Result<(Self, Receiver)> {
        let numbers = Sequencer::resumed(state.sent, state.received, state.acknowledged);
        let options = TcpOptions { resume, taken_up: Some((state, first_window)), ..TcpOptions::default() };
        Self::with_numbers(causeway_transport_tcp::parts(lost, options)?, numbers)
    }

    /// Stops the worker's end between two frames, so that another process can take it up: `receiver` receives and
    /// nothing is sent until [`release`](Self::release). In the state that is returned a message, encoded as
    /// `last`, has been sent. Nothing where the link is not resumable, or lost.
    pub fn hold(&self, receiver: &mut Receiver, last: &[u8]) -> Option<LinkState> {
        if !self.is_resumable() {
            return None;
        }
        receiver.finish_frame();
        self.sending.hold().ok()?;
        let (before, from, mut frames) = self.carried.memory.unacknowledged_frames()?;
        let (header, numbers) = self.sending.next_header(last.len() as u32);
        frames.push([&header.to_bytes()[..], last].concat());
        Some(LinkState {
            sent: header.sequence,
            received: numbers.received(),
            received_bytes: receiver.frame_bytes(),
            acknowledged: numbers.acknowledged(),
            frames_start: from,
            frames_before: before,
            frames,
        })
    }

    /// Sends again, after [`hold`](Self::hold).
    pub fn release(&self) -> Result<(), LinkError> {
        self.sending.release(false)
    }

    /// Sends the message of which the state after [`hold`](Self::hold) says that it has been sent, and nothing more.
    pub fn send_last(&self, message: &[u8]) -> Result<(), LinkError> {
        self.sending.append(|out| out.extend_from_slice(message), false)?;
        self.sending.release(true)
    }

    /// How many frames of the peer have been received, empty ones included.
    pub fn frames_accepted(&self) -> u64 {
        self.sending.next_header(0).1.received()
    }

    /// Gives up the connections of a resumable link, at the end that dials, which does so anew.
    pub fn reconnect(&self) {
        self.carried.memory.reconnect();
    }

    /// Whether the link goes on when its connections are lost, on others.
    pub fn is_resumable(&self) -> bool {
        self.carried.memory.is_resumable()
    }

    /// Says who is notified of transfers and of the end, and opens the bulk lanes in the background. Once,
    /// before the first transfer.
    ///
    /// # Panics
    /// When called twice.
    pub fn start(&self, events: Arc<dyn LinkEvents>) {
        self.carried.shared.start(events);
        self.carried.memory.start(&self.carried.shared);
    }

    /// From here on the peer is shown every second that this end is there, and the link, or a connection of it,
    /// is given up when nothing has come for as long as `timeouts` says: from now on if it is known that the peer
    /// does the same, otherwise once it has. Once; it may come before [`start`](Self::start).
    pub fn keep_alive(&self, timeouts: KeepaliveTimeouts, peer_does: bool) {
        let shared = &self.carried.shared;
        if peer_does {
            shared.note_keepalive();
        }
        self.carried.memory.keep_alive(shared, timeouts);
    }

    /// Has transfers over TCP held back, so that they keep to a rate; to be called before [`start`](Self::start).
    /// Other transports carry them as fast as they can.
    pub fn set_pacer(&self, pacer: Arc<dyn Pacer>) {
        self.carried.shared.set_pacer(pacer);
    }

    /// Adds a bulk lane that the peer has opened.
    pub fn attach_lane(&self, connection: Connection) {
        self.carried.memory.attach(&self.carried.shared, connection);
    }

    /// Appends a posted message to the current batch. It leaves when the batch is big, when it is about 30
    /// us old, or with the next [`send`](Self::send) or [`flush`](Self::flush), whichever comes first;
    /// messages leave in the order in which they were appended. `encode` runs under a lock: it must be
    /// short and may not use the link.
    ///
    /// While the peer takes nothing this blocks once the batch is full, which bounds the memory used.
    #[inline]
    pub fn append<R>(&self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, LinkError> {
        self.sending.append(encode, false)
    }

    /// Appends a message and lets the batch leave now.
    #[inline]
    pub fn send<R>(&self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, LinkError> {
        self.sending.append(encode, true)
    }

    /// Lets everything appended so far leave now.
    pub fn flush(&self) -> Result<(), LinkError> {
        self.sending.flush()
    }

    /// Somebody begins to wait for what the peer will say or send. The thread that receives it is woken if it
    /// sleeps, to spin when it comes, which makes sense where it [spins](causeway_sync::spin) then; one
    /// that is about to sleep may be missed. Never blocks.
    pub fn wake_receiver(&self, awaited: Awaited) {
        self.carried.memory.wake_receiver(awaited);
    }

    /// Sends a transfer and returns when the bytes have left the program's memory.
    pub fn send_transfer(&self, transfer: u64, bytes: &[u8]) -> Result<(), LinkError> {
        // SAFETY: the slice is readable until this returns.
        unsafe {
            self.begin_transfer(transfer, bytes.as_ptr(), bytes.len(), TransferOptions::default())?.wait()
        }
    }

    /// Begins to send a transfer whose bytes are memory of the program.
    ///
    /// # Safety
    /// The memory must be readable until the result has been dropped. Other threads may write to it; then
    /// either value is sent.
    pub unsafe fn begin_transfer(
        &self,
        transfer: u64,
        bytes: *const u8,
        length: usize,
        options: TransferOptions,
    ) -> Result<Sending, LinkError> {
        let order = OutgoingTransfer { transfer, start: Address(bytes), length, options, guard: None };
        // SAFETY: the caller keeps the memory readable until the result has been dropped.
        unsafe { self.carried.memory.send(&self.carried.shared, order) }
    }

    /// Queues a transfer, to be sent when its turn comes, and returns at once where the transport can.
    /// `guard` keeps the memory as it is, so that it counts as steady; it is dropped, on some thread, when
    /// the bytes are with the peer or the link has ended.
    ///
    /// # Safety
    /// The memory must be readable until `guard` has been dropped. Other threads may write to it; then
    /// either value is sent.
    pub unsafe fn post_transfer(
        &self,
        transfer: u64,
        bytes: *const u8,
        length: usize,
        options: TransferOptions,
        guard: impl Send + 'static,
    ) -> Result<(), LinkError> {
        let options = TransferOptions { steady: true, ..options };
        let order = OutgoingTransfer {
            transfer,
            start: Address(bytes),
            length,
            options,
            guard: Some(Box::new(Guard(Some(guard))) as BufferGuard),
        };
        // SAFETY: the caller keeps the memory readable until `guard`, which the order owns, has been dropped.
        unsafe { self.carried.memory.send(&self.carried.shared, order) }.map(drop)
    }

    /// Which transport moves the bytes.
    pub fn kind(&self) -> TransportKind {
        self.carried.memory.kind()
    }

    /// Whether memory can be handed to the peer: [`send_descriptor`](Self::send_descriptor) and
    /// [`send_allocation`](Self::send_allocation).
    pub fn passes_descriptors(&self) -> bool {
        self.carried.memory.passes_descriptors()
    }

    /// Memory of `length` bytes that the peer will read in place: to be filled, and then sent with
    /// [`send_piece`](Self::send_piece). `None` when the transport has no such memory, when none is free now,
    /// or when `length` is more than a piece can have. Never blocks.
    pub fn piece(&self, length: usize) -> Option<Piece> {
        self.carried.memory.piece(&self.carried.shared, length)
    }

    /// Sends a piece of this link as a whole transfer. Never blocks.
    pub fn send_piece(&self, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        self.carried.memory.send_piece(&self.carried.shared, transfer, piece)
    }

    /// The memory in which pieces of this side and leases of the peer's lie, for whoever registers it with a
    /// device, in [segments](causeway_transport::slots::SEGMENT). Nothing where the transport has no such
    /// memory.
    pub fn regions(&self) -> Option<[Region; 2]> {
        self.carried.memory.regions()
    }

    /// Hands memory to the peer, which gets it under `number` ([`LinkEvents::descriptor`]). Only a transport
    /// within a host can do that.
    pub fn send_descriptor(&self, number: u64, memory: &SealedMemory) -> Result<(), LinkError> {
        self.carried.memory.send_descriptor(&self.carried.shared, number, memory)
    }

    /// Hands a descriptor of device memory or of a file to the peer, which gets it under `number`
    /// ([`LinkEvents::allocation`]). Only a transport within a host can do that.
    pub fn send_allocation(&self, number: u64, allocation: BorrowedFd<'_>) -> Result<(), LinkError> {
        self.carried.memory.send_allocation(&self.carried.shared, number, allocation)
    }

    /// Says where a transfer of the peer goes, before anything makes the peer send it. When it has ended,
    /// well or not, the destination's callback runs. On an error here the callback does not run.
    pub fn expect_transfer(&self, transfer: u64, destination: Destination) -> Result<(), TransferError> {
        let shared = &self.carried.shared;
        shared.check()?;
        shared.transfers().expect(transfer, destination)?;
        // The link may have been lost between the check and the entry.
        if let Err(error) = shared.check() {
            shared.transfers().fail_all(&error);
        }
        Ok(())
    }

    /// Gives up a transfer of the peer. When this returns nothing writes to its destination any more, and
    /// its callback has run, or is about to on the thread that has received the last of it. Waits for a chunk
    /// that is being received. Not to be called in a destination's callback.
    pub fn cancel_transfer(&self, transfer: u64) {
        self.carried.shared.transfers().cancel(transfer);
    }

    /// Whether the link is lost or closed.
    pub fn is_lost(&self) -> bool {
        self.carried.shared.is_over()
    }

    /// Ends the session: what was appended leaves, then all connections end and all transfers fail.
    /// [`LinkEvents::lost`] is not called for that. Waits for another thread to receive the peer's answer, if
    /// the link is resumable: a thread that receives itself calls [`close_at_once`](Self::close_at_once), or
    /// [`close_receiving`](Self::close_receiving).
    pub fn close(&self) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        if self.begin_to_close(CLOSE_TIMEOUT) {
            // What is sent to a peer is lost with the connection, if that is ended before it has come.
            self.carried.memory.wait_for_end(deadline.saturating_duration_since(Instant::now()));
        }
        self.carried.shared.close();
    }

    /// Ends the session as [`close`](Self::close) does, and receives the peer's answer here.
    pub fn close_receiving(&self, receiver: &mut Receiver) {
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        // No other thread receives that would take in another connection.
        if self.begin_to_close(Duration::ZERO) {
            receiver.await_goodbye(deadline.saturating_duration_since(Instant::now()));
        }
        self.carried.shared.close();
    }

    /// Ends the session as [`close`](Self::close) does, and waits for no answer: the peer may hear of it late.
    pub fn close_at_once(&self) {
        // The thread that would take in another connection is this one.
        self.begin_to_close(Duration::ZERO);
        self.carried.shared.close();
    }

    /// Sends what was appended, and the goodbye of a resumable link, whose next connection is waited for if
    /// it has none; whether an answer to that is to come.
    fn begin_to_close(&self, timeout: Duration) -> bool {
        // The peer may be gone already, then there is nobody to tell.
        let _ = self.flush();
        if !self.is_resumable() || self.is_lost() {
            return false;
        }
        // Otherwise the peer waits for another connection; as it does if this cannot be sent now.
        self.carried.shared.begin_closing();
        self.carried.memory.wait_for_connection(timeout);
        self.sending.send_goodbye()
    }

    /// Closes the descriptors in a forked child, so that the child does not keep its parent's session
    /// alive. Takes no lock and allocates nothing. The parent's threads do not exist here: the child must
    /// never use or drop this link, nor its receiver.
    pub fn abandon_after_fork(&self) {
        self.carried.shared.abandon_after_fork();
    }

    /// What has gone over the link so far.
    pub fn counters(&self) -> Counters {
        self.carried.shared.counted()
    }
}
