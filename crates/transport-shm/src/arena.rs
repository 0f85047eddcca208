//! Slot allocator of the staging arena: leases, announcements and returns. How large it is says `staging`.
//!
//! The sender of transfers is the *allocator* of its half: it takes a range of slots, fills it, and announces
//! it. The receiver holds it as a [`Lease`] and returns it by an entry in the ring of returns when it has
//! done with the bytes. What is leased is known from the allocator's own table, so a return that cannot be is
//! noticed.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Instant;

use causeway_sync::wake_flag;
use causeway_wire::chunk::{ChunkError, ChunkHeader};
use parking_lot::Mutex;

use super::layout::{Direction, Word};
use super::ring::{
    ANNOUNCEMENT_WORDS, EntryConsumer, EntryProducer, RETURN_WORDS, announcement_consumer, announcer,
    collector, returner, spin_time,
};
use super::segment::Segment;
use super::violation::Violation;
use causeway_transport::LinkError;
use causeway_transport::slots::{MAX_PIECE_BYTES, SLOT, Slots};
use causeway_transport::staging::{Lease, Owns, Piece, Region, SlotOwner};

/// The half of the arena for one direction.
pub(super) fn region(segment: &Arc<Segment>, direction: Direction) -> Region {
    let parts = segment.parts(direction);
    let memory: Arc<dyn Send + Sync> = Arc::<Segment>::clone(segment);
    Region::new(segment.address(parts.arena), parts.slots as usize * SLOT, memory)
}

/// The side that fills slots.
pub(super) struct SlotAllocator {
    segment: Arc<Segment>,
    direction: Direction,
    leased: Mutex<Leased>,
    /// Held by the one thread that waits for slots; the others queue up behind it.
    turn: Mutex<()>,
    waiting: AtomicU32,
}

struct Leased {
    slots: Slots,
    announcements: EntryProducer<ANNOUNCEMENT_WORDS>,
    returns: EntryConsumer<RETURN_WORDS>,
}

impl SlotOwner for SlotAllocator {
    fn give_up(&self, first: u32) {
        let cancelled = self.leased.lock().slots.give_up(first);
        debug_assert!(cancelled.is_ok(), "a piece holds slots that are leased");
    }
}

/// How many slots hold `bytes`; one for none, so that there are never more announcements than slots.
fn slots_for(bytes: usize) -> u32 {
    bytes.div_ceil(SLOT).max(1) as u32
}

impl SlotAllocator {
    pub(super) fn new(segment: Arc<Segment>, direction: Direction) -> Arc<Self> {
        let count = segment.parts(direction).slots;
        let leased = Leased {
            slots: if direction == Direction::Down { Slots::round_robin(count) } else { Slots::new(count) },
            announcements: announcer(Arc::clone(&segment), direction),
            returns: collector(Arc::clone(&segment), direction),
        };
        let (turn, waiting) = (Mutex::new(()), AtomicU32::new(0));
        Arc::new(Self { segment, direction, leased: Mutex::new(leased), turn, waiting })
    }

    /// The longest piece that is leased: two fit into the smallest arena.
    pub(super) fn max_piece(&self) -> usize {
        MAX_PIECE_BYTES.min(self.segment.parts(self.direction).slots as usize / 2 * SLOT)
    }

    /// A piece of `length` bytes if there is one now and nobody waits for one.
    pub(super) fn try_take(self: &Arc<Self>, length: usize) -> Result<Option<Piece>, Violation> {
        if length > self.max_piece() || self.waiting.load(Ordering::Relaxed) > 0 {
            return Ok(None);
        }
        self.lease(length)
    }

    fn lease(self: &Arc<Self>, length: usize) -> Result<Option<Piece>, Violation> {
        let mut leased = self.leased.lock();
        let Leased { slots, returns, .. } = &mut *leased;
        while let Some([first]) = returns.pop()? {
            slots.reclaim(first)?;
        }
        let Some(first) = slots.lease(slots_for(length)) else { return Ok(None) };
        let arena = self.segment.parts(self.direction).arena;
        let address = self.segment.address(arena + first as usize * SLOT);
        let allocator: Arc<dyn SlotOwner> = Arc::<Self>::clone(self);
        Ok(Some(Piece::new(allocator, first, address, length)))
    }

    /// A piece of `length` bytes, at most [`max_piece`](Self::longest); waits until the peer has released
    /// enough. An error when `over` becomes true first.
    pub(super) fn take(self: &Arc<Self>, length: usize, over: &AtomicBool) -> Result<Piece, LinkError> {
        debug_assert!(length <= self.max_piece());
        if let Some(piece) = self.try_take(length)? {
            return Ok(piece);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = self.wait_for(length, over);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    fn wait_for(self: &Arc<Self>, length: usize, over: &AtomicBool) -> Result<Piece, LinkError> {
        let _turn = self.turn.lock();
        let returned = self.segment.index(self.direction, Word::Returned);
        let bell = self.segment.futex(self.direction, Word::SlotAllocator);
        let spin_time = spin_time();
        loop {
            if over.load(Ordering::SeqCst) {
                return Err(LinkError::PeerDisconnected);
            }
            if let Some(piece) = self.lease(length)? {
                return Ok(piece);
            }
            let collected = self.leased.lock().returns.read_position();
            let more = || returned.load(Ordering::Acquire) != collected;
            let started = Instant::now();
            while !more() && started.elapsed() < spin_time {
                core::hint::spin_loop();
            }
            wake_flag::park(bell, wake_flag::BUSY, || more() || over.load(Ordering::SeqCst));
        }
    }

    /// Says that a piece is filled; it is the peer's from here on, until the peer returns it.
    pub(super) fn announce(
        &self,
        piece: Piece,
        transfer: u64,
        offset: u64,
        total: u64,
    ) -> Result<(), Violation> {
        let entry = [transfer, offset, total, piece.len() as u64, u64::from(piece.first())];
        let mut leased = self.leased.lock();
        if leased.announcements.push(entry)? {
            // Returns are taken in under the same lock, so that none can come before this.
            leased.slots.send(piece.first());
            piece.sent();
            return Ok(());
        }
        // Every announcement has a slot that is not released, and there are as many entries as slots. The
        // piece gives its slots up, which takes the lock.
        drop(leased);
        Err(Violation::Indexes)
    }

    /// Wakes the thread that waits for slots.
    pub(super) fn wake(&self) {
        wake_flag::wake(self.segment.futex(self.direction, Word::SlotAllocator));
    }
}

/// The side that reads what the other has filled.
pub(super) struct SlotConsumer {
    segment: Arc<Segment>,
    direction: Direction,
    announcements: Mutex<EntryConsumer<ANNOUNCEMENT_WORDS>>,
    returns: Mutex<EntryProducer<RETURN_WORDS>>,
    /// Pieces that have not been released.
    leases: AtomicU32,
}

impl Owns for SlotConsumer {
    fn release(&self, first: u32) {
        // A ring of returns that is full or broken is the peer's own loss: it gets its slots back never.
        let _ = self.returns.lock().push([u64::from(first)]);
        self.leases.fetch_sub(1, Ordering::Relaxed);
        wake_flag::wake(self.segment.futex(self.direction, Word::SlotAllocator));
    }
}

impl SlotConsumer {
    pub(super) fn new(segment: Arc<Segment>, direction: Direction) -> Arc<Self> {
        Arc::new(Self {
            announcements: Mutex::new(announcement_consumer(Arc::clone(&segment), direction)),
            returns: Mutex::new(returner(Arc::clone(&segment), direction)),
            leases: AtomicU32::new(0),
            segment,
            direction,
        })
    }

    /// Whether something is announced that nobody has taken, as far as can be known without a lock.
    pub(super) fn is_pending(&self) -> bool {
        let announced = self.segment.index(self.direction, Word::Announced).load(Ordering::Acquire);
        announced != self.segment.index(self.direction, Word::Taken).load(Ordering::Relaxed)
    }

    /// The next piece that was announced, with its place in its transfer.
    pub(super) fn next(self: &Arc<Self>) -> Result<Option<(ChunkHeader, Lease)>, LinkError> {
        let Some([transfer, offset, total, length, first]) = self.announcements.lock().pop()? else {
            return Ok(None);
        };
        let parts = self.segment.parts(self.direction);
        let wrong = Violation::Piece { slot: first, length };
        if length > MAX_PIECE_BYTES as u64 || first >= u64::from(parts.slots) {
            return Err(wrong.into());
        }
        let (bytes, slot) = (length as usize, first as usize);
        if slots_for(bytes) as usize > parts.slots as usize - slot {
            return Err(wrong.into());
        }
        if self.leases.fetch_add(1, Ordering::Relaxed) >= parts.slots {
            self.leases.fetch_sub(1, Ordering::Relaxed);
            return Err(Violation::TooManyPieces.into());
        }
        let owner: Arc<dyn Owns> = Arc::<Self>::clone(self);
        let address = self.segment.address(parts.arena + slot * SLOT);
        let lease = Lease::new(owner, slot as u32, address, bytes);
        let chunk = ChunkHeader { transfer, offset, total, length: length as u32 };
        if offset.checked_add(length).is_none_or(|end| end > total) {
            return Err(ChunkError::BeyondEnd { offset, length: chunk.length, total }.into());
        }
        if length == 0 && total > 0 {
            return Err(ChunkError::Empty(transfer).into());
        }
        Ok(Some((chunk, lease)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;
    use causeway_transport::slots::{NotLeased, STAGING_LIMITS};
    use proptest::prelude::*;

    fn sides() -> (Arc<Segment>, Arc<SlotAllocator>, Arc<SlotConsumer>) {
        let segment = Arc::new(Segment::create(Layout::halves(STAGING_LIMITS.0)).unwrap().0);
        let allocator = SlotAllocator::new(Arc::clone(&segment), Direction::Up);
        let consumer = SlotConsumer::new(Arc::clone(&segment), Direction::Up);
        (segment, allocator, consumer)
    }

    fn send(allocator: &Arc<SlotAllocator>, transfer: u64, bytes: &[u8]) -> bool {
        let Some(mut piece) = allocator.try_take(bytes.len()).unwrap() else { return false };
        // SAFETY: the slice has the piece's bytes.
        unsafe { piece.fill(bytes.as_ptr(), 1) };
        allocator.announce(piece, transfer, 0, bytes.len() as u64).unwrap();
        true
    }

    #[test]
    fn pieces_arrive_in_place_and_go_round() {
        let (_segment, allocator, consumer) = sides();
        for round in 0..100 {
            let bytes = vec![round as u8; SLOT + round];
            assert!(send(&allocator, round as u64, &bytes));
            let (chunk, lease) = consumer.next().unwrap().unwrap();
            assert_eq!(
                (chunk.transfer, chunk.total, lease.len()),
                (round as u64, bytes.len() as u64, bytes.len())
            );
            let mut copy = vec![0; bytes.len()];
            // SAFETY: the vector has the lease's bytes.
            unsafe { lease.empty_into(copy.as_mut_ptr(), 1) };
            assert!(copy == bytes && consumer.next().unwrap().is_none());
        }
    }

    #[test]
    fn what_is_not_given_back_is_not_lent_again() {
        let (_segment, allocator, consumer) = sides();
        let mut sent = 0;
        while send(&allocator, sent, &[1]) {
            sent += 1;
        }
        assert_eq!(sent, 8, "a slot each");
        let mut leases: Vec<_> = (0..8).map(|_| consumer.next().unwrap().unwrap().1).collect();
        assert!(!send(&allocator, 9, &[1]));
        leases.pop();
        assert!(send(&allocator, 9, &[1]) && !send(&allocator, 10, &[1]));
        // One that was not sent is free again.
        leases.clear();
        drop(allocator.try_take(SLOT).unwrap().unwrap());
        assert!(send(&allocator, 11, &[1]));
    }

    #[test]
    fn whoever_waits_for_slots_is_woken_by_their_return_and_by_the_end() {
        let (_segment, allocator, consumer) = sides();
        while send(&allocator, 0, &[1]) {}
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| allocator.take(1, &over).map(|piece| piece.len()));
            while allocator.waiting.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(allocator.try_take(1).unwrap().is_none(), "whoever waits comes first");
            drop(consumer.next().unwrap().unwrap());
            assert_eq!(waiting.join().unwrap().unwrap(), 1);
            let two = scope.spawn(|| allocator.take(2 * SLOT, &over).map(drop));
            over.store(true, Ordering::SeqCst);
            allocator.wake();
            assert!(matches!(two.join().unwrap(), Err(LinkError::PeerDisconnected)));
        });
    }

    #[test]
    fn returns_that_cannot_be_are_noticed() {
        let (segment, allocator, _) = sides();
        let mut returns = returner(segment, Direction::Up);
        returns.push([3]).unwrap();
        assert!(matches!(allocator.try_take(1), Err(Violation::NotLeased(NotLeased(3)))));
        // A slot that is being filled would be leased a second time.
        let piece = allocator.try_take(1).unwrap().unwrap();
        returns.push([piece.first().into()]).unwrap();
        assert!(matches!(allocator.try_take(1), Err(Violation::NotLeased(NotLeased(0)))));
        drop(piece);
    }

    proptest! {
        /// Whatever a peer announces: an error, or a piece that lies in the arena.
        #[test]
        fn announcements_of_a_hostile_peer_never_leave_the_arena(
            entries in prop::collection::vec(prop::array::uniform5(prop_oneof![
                0_u64..10, Just(SLOT as u64), Just(u64::MAX), any::<u64>(), 0..(1_u64 << 20),
            ]), 1..40),
        ) {
            let (segment, _, consumer) = sides();
            let mut hostile = announcer(Arc::clone(&segment), Direction::Up);
            let region = region(&segment, Direction::Up);
            let arena = region.as_ptr() as usize..region.as_ptr() as usize + region.len();
            let mut leases = Vec::new();
            for entry in entries {
                if !hostile.push(entry).unwrap() {
                    break;
                }
                if let Ok(Some((chunk, lease))) = consumer.next() {
                    let start = lease.as_ptr() as usize;
                    prop_assert!(arena.contains(&start) && start + lease.len() <= arena.end);
                    prop_assert!(chunk.offset + u64::from(chunk.length) <= chunk.total);
                    leases.push(lease);
                }
                prop_assert!(leases.len() <= 8);
            }
        }
    }
}
