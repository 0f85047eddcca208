//! How do bytes of the link's frames get into a queue pair: in messages, or written to slots of the peer?

use std::sync::atomic::Ordering;

use causeway_verbs::{Buffer, RemoteMemory, Segment};

use super::{Part, Path, Work};
use crate::verbs::Failure;
use crate::verbs::credit::Class;
use crate::verbs::ends::FRAME_MESSAGE;
use crate::verbs::message::{Announcement, HEADER, Kind};

impl Path {
    /// Posts as much of `frames` as there are credits and room for, with one doorbell; how many bytes that was.
    pub fn post_frames(&self, buffer: &Buffer, frames: &[u8]) -> Result<usize, Failure> {
        let mut book = self.book.lock();
        let mut posted = 0;
        for part in frames.chunks(FRAME_MESSAGE - HEADER) {
            if book.queue.room() == 0 {
                break;
            }
            let Some(number) = book.credits.spend(Class::Frame) else { break };
            self.push_message(&mut book, buffer, self.place(Class::Frame, number), Kind::Frame, part);
            posted += part.len();
        }
        self.ring(&mut book)?;
        Ok(posted)
    }

    /// Whether frames can be [written to slots](Self::post_frames_in_slots) now.
    pub fn may_write_frames(&self) -> bool {
        let book = self.book.lock();
        book.queue.room() >= 2 && book.credits.has(Class::Control)
    }

    /// Posts the write of frames that lie in `segment` to slots of the peer, and what says so behind it, with one doorbell, where
    /// there is room and a credit; whether there was.
    pub fn post_frames_in_slots(
        &self,
        buffer: &Buffer,
        segment: Segment,
        to: RemoteMemory,
        announcement: &Announcement,
    ) -> Result<bool, Failure> {
        let mut book = self.book.lock();
        if book.queue.room() < 2 {
            return Ok(false);
        }
        let Some(number) = book.credits.spend(Class::Control) else { return Ok(false) };
        let part = Part { segment, work: Work::Write(to), said: None, operation: None };
        self.backlog.fetch_add(part.length(), Ordering::Relaxed);
        self.push_work(&mut book, &part);
        let place = self.place(Class::Control, number);
        self.push_message(&mut book, buffer, place, Kind::FrameInSlots, &announcement.to_bytes());
        self.ring(&mut book)?;
        Ok(true)
    }
}
