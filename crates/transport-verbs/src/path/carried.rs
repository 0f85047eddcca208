//! How do short parts go with their announcements, one or several in a message?

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Buffer, Segment};

use super::part::{Part, Said};
use super::posting::{Book, Message, Moving, Path};
use crate::credit::Class;
use crate::message::{ANNOUNCEMENT, Announcement, FRAME_MESSAGE, HEADER, Kind};

/// The longest part that waits for others: four of 4 KiB fill a message.
const MOST_WAITING: usize = FRAME_MESSAGE / 4 - ANNOUNCEMENT;

/// Bytes of an announcement without the message's header.
const RECORD: usize = ANNOUNCEMENT - HEADER;

/// A part's announcement, as it travels.
fn record(part: &Part) -> [u8; RECORD] {
    match part.said {
        Some(Said::Announcement(announcement)) => announcement.to_bytes(),
        _ => unreachable!("only announced parts go with their announcement"),
    }
}

impl Path {
    /// Whether a part is short enough to go with its announcement, as one message: the receives of the path
    /// with frames are that long, and a request of its own would cost more than the copy that the receiver
    /// makes.
    pub(super) fn carries(&self, part: &Part) -> bool {
        self.carries_frames && part.is_short_piece()
    }

    /// Appends a message with the first part that waits, which is [carried](Self::carries), and as many of
    /// those behind it as it holds. Whether it may go. One alone is gathered from where it lies.
    pub(super) fn push_carried(&self, book: &mut Book, buffer: &Buffer, attends: bool) -> bool {
        let (count, is_full) = self.together(&book.waiting);
        if count > 0 && !book.bundles.may_go(is_full, attends) {
            self.is_holding.store(true, Ordering::Relaxed);
            return false;
        }
        let Some(number) = book.credits.spend(Class::Control) else { return false };
        let sent = book.bundles.send();
        let bytes = if count <= 1 {
            let Some(part) = book.waiting.pop_front() else { return false };
            let place = self.place(Class::Control, number);
            let tail = Message { is_signalled: sent.is_signalled, tail: part.segment };
            self.push_with(book, buffer, place, Kind::Carried, &record(&part), tail);
            part.length()
        } else {
            let place = self.bundle_place(sent.place);
            let (mut at, mut bytes) = (HEADER, 0);
            for part in book.waiting.drain(..count) {
                let length = part.length();
                // SAFETY: the place is this path's and in nobody's use, and `together` has seen to it that
                // the parts fit; their bytes are staging memory of this side, which stays as it is until the
                // peer has them.
                unsafe {
                    let to = buffer.as_ptr().add(place + at);
                    core::ptr::copy_nonoverlapping(record(&part).as_ptr(), to, RECORD);
                    core::ptr::copy_nonoverlapping(part.segment.address as *const u8, to.add(RECORD), length);
                }
                at += RECORD + length;
                bytes += length;
            }
            // The place is used again when the message has completed. Only of what has a completion of its
            // own does Soft-iWARP make a copy for TCP: the rest TCP may still fetch from memory when a later
            // request has completed.
            let message = Message { is_signalled: true, tail: Segment::EMPTY };
            self.push_filled(book, buffer, place, Kind::Carried, at, message);
            bytes
        };
        book.queue.follows(Moving { bytes, operation: None, is_carried: true });
        true
    }

    /// How many of the parts that wait can be put together in one message, none if the first one is too long
    /// to wait for others or lies where only the card reaches it; and whether the message is full with them.
    fn together(&self, waiting: &VecDeque<Part>) -> (usize, bool) {
        let (mut count, mut room) = (0, FRAME_MESSAGE - HEADER);
        for part in waiting {
            let is_host =
                !matches!(part.said, Some(Said::Announcement(Announcement { is_direct: true, .. })));
            if !(is_host && self.carries(part) && part.length() <= MOST_WAITING) {
                return (count, count > 0);
            }
            match room.checked_sub(RECORD + part.length()) {
                Some(less) => room = less,
                None => return (count, true),
            }
            count += 1;
        }
        (count, false)
    }

    /// Whether short parts wait for others.
    pub fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Relaxed)
    }
}
