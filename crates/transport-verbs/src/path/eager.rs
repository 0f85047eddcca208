//! Eager messages: short stripes with their announcements, one or several in a message.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Buffer, Segment};

use super::posting::{Message, Moving, Path, SendState};
use super::stripe::{Notice, Stripe};
use crate::credit::Class;
use crate::message::{ANNOUNCEMENT, Announcement, FRAME_MESSAGE, HEADER, Kind};

/// The longest stripe that waits for others: four of 4 KiB fill a message.
const MAX_QUEUED: usize = FRAME_MESSAGE / 4 - ANNOUNCEMENT;

/// Bytes of an announcement without the message's header.
const RECORD: usize = ANNOUNCEMENT - HEADER;

/// A stripe's announcement, as it travels.
fn record(stripe: &Stripe) -> [u8; RECORD] {
    match stripe.notice {
        Some(Notice::Announcement(announcement)) => announcement.to_bytes(),
        _ => unreachable!("only announced stripes go with their announcement"),
    }
}

impl Path {
    /// Whether a stripe is short enough to go with its announcement, as one message: the receives of the path
    /// with frames are that long, and a request of its own would cost more than the copy that the receiver
    /// makes.
    pub(super) fn carries(&self, stripe: &Stripe) -> bool {
        self.carries_frames && stripe.is_short_piece()
    }

    /// Appends a message with the first stripe that waits, which is [carried](Self::carries), and as many of
    /// those behind it as it holds. Whether it may go. One alone is gathered from where it lies.
    pub(super) fn push_eager(&self, sending: &mut SendState, buffer: &Buffer, attends: bool) -> bool {
        let (count, is_full) = self.coalesce(&sending.waiting);
        if count > 0 && !sending.bundles.may_send(is_full, attends) {
            self.is_holding.store(true, Ordering::Relaxed);
            return false;
        }
        let Some(number) = sending.credits.spend(Class::Control) else { return false };
        let sent = sending.bundles.send();
        let bytes = if count <= 1 {
            let Some(stripe) = sending.waiting.pop_front() else { return false };
            let slot = self.slot(Class::Control, number);
            let tail = Message { is_signalled: sent.is_signalled, tail: stripe.segment };
            self.push_with(sending, buffer, slot, Kind::Eager, &record(&stripe), tail);
            stripe.length()
        } else {
            let slot = self.bundle_slot(sent.slot);
            let (mut at, mut bytes) = (HEADER, 0);
            for stripe in sending.waiting.drain(..count) {
                let length = stripe.length();
                // SAFETY: the place is this path's and in nobody's use, and `coalesce` has seen to it that
                // the stripes fit; their bytes are staging memory of this side, which stays as it is until
                // the peer has them.
                unsafe {
                    let to = buffer.as_ptr().add(slot + at);
                    core::ptr::copy_nonoverlapping(record(&stripe).as_ptr(), to, RECORD);
                    core::ptr::copy_nonoverlapping(
                        stripe.segment.address as *const u8,
                        to.add(RECORD),
                        length,
                    );
                }
                at += RECORD + length;
                bytes += length;
            }
            // The place is used again when the message has completed. Only of what has a completion of its
            // own does Soft-iWARP make a copy for TCP: the rest TCP may still fetch from memory when a later
            // request has completed.
            let message = Message { is_signalled: true, tail: Segment::EMPTY };
            self.push_filled(sending, buffer, slot, Kind::Eager, at, message);
            bytes
        };
        sending.queue.follows(Moving { bytes, operation: None, is_eager: true });
        true
    }

    /// How many of the stripes that wait can be put together in one message, none if the first one is too
    /// long to wait for others or lies where only the card reaches it; and whether the message is full with
    /// them.
    fn coalesce(&self, waiting: &VecDeque<Stripe>) -> (usize, bool) {
        let (mut count, mut remaining) = (0, FRAME_MESSAGE - HEADER);
        for stripe in waiting {
            let is_host =
                !matches!(stripe.notice, Some(Notice::Announcement(Announcement { is_direct: true, .. })));
            if !(is_host && self.carries(stripe) && stripe.length() <= MAX_QUEUED) {
                return (count, count > 0);
            }
            match remaining.checked_sub(RECORD + stripe.length()) {
                Some(less) => remaining = less,
                None => return (count, true),
            }
            count += 1;
        }
        (count, false)
    }

    /// Whether short stripes wait for others.
    pub fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Relaxed)
    }
}
