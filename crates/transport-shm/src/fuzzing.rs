//! Properties of the rings for anything that a peer writes into shared memory, between any two steps of this
//! side.
//!
//! The body of the fuzz target `ring`. An input is a row of steps: those of this side are the real ones, in
//! an order that no link would take, and those of the peer write wherever it can. Races within one step are
//! the business of `hostile`.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};

use super::arena::{SlotAllocator, SlotConsumer, region};
use super::layout::{Direction, LINE, Layout, RING, Word};
use super::ring::{
    ANNOUNCEMENT_WORDS, ByteConsumer, ByteProducer, EntryProducer, RETURN_WORDS, announcer, returner,
};
use super::segment::Segment;
use super::side::Message;
use super::violation::Violation;
use causeway_transport::LinkError;
use causeway_transport::slots::{SLOT, STAGING_LIMITS};
use causeway_transport::staging::{Lease, Piece};

/// An input with more steps than this is cut off, so that each takes little time.
const MAX_STEPS: usize = 1000;

/// The directions in which this side, a worker, sends and receives.
const SENDS: Direction = Direction::Down;
const RECEIVES: Direction = Direction::Up;

/// A word that the peer may write, in one of the directions.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Place {
    /// One of the indexes and futexes.
    Word(u8),
    /// A word of the announcements.
    Announcement(u8),
    /// A word of the returns.
    Return(u8),
    /// Eight bytes in the ring of frames.
    Frames(u32),
}

/// What the peer writes there.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Value {
    /// A number of a few, as slots and counts are.
    Small(u8),
    /// Near what is there now.
    Near(i8),
    /// Near what is there now, and the size of a ring.
    RingAway(i8),
    /// Anything.
    Any(u64),
}

/// A word of an announcement.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Field {
    Small(u8),
    Slots(u8),
    Any(u64),
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// The peer writes a word.
    Scribble { up: bool, place: Place, value: Value },
    /// The peer writes frames as it should.
    PeerWrites(u16),
    /// The peer announces a piece that it chooses.
    PeerAnnounces([Field; ANNOUNCEMENT_WORDS]),
    /// The peer gives a slot back.
    PeerReturns(u8),
    /// The peer sends a message beside the rings.
    PeerSends([u8; 24]),
    /// This side reads frames.
    Read(u16),
    /// This side writes frames.
    Write(u16),
    /// This side takes a piece of so many slots and a few bytes.
    Take { slots: u8, bytes: i8 },
    /// This side announces one of its pieces.
    Announce(u8),
    /// This side gives one of its pieces up.
    GiveUp(u8),
    /// This side takes the next announcement.
    Next,
    /// This side has done with one of the leases.
    Done(u8),
}

/// Carries out the steps that `bytes` choose: whatever the peer writes, this side stays within the memory,
/// holds no two pieces that overlap, and reads no byte that the ring does not have.
pub fn ring(bytes: &[u8]) {
    thread_local! {
        static SEGMENT: Arc<Segment> = Arc::new(
            Segment::create(Layout::halves(STAGING_LIMITS.0)).expect("memory can be shared").0,
        );
    }
    let mut input = Unstructured::new(bytes);
    let mut world = World::new(SEGMENT.with(Arc::clone));
    for _ in 0..MAX_STEPS {
        let (false, Ok(step)) = (input.is_empty(), input.arbitrary::<Step>()) else { break };
        world.carry_out(step);
    }
}

/// Both sides of a segment.
struct World {
    segment: Arc<Segment>,
    producer: ByteProducer,
    consumer: ByteConsumer,
    allocator: Arc<SlotAllocator>,
    slot_consumer: Arc<SlotConsumer>,
    pieces: Vec<Piece>,
    leases: Vec<Lease>,
    peer_frames: ByteProducer,
    peer_announces: EntryProducer<ANNOUNCEMENT_WORDS>,
    peer_returns: EntryProducer<RETURN_WORDS>,
    /// Bytes of frames that the peer has written and this side has read, until the peer breaks a rule.
    written: u64,
    read: u64,
    is_honest: bool,
}

/// The byte at a position of the frames of an honest peer.
fn frame_byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 16) as u8
}

impl World {
    /// The segment as it is when it is made: whatever the last input wrote is taken back, but for the arena's
    /// bytes.
    fn new(segment: Arc<Segment>) -> Self {
        for direction in [Direction::Up, Direction::Down] {
            let parts = *segment.parts(direction);
            let words = (0..=Word::SlotAllocator as usize).map(|word| parts.words_offset + word * LINE);
            let entries = parts.entries * (ANNOUNCEMENT_WORDS + RETURN_WORDS);
            let entries = (0..entries).map(|word| parts.announcements + word * 8);
            words.chain(entries).for_each(|offset| segment.word(offset).store(0, Ordering::Relaxed));
        }
        let copy = || Arc::clone(&segment);
        Self {
            producer: ByteProducer::new(copy(), SENDS),
            consumer: ByteConsumer::new(copy(), RECEIVES),
            allocator: SlotAllocator::new(copy(), SENDS),
            slot_consumer: SlotConsumer::new(copy(), RECEIVES),
            pieces: Vec::new(),
            leases: Vec::new(),
            peer_frames: ByteProducer::new(copy(), RECEIVES),
            peer_announces: announcer(copy(), RECEIVES),
            peer_returns: returner(copy(), SENDS),
            written: 0,
            read: 0,
            is_honest: true,
            segment,
        }
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Scribble { up, place, value } => self.scribble(up, place, value),
            Step::PeerWrites(count) => {
                let bytes: Vec<u8> =
                    (0..u64::from(count)).map(|at| frame_byte(self.written.wrapping_add(at))).collect();
                // Its own indexes may be broken by now, which is its own loss.
                self.written += self.peer_frames.write(&bytes).unwrap_or(0) as u64;
            }
            Step::PeerAnnounces(fields) => {
                let entry = fields.map(|field| match field {
                    Field::Small(value) => value.into(),
                    Field::Slots(count) => u64::from(count) * SLOT as u64,
                    Field::Any(value) => value,
                });
                let _ = self.peer_announces.push(entry);
            }
            Step::PeerReturns(slot) => {
                let _ = self.peer_returns.push([slot.into()]);
            }
            Step::PeerSends(bytes) => {
                if let Ok(message) = Message::decode(&bytes) {
                    assert_eq!(message.encode(), bytes);
                }
            }
            Step::Read(count) => self.read(count.into()),
            Step::Write(count) => {
                let before = self.producer.free_bytes();
                let count = usize::from(count);
                if let Ok(written) = self.producer.write(&vec![0x5a; count]) {
                    assert_eq!(Ok(written), before.map(|room| room.min(count)));
                }
            }
            Step::Take { slots, bytes } => {
                let length = (usize::from(slots % 10) * SLOT).saturating_add_signed(bytes.into());
                self.take(length);
            }
            Step::Announce(which) => {
                if let Some(piece) = self.pick_piece(which) {
                    let total = piece.len() as u64;
                    self.fill(&piece);
                    match self.allocator.announce(piece, 1, 0, total) {
                        Ok(()) | Err(Violation::Indexes) => {}
                        Err(other) => panic!("an announcement failed with {other}"),
                    }
                }
            }
            Step::GiveUp(which) => drop(self.pick_piece(which)),
            Step::Next => self.next(),
            Step::Done(which) => {
                if !self.leases.is_empty() {
                    let which = usize::from(which) % self.leases.len();
                    drop(self.leases.swap_remove(which));
                }
            }
        }
    }

    fn scribble(&mut self, up: bool, place: Place, value: Value) {
        let direction = if up { Direction::Up } else { Direction::Down };
        let parts = *self.segment.parts(direction);
        let offset = match place {
            Place::Word(word) => {
                parts.words_offset + usize::from(word) % (Word::SlotAllocator as usize + 1) * LINE
            }
            Place::Announcement(word) => {
                parts.announcements + usize::from(word) % (parts.entries * ANNOUNCEMENT_WORDS) * 8
            }
            Place::Return(word) => parts.returns + usize::from(word) % parts.entries * 8,
            Place::Frames(word) => parts.frames + word as usize % (RING / 8) * 8,
        };
        let word = self.segment.word(offset);
        let found = word.load(Ordering::Relaxed);
        let value = match value {
            Value::Small(value) => value.into(),
            Value::Near(by) => found.wrapping_add_signed(by.into()),
            Value::RingAway(by) => found.wrapping_add(RING as u64).wrapping_add_signed(by.into()),
            Value::Any(value) => value,
        };
        word.store(value, Ordering::Relaxed);
        self.is_honest = false;
    }

    fn read(&mut self, count: usize) {
        const UNTOUCHED: u8 = 0xa5;
        let mut into = vec![UNTOUCHED; count + 8];
        let Ok(available) = self.consumer.available() else {
            assert!(!self.is_honest);
            return;
        };
        assert!(available <= RING);
        let read = self.consumer.read(&mut into[..count]).expect("the indexes have just been right");
        assert_eq!(read, available.min(count));
        assert!(into[read..].iter().all(|byte| *byte == UNTOUCHED), "more was read than there was");
        if self.is_honest {
            let right = (self.read..).map(frame_byte);
            assert!(into[..read].iter().copied().eq(right.take(read)), "other bytes came than were sent");
        }
        self.read += read as u64;
    }

    fn take(&mut self, length: usize) {
        let piece = match self.allocator.try_take(length) {
            Ok(Some(piece)) => piece,
            Ok(None) => return,
            Err(Violation::NotLeased(_) | Violation::Indexes) => return,
            Err(other) => panic!("taking a piece failed with {other}"),
        };
        assert_eq!(piece.len(), length);
        self.must_lie_in_arena(SENDS, piece.as_ptr(), length);
        let slots = |piece: &Piece| {
            let first = piece.first() as usize;
            first..first + piece.len().div_ceil(SLOT).max(1)
        };
        let new = slots(&piece);
        for held in &self.pieces {
            let held = slots(held);
            assert!(new.end <= held.start || held.end <= new.start, "slots are leased twice");
        }
        self.pieces.push(piece);
    }

    fn next(&mut self) {
        let (chunk, lease) = match self.slot_consumer.next() {
            Ok(Some(next)) => next,
            Ok(None) => return,
            Err(LinkError::Chunk(_)) => return,
            Err(LinkError::Transport(error)) if error.is_violation() => return,
            Err(other) => panic!("an announcement is refused with {other}"),
        };
        self.must_lie_in_arena(RECEIVES, lease.as_ptr(), lease.len());
        assert_eq!(lease.len(), chunk.length as usize);
        assert!(chunk.offset.checked_add(chunk.length.into()).is_some_and(|end| end <= chunk.total));
        let mut bytes = vec![0; lease.len()];
        // SAFETY: the vector has the lease's bytes.
        unsafe { lease.empty_into(bytes.as_mut_ptr(), 1) };
        self.leases.push(lease);
        assert!(self.leases.len() <= self.segment.parts(RECEIVES).slots as usize);
    }

    #[track_caller]
    fn must_lie_in_arena(&self, direction: Direction, start: *const u8, length: usize) {
        assert!(region(&self.segment, direction).holds(start, length.max(1)), "a piece leaves the arena");
    }

    fn fill(&self, piece: &Piece) {
        if let Some(last) = piece.len().checked_sub(1) {
            // SAFETY: the first and the last byte of a piece that this side holds, within the arena.
            unsafe {
                piece.as_ptr().write(1);
                piece.as_ptr().add(last).write(2);
            }
        }
    }

    fn pick_piece(&mut self, which: u8) -> Option<Piece> {
        (!self.pieces.is_empty()).then(|| self.pieces.swap_remove(usize::from(which) % self.pieces.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::ring;
    use std::path::Path;

    #[test]
    fn the_inputs_that_are_kept_break_no_rule() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ring");
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for part in 1..=8 {
                ring(&bytes[..bytes.len() * part / 8]);
            }
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }
}
