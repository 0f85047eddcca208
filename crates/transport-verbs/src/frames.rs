//! Frames of the link and eager stripes in a queue pair: in messages, or written to slots of the peer.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Buffer, RemoteMemory, Segment};
use parking_lot::Mutex;

use crate::credit::Class;
use crate::error::Failure;
use crate::message::{
    ANNOUNCEMENT, Announcement, CONTROL, FRAME_MESSAGE, HEADER, Header, InSlots, Kind, Released, take_returns,
};
use crate::path::{Message, Moving, Path, SendState};
use crate::stripe::{Notice, Stripe, Work};

/// Frames in a range of staging, and the same range of the peer's slots, to which they are to be written.
pub struct SlotFrames {
    pub announcement: Announcement,
    /// Where the range begins.
    pub start: *mut u8,
    /// What is to be written, from the beginning of the range on.
    pub segment: Segment,
    pub to: RemoteMemory,
}

impl Path {
    /// Posts as much of `frames` as there are credits and room for, with one doorbell; how many bytes that
    /// was.
    pub fn post_frames(&self, buffer: &Buffer, frames: &[u8]) -> Result<usize, Failure> {
        let mut sending = self.sending.lock();
        let mut posted = 0;
        for part in frames.chunks(FRAME_MESSAGE - HEADER) {
            if sending.queue.free_slots() == 0 {
                break;
            }
            let Some(number) = sending.credits.spend(Class::Frame) else { break };
            self.push_message(&mut sending, buffer, self.slot(Class::Frame, number), Kind::Frame, part);
            posted += part.len();
        }
        self.ring(&mut sending)?;
        Ok(posted)
    }

    /// Whether frames can be [written to slots](Self::post_frames_in_slots) now.
    pub fn may_write_frames(&self) -> bool {
        let sending = self.sending.lock();
        sending.queue.free_slots() >= 2 && sending.credits.has(Class::Control)
    }

    /// Posts the write of frames to slots of the peer, and the message that says so behind it, with one
    /// doorbell, where there is room and a credit; whether there was. The message takes along what is given
    /// back, out of `returns`.
    pub fn post_frames_in_slots(
        &self,
        buffer: &Buffer,
        frames: &SlotFrames,
        returns: &Mutex<Vec<Released>>,
    ) -> Result<bool, Failure> {
        let SlotFrames { announcement, segment, to, .. } = *frames;
        let mut sending = self.sending.lock();
        if sending.queue.free_slots() < 2 {
            return Ok(false);
        }
        let Some(number) = sending.credits.spend(Class::Control) else { return Ok(false) };
        self.push_write(&mut sending, segment, to, None);
        let slot = self.slot(Class::Control, number);
        let mut content = [0; CONTROL - HEADER];
        let length = content_of(announcement, returns, &mut content);
        self.push_message(&mut sending, buffer, slot, Kind::FrameInSlots, &content[..length]);
        self.ring(&mut sending)?;
        Ok(true)
    }

    /// The same in one request, where writes have immediate numbers: the message lies in the slots right
    /// before the frames, for which there are [`CONTROL`] bytes, and the number says where it begins.
    pub fn post_frames_with_message(
        &self,
        frames: &SlotFrames,
        returns: &Mutex<Vec<Released>>,
    ) -> Result<bool, Failure> {
        let SlotFrames { announcement, start, segment, to } = *frames;
        let mut sending = self.sending.lock();
        if sending.queue.free_slots() == 0 || sending.credits.spend(Class::Control).is_none() {
            return Ok(false);
        }
        let mut message = [0; CONTROL];
        let length = HEADER + content_of(announcement, returns, &mut message[HEADER..]);
        let header = Header { kind: Kind::FrameInSlots, returned: sending.credits.take_returned() };
        message[..HEADER].copy_from_slice(&header.to_bytes());
        let before = CONTROL - length;
        // SAFETY: the frames leave so many bytes before them in their range, which is ours until it is sent.
        unsafe { core::ptr::copy_nonoverlapping(message.as_ptr(), start.add(before), length) };
        let segment = Segment {
            address: segment.address + before as u64,
            length: segment.length - before as u32,
            key: segment.key,
        };
        let to = RemoteMemory { address: to.address + before as u64, key: to.key };
        let number = InSlots { first: announcement.first, length }.to_number();
        self.push_write(&mut sending, segment, to, Some(number));
        self.ring(&mut sending)?;
        Ok(true)
    }

    fn push_write(
        &self,
        sending: &mut SendState,
        segment: Segment,
        to: RemoteMemory,
        immediate: Option<u32>,
    ) {
        let stripe = Stripe { segment, work: Work::Write(to), notice: None, operation: None };
        self.backlog.fetch_add(stripe.length(), Ordering::Relaxed);
        self.push_work(sending, &stripe, immediate);
    }
}

/// What a message says of frames in slots, with as much of `returns` as it has room for; how many bytes that
/// is.
fn content_of(announcement: Announcement, returns: &Mutex<Vec<Released>>, content: &mut [u8]) -> usize {
    let (announced, rest) = content.split_at_mut(ANNOUNCEMENT - HEADER);
    announced.copy_from_slice(&announcement.to_bytes());
    announced.len() + take_returns(&mut returns.lock(), rest)
}

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
