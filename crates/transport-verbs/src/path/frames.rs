//! Frames in a queue pair: in messages, or written to slots of the peer.

use std::sync::atomic::Ordering;

use causeway_ibverbs::{Buffer, RemoteMemory, Segment};
use parking_lot::Mutex;

use super::posting::{Path, SendState};
use super::stripe::{Stripe, Work};
use crate::credit::Class;
use crate::failure::Failure;
use crate::message::{
    ANNOUNCEMENT, Announcement, CONTROL, FRAME_MESSAGE, HEADER, Header, InSlots, Kind, Released, take_returns,
};

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
