//! Transfers over shared memory.
//!
//! The sender fills a piece of its half of the arena and announces it. The receiver's own thread looks for
//! announcements whenever it looks for frames, and after it has read frames, so a command that was sent after
//! an announcement finds the transfer there. While that thread is busy with a command, which may take as long
//! as the GPU does, another one takes announcements in its place: transfers overtake commands, as they do on
//! TCP's lanes.
//!
//! Whoever owns the link may take a transfer in place (`LinkEvents::open_in_place`). Otherwise it is
//! copied to its destination, by a thread for that unless it is short.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_connection::channel::Connection;
use causeway_memory::SealedMemory;
use causeway_sync::threads;
use causeway_sync::wake_flag::{self, PARKED};
use causeway_transport::send_queue::{self, Staged as _};
use causeway_transport::staging::{Piece, Region};
use causeway_transport::{
    Awaited, LinkError, Memory, OutgoingTransfer, Parts, Sending as Sent, Shared, TransportKind,
    spawn_or_lose,
};

use super::arena::region;
use super::layout::Word;
use super::messages::{Receiving, Sending};
use super::segment::Segment;
use super::side::{Message, MessageKind, Peer};
use super::state::{Role, State};

/// A link's parts over memory that both processes have mapped. `command` is the connection over which the
/// session was asked for.
pub(super) fn parts(
    role: Role,
    segment: Arc<Segment>,
    peer: Peer,
    command: &Connection,
) -> io::Result<Parts> {
    let command = command.socket().try_clone()?;
    let descriptors = vec![peer.descriptor(), command.as_raw_fd()];
    let state = Arc::new(State::new(role, Arc::clone(&segment), peer, command));
    threads::spawn("shm-watch", {
        let state = Arc::clone(&state);
        move || state.watch()
    })?;
    let sender = Sending::new(Arc::clone(&state), Arc::clone(&segment), role.sends());
    let receiver = Receiving::new(Arc::clone(&state), segment, role.receives());
    let memory = Box::new(Arena(state));
    Ok(Parts {
        sender: Box::new(sender),
        receiver: Box::new(receiver),
        memory,
        descriptors,
        wait_for_capacity: None,
    })
}

/// The memory of the peer as the link has it.
struct Arena(Arc<State>);

impl Memory for Arena {
    fn kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn start(&self, link: &Arc<Shared>) {
        let state = Arc::clone(&self.0);
        state.notify_owner(link);
        state.queue.start(link, Arc::clone(&state), "shm-send");
        state.begin_delivery();
        if state.is_over() {
            return state.queue.end();
        }
        spawn_or_lose(link, "shm-aside", move |link| state.stand_in(link));
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: OutgoingTransfer) -> Result<Sent, LinkError> {
        send_queue::send(&*self.0, link, order)
    }

    fn wake_receiver(&self, awaited: Awaited) {
        let doing = self.0.segment.futex(self.0.role.receives(), Word::Receiver);
        if awaited == Awaited::Yield {
            // It must not be missed by one that is about to sleep, which looks behind a fence of its own.
            self.0.called.store(true, Ordering::Relaxed);
            wake_flag::wake(doing);
            return;
        }
        if doing.load(Ordering::Relaxed) == PARKED {
            self.0.called.store(true, Ordering::Relaxed);
            wake_flag::wake(doing);
        }
    }

    fn piece(&self, link: &Arc<Shared>, length: usize) -> Option<Piece> {
        match self.0.allocator.try_take(length) {
            Ok(piece) => piece,
            Err(violation) => {
                link.lose(violation.into());
                None
            }
        }
    }

    fn send_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        link.check()?;
        let total = piece.len() as u64;
        self.0.send_part(link, piece, transfer, 0, total).map_err(|error| link.lose(error))
    }

    fn regions(&self) -> Option<[Region; 2]> {
        let State { role, segment, .. } = &*self.0;
        Some([role.sends(), role.receives()].map(|half| region(segment, half)))
    }

    fn passes_descriptors(&self) -> bool {
        true
    }

    fn send_descriptor(
        &self,
        link: &Arc<Shared>,
        number: u64,
        memory: &SealedMemory,
    ) -> Result<(), LinkError> {
        let message = Message { kind: MessageKind::Descriptor, number, bytes: memory.bytes() };
        self.0.hand_over(link, &message, memory.descriptor())
    }

    fn send_allocation(
        &self,
        link: &Arc<Shared>,
        number: u64,
        allocation: BorrowedFd<'_>,
    ) -> Result<(), LinkError> {
        self.0.hand_over(link, &Message { kind: MessageKind::Allocation, number, bytes: 0 }, allocation)
    }

    fn end(&self) {
        let state = &self.0;
        state.peer.end();
        // An error means that it has ended already, which is what is wanted.
        let _ = state.command.shutdown(Shutdown::Both);
        state.finish();
        state.queue.end();
    }
}
