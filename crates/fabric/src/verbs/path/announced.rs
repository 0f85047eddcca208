//! How are parts announced that the card has written by themselves, one or several in a message?
//!
//! An announcement behind each part is a message more for both ends. While the queue pair is busy, parts wait for each other to be announced,
//! by the [rule](super::super::bundles) by which short ones do, and no longer than a few of them take: who receives them is to begin
//! with the first.

use std::sync::atomic::Ordering;

use causeway_verbs::{Buffer, Segment};

use super::{Book, Message, Moving, Path};
use crate::verbs::bundles::Bundles;
use crate::verbs::credit::Class;
use crate::verbs::message::{Announcement, CONTROL, HEADER, Kind, RECORD};

/// Announcements that one message holds.
const MOST_TOGETHER: usize = (CONTROL - HEADER) / RECORD;

/// Bytes that are announced together at most, but for the last part's: some 10 us of a card of 100 Gbit/s.
const MOST_BYTES: usize = 128 << 10;

/// Parts that have been written and not announced.
#[derive(Debug, Default)]
pub(super) struct Unannounced {
    records: Vec<u8>,
    bytes: usize,
    /// The messages that announce such parts.
    pub(super) messages: Bundles,
}

impl Unannounced {
    /// One more part has been written.
    pub(super) fn add(&mut self, announcement: Announcement, bytes: usize) {
        self.records.extend(announcement.to_bytes());
        self.bytes += bytes;
    }

    /// Whether the next part need not wait for this message.
    fn is_full(&self) -> bool {
        self.records.len() == MOST_TOGETHER * RECORD || self.bytes >= MOST_BYTES
    }

    /// Whether what waits may be announced.
    fn may_go(&self, attends: bool) -> bool {
        self.is_full() || self.messages.may_go(false, attends)
    }
}

impl Path {
    /// Whether one more part can be announced with those that wait; if need be, they go first.
    pub(super) fn has_room_to_announce(&self, book: &mut Book, buffer: &Buffer) -> bool {
        !book.unannounced.is_full() || self.push_announcements(book, buffer, true)
    }

    /// Appends a message with all announcements that wait, if they may go. Whether it did; those that wait on are in the account of
    /// what the path [holds](Self::is_holding).
    pub(super) fn push_announcements(&self, book: &mut Book, buffer: &Buffer, attends: bool) -> bool {
        if book.unannounced.records.is_empty() {
            return false;
        }
        if !book.unannounced.may_go(attends) {
            self.is_holding.store(true, Ordering::Relaxed);
            return false;
        }
        if book.queue.room() == 0 {
            return false;
        }
        let Some(number) = book.credits.spend(Class::Control) else { return false };
        let mut records = core::mem::take(&mut book.unannounced.records);
        book.unannounced.bytes = 0;
        let is_signalled = book.unannounced.messages.send().is_signalled;
        let message = Message { is_signalled, tail: Segment::EMPTY };
        let place = self.place(Class::Control, number);
        self.push_with(book, buffer, place, Kind::Announcement, &records, message);
        book.queue.follows(Moving { announces: true, ..Moving::default() });
        records.clear();
        book.unannounced.records = records;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::chunk::ChunkHeader;

    fn announcement() -> Announcement {
        let chunk = ChunkHeader { transfer: 1, offset: 0, total: 1, length: 1 };
        Announcement { chunk, first: 0, parts: 1, is_direct: false }
    }

    #[test]
    fn a_busy_path_announces_several_parts_together_and_long_ones_alone() {
        let mut waiting = Unannounced::default();
        while waiting.messages.may_go(false, true) {
            waiting.messages.send();
        }
        for _ in 1..MOST_TOGETHER {
            waiting.add(announcement(), 16 << 10);
            assert!(!waiting.may_go(true));
        }
        waiting.add(announcement(), 16 << 10);
        assert!(waiting.may_go(true) && waiting.records.len() + HEADER <= CONTROL);
        waiting.messages.done();
        let mut waiting = Unannounced { messages: waiting.messages, ..Unannounced::default() };
        waiting.add(announcement(), 1);
        assert!(waiting.may_go(true), "one message fewer is under way");
        waiting.messages.send();
        assert!(!waiting.may_go(true));
        waiting.add(announcement(), MOST_BYTES);
        assert!(waiting.may_go(true));
    }
}
