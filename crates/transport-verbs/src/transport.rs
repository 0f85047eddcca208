//! Transport traits over queue pairs: the frames of a link in both directions, and its transfers.
//!
//! The sender leases slots of the peer's arena and fills the same slots of its own staging memory; the
//! device writes them across, in stripes over all queue pairs, and each queue pair announces its stripe
//! behind it. Where they lie, the receiver's owner may take them
//! ([`LinkEvents::open_in_place`](causeway_transport::LinkEvents::open_in_place)), or they are copied to
//! their destination.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_connection::channel::Connection;
use causeway_connection::socket::{LOOK_EVERY, PeerWatch};
use causeway_ibverbs::{Receive, RemoteMemory, Transport};
use causeway_sync::threads;
use causeway_transport::send_queue::{self, Staged, TransferQueue};
use causeway_transport::slots::SLOT;
use causeway_transport::staging::{Piece, Region};
use causeway_transport::{
    Awaited, LinkError, Memory, OneSided, OutgoingTransfer, Parts, ReceiveMessages, SendMessages,
    Sending as Sent, Shared, TransportKind, spawn_or_lose,
};
use causeway_wire::chunk::ChunkHeader;

use crate::cq_poll::PollBackoff;
use crate::credit::Class;
use crate::error::Failure;
use crate::frames::SlotFrames;
use crate::message::{Announcement, CONTROL, Released};
use crate::poll_state::FrameLocation;
use crate::state::State;
use crate::stripe::{MAX_EAGER_BYTES, MAX_REQUEST_BYTES};

/// A link's parts over queue pairs. `setup` is the connection on which they were set up; it ends with the
/// session.
pub fn parts(state: Arc<State>, setup: Connection, command: &Connection) -> io::Result<Parts> {
    let descriptors = vec![setup.socket().as_raw_fd(), command.socket().as_raw_fd()];
    threads::spawn("verbs-watch", {
        let state = Arc::clone(&state);
        move || watch(&state, setup)
    })?;
    let memory = Writes(Arc::clone(&state));
    Ok(Parts {
        sender: Box::new(Sending(Arc::clone(&state))),
        receiver: Box::new(Receiving::new(state)),
        memory: Box::new(memory),
        wait_for_capacity: None,
        descriptors,
    })
}

/// Looks after which everything that was said on the connection beside the queue pairs has been acknowledged,
/// or its other end has been found dead.
const FIRST_POLLS: u32 = 16;

/// Waits for the end of the connection beside the queue pairs, which is that of the session.
fn watch(state: &State, mut setup: Connection) {
    let mut peer = PeerWatch::default();
    let mut polls = 0;
    let mut byte = [0];
    // Without a limit the end of the peer's machine is noticed later; its process's end is noticed all the
    // same.
    let _ = setup.socket().set_read_timeout(Some(LOOK_EVERY));
    while !state.is_over() {
        match setup.incoming.receive(&mut byte, true) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if peer.look(setup.socket()) {
                    return state.fail(LinkError::PeerSilent);
                }
                polls += 1;
                if polls == FIRST_POLLS {
                    // From here on the kernel's own probes notice the end of the peer's machine: hundreds of
                    // idle sessions cost nobody's time. Where the limit stays, polling goes on.
                    let _ = setup.socket().set_read_timeout(None);
                }
            }
            Err(error) => return state.end_behind_completions(LinkError::from_io(error)),
            // Nothing more is said here but that it ends.
            Ok(_) => return state.end_behind_completions(LinkError::PeerDisconnected),
        }
    }
}

impl Staged for State {
    fn queue(&self) -> &TransferQueue {
        &self.queue
    }

    fn max_piece(&self) -> usize {
        self.max_piece()
    }

    fn wait_for_piece(&self, length: usize) -> Result<Piece, LinkError> {
        self.wait_for(|| Ok(self.try_piece(length)))
    }

    fn send_part(
        &self,
        link: &Shared,
        piece: Piece,
        transfer: u64,
        offset: u64,
        total: u64,
    ) -> Result<(), LinkError> {
        let source = self.slot(piece.first(), piece.len());
        self.write_piece(link, piece, source, (transfer, offset, total), false, None);
        Ok(())
    }

    fn send_known(
        &self,
        link: &Arc<Shared>,
        order: OutgoingTransfer,
    ) -> Result<Result<Sent, LinkError>, OutgoingTransfer> {
        if order.length <= MAX_EAGER_BYTES {
            // A copy costs less than a request of its own, whose end is waited for.
            return Err(order);
        }
        match self.registered(order.start.0, order.length) {
            Some(region) => Ok(self.send_from(link, order, &region)),
            None => Err(order),
        }
    }
}

/// The memory of the peer as the link has it.
struct Writes(Arc<State>);

impl Memory for Writes {
    fn kind(&self) -> TransportKind {
        TransportKind::Verbs
    }

    fn start(&self, link: &Arc<Shared>) {
        let Self(state) = self;
        state.queue.start(link, Arc::clone(state), "verbs-send");
        state.start(link);
        if state.is_over() {
            return state.queue.end();
        }
        let polling = Arc::clone(state);
        spawn_or_lose(link, "verbs-aside", move |_| polling.fallback_poller());
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: OutgoingTransfer) -> Result<Sent, LinkError> {
        send_queue::send(&*self.0, link, order)
    }

    fn wake_receiver(&self, _: Awaited) {
        self.0.receiver_wake.wake_if_parked();
    }

    fn piece(&self, _link: &Arc<Shared>, length: usize) -> Option<Piece> {
        self.0.try_piece(length)
    }

    fn send_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        link.check()?;
        let total = piece.len() as u64;
        self.0.send_part(link, piece, transfer, 0, total)
    }

    fn one_sided(&self) -> Option<&dyn OneSided> {
        Some(&*self.0)
    }

    fn regions(&self) -> Option<[Region; 2]> {
        let State { staging, staging_slots, arena, arena_slots, .. } = &*self.0;
        Some([(staging, staging_slots), (arena, arena_slots)].map(|(buffer, slots)| {
            let memory = Arc::<causeway_ibverbs::Buffer>::clone(buffer);
            Region::new(buffer.as_ptr(), *slots as usize * SLOT, memory)
        }))
    }

    fn end(&self) {
        self.0.send_goodbye();
        self.0.finish();
    }
}

/// The direction to the peer.
pub struct Sending(pub Arc<State>);

impl SendMessages for Sending {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let Self(state) = self;
        let path = &state.paths[0];
        let mut rest = bytes;
        while !rest.is_empty() {
            let posted = state.wait_for(|| {
                let written = state.write_frames(rest)?;
                match if written > 0 { written } else { path.post_frames(&state.messages, rest)? } {
                    0 => Ok(None),
                    posted => Ok(Some(posted)),
                }
            })?;
            rest = &rest[posted..];
        }
        Ok(())
    }
}

/// Frames with more bytes are written to slots of the peer: as messages they would take many requests,
/// receives and credits. A batch of commands is shorter, and does not take slots from copies.
const LONG: usize = 64 << 10;

/// Runs of slots that are released in a message of their own. One waits for frames of this side that
/// take it along, as an answer does, or for a thread that has [looked in vain](PollBackoff::is_long).
const BY_THEMSELVES: usize = 2;

/// What lies free again when frames have been read.
#[derive(Default)]
struct Read {
    receives: Vec<Receive>,
    slots: Vec<Released>,
}

/// The direction from the peer.
struct Receiving {
    state: Arc<State>,
    /// Where frames lay that have been read. Receives are posted again, and slots released, when the thread
    /// comes back, and not before what came in them has been dealt with, which somebody may wait for.
    read: Read,
}

impl Receiving {
    pub fn new(state: Arc<State>) -> Self {
        Self { state, read: Read::default() }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Nobody waits for the device to give back what it does not have.
        self.state.flushed.fetch_add(self.read.receives.len() as u32, Ordering::Relaxed);
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let Self { state, read } = self;
        state.free_again(read)?;
        state.fallback_poller.begin_polling();
        let mut in_vain = PollBackoff::default();
        loop {
            let taken = state.take_frames(into, read);
            if taken > 0 {
                state.fallback_poller.leave();
                if state.paths[0].is_holding() {
                    // Nobody may look for a while.
                    state.pump_first()?;
                }
                return Ok(taken);
            }
            if state.poll() {
                in_vain = PollBackoff::default();
                continue;
            }
            // What came before the end still counts.
            state.check()?;
            if !wait {
                state.release_pending();
                return Ok(0);
            }
            if !in_vain.may_continue(state.spin_time()) {
                state.release_pending();
                if state.sleep()? {
                    return Ok(0);
                }
            } else if in_vain.is_long() {
                state.release_pending();
            }
        }
    }
}

impl State {
    /// Whether a write can bring a number along, which spares a message behind it.
    fn writes_have_numbers(&self) -> bool {
        self.domain.device().transport() != Transport::Iwarp
    }

    /// Writes the beginning of long frames to slots of the peer, if it has some free; how many bytes that
    /// was.
    fn write_frames(&self, frames: &[u8]) -> Result<usize, LinkError> {
        // Asked before they are copied, since who waits for room tries again and again.
        if frames.len() <= LONG || !self.paths[0].may_write_frames() {
            return Ok(0);
        }
        let before = if self.writes_have_numbers() { CONTROL } else { 0 };
        let length = frames.len().min(MAX_REQUEST_BYTES.min(self.max_piece()) - before);
        let Some(piece) = self.try_piece(before + length) else { return Ok(0) };
        // SAFETY: the piece has as many bytes, which are ours until they are sent.
        unsafe { core::ptr::copy_nonoverlapping(frames.as_ptr(), piece.as_ptr().add(before), length) };
        let (first, total) = (piece.first(), length as u64);
        let chunk = ChunkHeader { transfer: 0, offset: 0, total, length: length as u32 };
        let at = first as usize * SLOT;
        let RemoteMemory { address, key } = self.peer_arena;
        let frames = SlotFrames {
            announcement: Announcement { chunk, first, stripes: 1, is_direct: false },
            start: piece.as_ptr(),
            segment: self.staging.region().segment(at, before + length),
            to: RemoteMemory { address: address + at as u64, key },
        };
        let path = &self.paths[0];
        // From here on the peer gives the slots back, unless it hears nothing of them.
        self.slots.lock().send(first);
        let posted = match before {
            0 => path.post_frames_in_slots(&self.messages, &frames, &self.returns),
            _ => path.post_frames_with_message(&frames, &self.returns),
        };
        if matches!(posted, Ok(true)) || !self.slots.lock().unsend(first) {
            piece.sent();
        }
        Ok(if posted? { length } else { 0 })
    }

    /// Bytes of frames that have come; `into` gets as many as it has room for. Where none are left goes to
    /// `read`.
    fn take_frames(&self, into: &mut [u8], read: &mut Read) -> usize {
        let mut taken = 0;
        let mut incoming = self.incoming.lock();
        while let Some(filled) = incoming.front_mut() {
            let some = (filled.end - filled.at).min(into.len() - taken);
            let buffer = if filled.is_in_receive() { &self.receives } else { &*self.arena };
            // SAFETY: the bytes lie in the buffer, and are ours until their receive is posted again or their
            // slots are released. A peer that breaks the rules may write to its slots all the while: then
            // it gets frames of whichever bytes.
            unsafe {
                let from = buffer.as_ptr().add(filled.at);
                core::ptr::copy_nonoverlapping(from, into[taken..taken + some].as_mut_ptr(), some);
            }
            taken += some;
            filled.at += some;
            if filled.at < filled.end {
                break;
            }
            match filled.lies {
                FrameLocation::InReceive(receive) => read.receives.push(self.receive(0, receive)),
                FrameLocation::InSlots(first) => read.slots.push(Released::Slots(first)),
            }
            incoming.pop_front();
        }
        taken
    }

    /// Posts receives again whose frames have been read, and gives their slots back.
    fn free_again(&self, Read { receives, slots }: &mut Read) -> Result<(), LinkError> {
        let mut is_due = false;
        if !slots.is_empty() {
            self.leases.fetch_sub(slots.len() as u32, Ordering::Relaxed);
            let mut returns = self.returns.lock();
            returns.append(slots);
            is_due = returns.len() >= BY_THEMSELVES;
        }
        if !receives.is_empty() {
            let path = &self.paths[0];
            // SAFETY: what lay in these receives has been copied out.
            let posted = unsafe { path.pair().post_receives(receives) };
            posted.map_err(|error| Failure::Device(error.to_string()))?;
            is_due |= path.posted_again(Class::Frame, receives.len());
            receives.clear();
        }
        if is_due {
            self.pump_first()?;
        }
        Ok(())
    }
}
