//! Transfers over queue pairs.
//!
//! The sender leases slots of the peer's arena and fills the same slots of its own staging memory; the
//! device writes them across, in stripes over all queue pairs, and each queue pair announces its stripe
//! behind it. Where they lie, the receiver's owner may take them
//! ([`LinkEvents::open_in_place`](causeway_transport::LinkEvents::open_in_place)), or they are copied to
//! their destination.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use super::messages::{Receiving, Sending};
use super::path::MAX_EAGER_BYTES;
use super::state::State;
use causeway_connection::channel::Connection;
use causeway_connection::socket::{LOOK_EVERY, PeerWatch};
use causeway_sync::threads;
use causeway_transport::TransportKind;
use causeway_transport::send_queue::{self, Staged, TransferQueue};
use causeway_transport::slots::SLOT;
use causeway_transport::staging::{Piece, Region};
use causeway_transport::{Awaited, LinkError, Shared, spawn_or_lose};
use causeway_transport::{Memory, OneSided, Order, Parts, Sending as Sent};

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

    fn send_known(&self, link: &Arc<Shared>, order: Order) -> Result<Result<Sent, LinkError>, Order> {
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

    unsafe fn send(&self, link: &Arc<Shared>, order: Order) -> Result<Sent, LinkError> {
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
