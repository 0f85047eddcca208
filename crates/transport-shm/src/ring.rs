//! Ring buffers in shared memory, for bytes and for entries.
//!
//! Single producer, single consumer. An index counts what went by since the beginning and is written by one
//! side only, which keeps its own copy; what it reads of the other side's is checked against that copy.

use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use causeway_sync::spin;

use super::layout::{ANNOUNCEMENT, Direction, RETURN, RING, Word};
use super::segment::Segment;
use super::violation::Violation;

/// How long a sender polls for room before it sleeps: on few cores, whoever is to make room needs this one.
pub(super) fn spin_time() -> Duration {
    spin::between_commands().min(Duration::from_micros(20))
}

/// The end of a ring of frame bytes that writes.
pub(super) struct ByteProducer {
    segment: Arc<Segment>,
    direction: Direction,
    written: u64,
}

/// The end that reads.
pub(super) struct ByteConsumer {
    segment: Arc<Segment>,
    direction: Direction,
    read: u64,
}

/// How much is in a ring of `size`, as its indexes say.
fn filled(written: u64, read: u64, size: usize) -> Result<usize, Violation> {
    let filled = written.wrapping_sub(read);
    if filled <= size as u64 { Ok(filled as usize) } else { Err(Violation::Indexes) }
}

/// Where position `at` of a ring lies, and how many bytes follow before the ring begins again.
fn split(at: u64) -> (usize, usize) {
    let offset = at as usize & (RING - 1);
    (offset, RING - offset)
}

impl ByteProducer {
    pub(super) fn new(segment: Arc<Segment>, direction: Direction) -> Self {
        Self { segment, direction, written: 0 }
    }

    /// Bytes that can be written now.
    pub(super) fn free_bytes(&self) -> Result<usize, Violation> {
        let read = self.segment.index(self.direction, Word::FramesRead).load(Ordering::Acquire);
        Ok(RING - filled(self.written, read, RING)?)
    }

    /// Writes as many of `bytes` as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let count = bytes.len().min(self.free_bytes()?);
        if count == 0 {
            return Ok(0);
        }
        let (offset, before_end) = split(self.written);
        let (first, second) = bytes[..count].split_at(count.min(before_end));
        let start = self.segment.parts(self.direction).frames;
        // SAFETY: both parts lie in the ring, in bytes that the consumer has read; that it touches them all
        // the same would be its own loss.
        unsafe {
            self.segment.address(start + offset).copy_from(first.as_ptr(), first.len());
            self.segment.address(start).copy_from(second.as_ptr(), second.len());
        }
        self.written = self.written.wrapping_add(count as u64);
        self.segment.index(self.direction, Word::FramesWritten).store(self.written, Ordering::Release);
        Ok(count)
    }
}

impl ByteConsumer {
    pub(super) fn new(segment: Arc<Segment>, direction: Direction) -> Self {
        Self { segment, direction, read: 0 }
    }

    /// Bytes that can be read now.
    pub(super) fn available(&self) -> Result<usize, Violation> {
        let written = self.segment.index(self.direction, Word::FramesWritten).load(Ordering::Acquire);
        filled(written, self.read, RING)
    }

    /// Reads what is there, as far as `into` takes it.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, Violation> {
        let count = into.len().min(self.available()?);
        if count == 0 {
            return Ok(0);
        }
        let (offset, before_end) = split(self.read);
        let (first, second) = into[..count].split_at_mut(count.min(before_end));
        let start = self.segment.parts(self.direction).frames;
        // SAFETY: both parts lie in the ring, in bytes that the producer has written and leaves alone; if it
        // does not, what is read is some bytes, which is all that is expected of a peer.
        unsafe {
            self.segment.address(start + offset).copy_to(first.as_mut_ptr(), first.len());
            self.segment.address(start).copy_to(second.as_mut_ptr(), second.len());
        }
        self.read = self.read.wrapping_add(count as u64);
        self.segment.index(self.direction, Word::FramesRead).store(self.read, Ordering::Release);
        Ok(count)
    }
}

/// A ring of entries of `WORDS` words each.
#[derive(Clone)]
struct Entries<const WORDS: usize> {
    segment: Arc<Segment>,
    direction: Direction,
    start: usize,
    /// A power of two.
    count: usize,
    written: Word,
    read: Word,
}

/// What the sender of a transfer says of a piece: transfer, offset, total, length, first slot.
pub(super) const ANNOUNCEMENT_WORDS: usize = ANNOUNCEMENT / 8;
/// A piece that is released: its first slot.
pub(super) const RETURN_WORDS: usize = RETURN / 8;

fn announcements(segment: Arc<Segment>, direction: Direction) -> Entries<ANNOUNCEMENT_WORDS> {
    let parts = segment.parts(direction);
    let (start, count) = (parts.announcements, parts.entries);
    Entries { segment, direction, start, count, written: Word::Announced, read: Word::Taken }
}

fn returns(segment: Arc<Segment>, direction: Direction) -> Entries<RETURN_WORDS> {
    let parts = segment.parts(direction);
    let (start, count) = (parts.returns, parts.entries);
    Entries { segment, direction, start, count, written: Word::Returned, read: Word::Collected }
}

/// The end of a ring of entries that writes.
pub(super) struct EntryProducer<const WORDS: usize> {
    entries: Entries<WORDS>,
    written: u64,
}

/// The end that reads.
pub(super) struct EntryConsumer<const WORDS: usize> {
    entries: Entries<WORDS>,
    read: u64,
}

/// Both ends of a direction's announcements.
pub(super) fn announcer(segment: Arc<Segment>, direction: Direction) -> EntryProducer<ANNOUNCEMENT_WORDS> {
    EntryProducer { entries: announcements(segment, direction), written: 0 }
}
pub(super) fn announcement_consumer(
    segment: Arc<Segment>,
    direction: Direction,
) -> EntryConsumer<ANNOUNCEMENT_WORDS> {
    EntryConsumer { entries: announcements(segment, direction), read: 0 }
}

/// Both ends of the returns of a direction's pieces; they travel the other way.
pub(super) fn returner(segment: Arc<Segment>, direction: Direction) -> EntryProducer<RETURN_WORDS> {
    EntryProducer { entries: returns(segment, direction), written: 0 }
}
pub(super) fn collector(segment: Arc<Segment>, direction: Direction) -> EntryConsumer<RETURN_WORDS> {
    EntryConsumer { entries: returns(segment, direction), read: 0 }
}

impl<const WORDS: usize> Entries<WORDS> {
    fn offset(&self, at: u64) -> usize {
        self.start + (at as usize & (self.count - 1)) * WORDS * 8
    }
}

impl<const WORDS: usize> EntryProducer<WORDS> {
    /// Writes an entry; false when there is no room.
    pub(super) fn push(&mut self, entry: [u64; WORDS]) -> Result<bool, Violation> {
        let Entries { segment, direction, count, written, read, .. } = &self.entries;
        let read = segment.index(*direction, *read).load(Ordering::Acquire);
        if filled(self.written, read, *count)? == *count {
            return Ok(false);
        }
        let offset = self.entries.offset(self.written);
        for (i, word) in entry.into_iter().enumerate() {
            segment.word(offset + i * 8).store(word, Ordering::Relaxed);
        }
        self.written = self.written.wrapping_add(1);
        segment.index(*direction, *written).store(self.written, Ordering::Release);
        Ok(true)
    }
}

impl<const WORDS: usize> EntryConsumer<WORDS> {
    /// Reads the next entry, if there is one.
    pub(super) fn pop(&mut self) -> Result<Option<[u64; WORDS]>, Violation> {
        let Entries { segment, direction, count, written, read, .. } = &self.entries;
        let written = segment.index(*direction, *written).load(Ordering::Acquire);
        if filled(written, self.read, *count)? == 0 {
            return Ok(None);
        }
        let offset = self.entries.offset(self.read);
        let entry = core::array::from_fn(|i| segment.word(offset + i * 8).load(Ordering::Relaxed));
        self.read = self.read.wrapping_add(1);
        segment.index(*direction, *read).store(self.read, Ordering::Release);
        Ok(Some(entry))
    }

    /// How many entries have been read; as the peer can see it.
    pub(super) fn read_position(&self) -> u64 {
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::*;

    fn segment() -> Arc<Segment> {
        Arc::new(Segment::create(Layout::halves(0)).unwrap().0)
    }

    #[test]
    fn bytes_come_out_as_they_went_in_round_the_end_of_the_ring() {
        let segment = segment();
        let mut producer = ByteProducer::new(Arc::clone(&segment), Direction::Up);
        let mut consumer = ByteConsumer::new(segment, Direction::Up);
        let bytes: Vec<u8> = (0..3 * RING + 777).map(|i| ((i * 31) >> 3) as u8).collect();
        let (mut sent, mut received, mut buffer) = (0, Vec::new(), vec![0; 50_001]);
        while received.len() < bytes.len() {
            sent += producer.write(&bytes[sent..(sent + 70_003).min(bytes.len())]).unwrap();
            let count = consumer.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..count]);
        }
        assert!(received == bytes);
        assert_eq!(consumer.read(&mut buffer), Ok(0));
        while producer.write(&bytes).unwrap() > 0 {}
        assert_eq!((producer.free_bytes(), consumer.available()), (Ok(0), Ok(RING)));
    }

    #[test]
    fn indexes_that_cannot_be_are_noticed() {
        let segment = segment();
        let mut producer = ByteProducer::new(Arc::clone(&segment), Direction::Up);
        let mut consumer = ByteConsumer::new(Arc::clone(&segment), Direction::Up);
        let (written, read) = (Word::FramesWritten, Word::FramesRead);
        for wrong in [RING as u64 + 1, u64::MAX, 1 << 63] {
            segment.index(Direction::Up, written).store(wrong, Ordering::Relaxed);
            assert_eq!(consumer.read(&mut [0; 8]), Err(Violation::Indexes));
            // More read than was ever written.
            segment.index(Direction::Up, read).store(1, Ordering::Relaxed);
            assert_eq!(producer.write(&[0; 8]), Err(Violation::Indexes));
        }
        let mut announcement_consumer = announcement_consumer(Arc::clone(&segment), Direction::Up);
        segment.index(Direction::Up, Word::Announced).store(1 << 40, Ordering::Relaxed);
        assert_eq!(announcement_consumer.pop(), Err(Violation::Indexes));
    }

    #[test]
    fn entries_keep_their_order_and_their_number_is_bounded() {
        let segment = segment();
        let mut push = announcer(Arc::clone(&segment), Direction::Down);
        let mut pop = announcement_consumer(Arc::clone(&segment), Direction::Down);
        for round in 0..5_u64 {
            let mut count = 0;
            while push.push([round, count, 2, 3, 4]).unwrap() {
                count += 1;
            }
            assert_eq!(count, segment.parts(Direction::Down).entries as u64);
            for i in 0..count {
                assert_eq!(pop.pop(), Ok(Some([round, i, 2, 3, 4])));
            }
            assert_eq!(pop.pop(), Ok(None));
        }
    }
}
