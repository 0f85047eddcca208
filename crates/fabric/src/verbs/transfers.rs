//! How do the bytes of a transfer travel over queue pairs?
//!
//! The sender lends itself slots of the peer's arena and fills the same slots of its own staging memory; the device writes them
//! across, in parts over all queue pairs, and each queue pair announces its part behind it. Where they lie, the receiver's owner may take them
//! ([`LinkEvents::open_in_place`](crate::LinkEvents::open_in_place)), or they are copied to their destination.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use causeway_verbs::RemoteMemory;
use causeway_wire::chunk::ChunkHeader;
use crossbeam_channel::unbounded;

use super::message::Announcement;
use super::messages::{Receiving, Sending};
use super::parts::{order, split};
use super::path::Part;
use super::state::State;
use crate::link::{Address, LinkError, Shared, count, spawn_or_lose};
use crate::module::{Memory, Order, Parts, Sending as Sent};
use crate::shm::layout::SLOT;
use crate::staging::{Copy, Piece, Region};
use crate::tcp::channel::{Connection, shut_down};
use crate::tcp::socket::{LOOK_EVERY, PeerWatch};
use crate::threads;
use crate::via::Via;

/// A transfer longer than the longest piece goes in pieces of this many bytes, so that filling, writing and emptying overlap.
const LONG_STEP: usize = 4 << 20;

/// How often completions are looked for while the receiver of frames is busy with a command.
const STAND_IN_EVERY: Duration = Duration::from_millis(1);

/// A link's parts over queue pairs. `setup` is the connection on which they were set up; it ends with the session.
pub fn parts(state: Arc<State>, setup: Connection, command: &Connection) -> io::Result<(Parts, [i32; 2])> {
    let descriptors = [setup.socket().as_raw_fd(), command.socket().as_raw_fd()];
    threads::spawn("verbs-watch", {
        let state = Arc::clone(&state);
        move || watch(&state, setup)
    })?;
    let memory = Writes { state: Arc::clone(&state), turn: AtomicUsize::new(0) };
    let parts = Parts {
        sender: Box::new(Sending(Arc::clone(&state))),
        receiver: Box::new(Receiving(state)),
        memory: Box::new(memory),
    };
    Ok((parts, descriptors))
}

/// Waits for the end of the connection beside the queue pairs, which is that of the session.
fn watch(state: &State, mut setup: Connection) {
    let mut peer = PeerWatch::default();
    let mut byte = [0];
    // Without a limit the end of the peer's machine is noticed later; its process's end is noticed all the same.
    let _ = setup.socket().set_read_timeout(Some(LOOK_EVERY));
    while !state.is_over() {
        match setup.incoming.receive(&mut byte, true) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if peer.look(setup.socket()) {
                    return state.fail(LinkError::PeerSilent);
                }
            }
            Err(error) => return state.fail(LinkError::from_io(error)),
            // Nothing more is said here but that it ends.
            Ok(_) => return state.fail(LinkError::PeerGone),
        }
    }
}

/// The memory of the peer as the link has it.
struct Writes {
    state: Arc<State>,
    /// Which of equally loaded queue pairs comes first.
    turn: AtomicUsize,
}

impl Writes {
    /// Lets a filled piece go to the peer.
    fn write(&self, link: &Shared, piece: Piece, transfer: u64, offset: u64, total: u64) {
        let state = &self.state;
        let (first, length) = (piece.first(), piece.len());
        let backlogs: Vec<usize> = state.paths.iter().map(|path| path.backlog()).collect();
        let order = order(&backlogs, self.turn.fetch_add(1, Ordering::Relaxed));
        let parts = split(length, state.paths.len());
        let chunk = ChunkHeader { transfer, offset, total, length: length as u32 };
        let announcement = Announcement { chunk, first, parts: parts.len() as u32 };
        let start = first as usize * SLOT;
        for ((offset, part), path) in parts.zip(order) {
            let RemoteMemory { address, key } = state.peer_arena;
            state.paths[path].enqueue(Part {
                announcement,
                source: state.staging.region().segment(start + offset, part),
                destination: RemoteMemory { address: address + (start + offset) as u64, key },
            });
        }
        // From here on the peer gives the slots back.
        piece.sent();
        state.pump();
        count(&link.counters().transfer_bytes_sent, length);
    }

    /// Copies the bytes of a transfer into staging, as far as there are slots, and waits for more; whoever gave the order keeps
    /// its memory readable until then.
    fn send_now(&self, link: &Arc<Shared>, order: Order) -> Result<(), LinkError> {
        let Order { transfer, start: Address(start), length, carriage, keeper } = order;
        let longest = self.state.longest_piece();
        let step = if length <= longest { length } else { LONG_STEP.min(longest) };
        let mut offset = 0;
        loop {
            link.check()?;
            let part = step.min(length - offset);
            let lent = self.state.wait_for(|| Ok(self.state.try_piece(part)));
            let mut piece = lent.map_err(|error| link.lose(error))?;
            // SAFETY: the part lies in memory that is readable until the order has been carried out.
            unsafe { piece.fill(start.wrapping_add(offset), carriage.threads) };
            self.write(link, piece, transfer, offset as u64, length as u64);
            offset += part;
            if offset >= length {
                break;
            }
        }
        // The bytes have left the memory.
        drop(keeper);
        Ok(())
    }
}

/// Looks for completions while the receiver of frames is busy, until the link ends.
fn stand_in(state: &State) {
    while !state.is_over() {
        std::thread::sleep(STAND_IN_EVERY);
        if !state.is_attended.load(Ordering::Relaxed) {
            while state.look() {}
        }
    }
}

impl Memory for Writes {
    fn via(&self) -> Via {
        Via::Verbs
    }

    fn start(&self, link: &Arc<Shared>) {
        let state = &self.state;
        let (copies, queue) = unbounded::<Copy>();
        spawn_or_lose(link, "copy", move |_| queue.into_iter().for_each(Copy::carry_out));
        *state.copies.lock() = Some(copies);
        let (line, orders) = unbounded();
        let sender = Self { state: Arc::clone(state), turn: AtomicUsize::new(0) };
        // A lost link is noticed by the thread that receives frames.
        spawn_or_lose(link, "verbs-send", move |link| {
            orders.into_iter().for_each(|order| drop(sender.send_now(link, order)));
        });
        *state.line.lock() = Some(line);
        state.start(link);
        if state.is_over() {
            *state.copies.lock() = None;
            *state.line.lock() = None;
            return;
        }
        let standing_in = Arc::clone(state);
        spawn_or_lose(link, "verbs-aside", move |_| stand_in(&standing_in));
    }

    unsafe fn send(&self, link: &Arc<Shared>, order: Order) -> Result<Sent, LinkError> {
        let line = if order.keeper.is_some() { self.state.line.lock().clone() } else { None };
        match line {
            Some(line) => line.send(order).or_else(|refused| self.send_now(link, refused.into_inner())),
            None => self.send_now(link, order),
        }?;
        Ok(Sent::done())
    }

    fn attach(&self, _link: &Arc<Shared>, connection: Connection) {
        // All transfers go over the queue pairs.
        shut_down(connection.socket());
    }

    fn piece(&self, _link: &Arc<Shared>, length: usize) -> Option<Piece> {
        self.state.try_piece(length)
    }

    fn send_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        link.check()?;
        let total = piece.len() as u64;
        self.write(link, piece, transfer, 0, total);
        Ok(())
    }

    fn regions(&self) -> Option<[Region; 2]> {
        let State { staging, arena, staging_slots, .. } = &*self.state;
        let mine = Region::new(
            staging.as_ptr(),
            *staging_slots as usize * SLOT,
            Arc::<causeway_verbs::Buffer>::clone(staging),
        );
        let peers = Region::new(arena.as_ptr(), arena.len(), Arc::<causeway_verbs::Buffer>::clone(arena));
        Some([mine, peers])
    }

    fn end(&self) {
        self.state.say_last_words();
        self.state.finish();
    }
}
