//! This rank's end of a link: a stream, and what goes over it in both directions.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::frame::{Frame, MAX_PAYLOAD};
use super::initiator::Initiator;
use super::lanes::Copies;
use super::link::Link;
use super::parts::{PartRange, Parts};
use super::rdma::RdmaPath;
use super::rdma_end::RdmaEnd;
use super::stream::{Payload, Reader, Writer};
use super::target::Target;
use crate::bootstrap::ByteStream;
use crate::device::remote::lanes::Ring;
use crate::device::remote::stream::LinkError;

/// Bytes of each of the three rings of staging memory of a link.
const RING: u64 = 2 * MAX_PAYLOAD as u64;

/// Bytes of staging memory of a link.
pub const STAGING_BYTES: u64 = 3 * RING;

/// Frames that are read of one peer before the others' turn.
const MAX_FRAMES: usize = 64;

/// How long requests to a peer that has left may wait for their card, which says sooner that there is no peer.
const LEFT_TIMEOUT: Duration = Duration::from_secs(4);

/// A payload that is being read.
#[derive(Debug)]
struct Arriving {
    /// Where it goes.
    range: PartRange,
    bytes: u64,
    /// Where it is read to, if not there.
    staged: Option<u64>,
    /// Whether it answers a get; else it is a put's.
    is_reply: bool,
}

/// An end.
#[derive(Debug)]
pub struct LinkEnd {
    /// The rank at the other end.
    pub peer: u32,
    /// Whether it takes what proxies post; not so the second end of a rank's link to itself.
    initiates: bool,
    stream: ByteStream,
    reader: Reader,
    writer: Writer,
    initiator: Initiator,
    /// What has the place of the initiator where both ends have a card.
    rdma: Option<RdmaEnd>,
    target: Target,
    arriving: Option<Arriving>,
    /// A frame whose payload has no staging memory yet.
    delayed: Option<Frame>,
    /// Payloads in staging memory, by the marks behind which they are copied to the GPU.
    arrivals: Ring,
    copied: VecDeque<u64>,
    /// The peer has said goodbye, and its stream has ended.
    has_left: bool,
    has_ended: bool,
    /// Since when it has left, whether that was answered, and whether it has answered this end's goodbye.
    left_since: Option<Instant>,
    has_answered_goodbye: bool,
    is_released: bool,
}

/// What ends share.
pub struct Shared<'a> {
    /// Posted by proxies.
    pub link: &'a Link,
    /// This rank's parts of windows.
    pub parts: &'a Parts,
    /// Copies from and to the GPU.
    pub copies: &'a mut Copies,
}

impl LinkEnd {
    /// Over a stream, with so much staging memory at an address as [`STAGING_BYTES`] says.
    pub fn new(peer: u32, initiates: bool, stream: ByteStream, staging: u64) -> Self {
        let ring = |number| Ring::new(staging + number * RING, RING);
        Self {
            peer,
            initiates,
            stream,
            reader: Reader::default(),
            writer: Writer::default(),
            initiator: Initiator::new(ring(0)),
            rdma: None,
            target: Target::new(ring(1)),
            arriving: None,
            delayed: None,
            arrivals: ring(2),
            copied: VecDeque::new(),
            has_left: false,
            has_ended: false,
            left_since: None,
            has_answered_goodbye: false,
            is_released: false,
        }
    }

    /// The same, whose requests go over a card; the stream has windows and the end. The staging memory is
    /// at the same address.
    pub fn with_rdma(mut self, path: RdmaPath, staging: u64) -> Self {
        let ring = |number| Ring::new(staging + number * RING, RING);
        self.rdma = Some(RdmaEnd::new(path, ring(0), ring(2)));
        self
    }

    /// Its card's path, if its requests go over one.
    pub fn rdma_path(&mut self) -> Option<&mut RdmaPath> {
        self.rdma.as_mut().map(RdmaEnd::path)
    }

    /// Whether its card has ended something that was not looked at.
    pub fn has_events(&mut self) -> bool {
        self.rdma_path().is_some_and(|path| path.has_events())
    }

    /// Moves everything on that can be. Whether there was anything.
    ///
    /// # Errors
    /// When the link has come to an end.
    pub fn step(&mut self, shared: &mut Shared<'_>) -> Result<bool, LinkError> {
        let mut did = self.read(shared)?;
        while self.copied.front().is_some_and(|mark| shared.copies.is_passed(*mark)) {
            self.copied.pop_front();
            self.arrivals.free_first();
        }
        if let Some(rdma) = &mut self.rdma {
            did |= rdma.step(&mut self.target, shared.link, shared.parts, shared.copies)?;
            if self.has_left && !self.has_answered_goodbye {
                if !rdma.has_unanswered() {
                    self.writer.push(&Frame::Farewell, None);
                    self.has_answered_goodbye = true;
                } else if self.left_since.get_or_insert_with(Instant::now).elapsed() > LEFT_TIMEOUT {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            return Ok(self.write(shared)? || did);
        }
        did |= self.initiator.complete(shared.link, shared.copies);
        did |= self.target.advance(shared.copies)?;
        if self.initiates {
            did |= self.initiator.prepare(shared.link, shared.parts, shared.copies)?;
        }
        if self.has_left && self.initiator.has_unanswered() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(self.write(shared)? || did)
    }

    fn read(&mut self, shared: &mut Shared<'_>) -> Result<bool, LinkError> {
        let mut did = false;
        for _ in 0..MAX_FRAMES {
            if let Some(arriving) = &self.arriving {
                if !self.reader.payload(&self.stream)? {
                    break;
                }
                let Arriving { range, bytes, staged, is_reply } = arriving;
                let range = range.clone();
                let mark = match staged {
                    Some(staged) => {
                        let mark = shared.copies.copy_from_host(range.address, *staged, *bytes)?;
                        self.copied.push_back(mark);
                        mark
                    }
                    None => 0,
                };
                if *is_reply {
                    self.initiator.data_arrived(mark)?;
                } else {
                    self.target.payload_arrived(mark, range);
                }
                self.arriving = None;
                did = true;
                continue;
            }
            let frame = match self.delayed.take() {
                Some(frame) => frame,
                None if self.has_ended => break,
                None => match self.reader.frame(&self.stream) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => break,
                    Err(LinkError::Lost(_)) if self.has_left => {
                        self.has_ended = true;
                        break;
                    }
                    Err(error) => return Err(error),
                },
            };
            if !self.accept(frame, shared)? {
                self.delayed = Some(frame);
                break;
            }
            did = true;
        }
        Ok(did)
    }

    /// Takes a frame; false where there is no staging memory for its payload.
    fn accept(&mut self, frame: Frame, shared: &mut Shared<'_>) -> Result<bool, LinkError> {
        if let (Some(rdma), Frame::Farewell) = (&self.rdma, &frame) {
            self.is_released = !rdma.has_unanswered();
            return Ok(true);
        }
        if self.has_left {
            return Err(LinkError::Wrong("it asks for something behind its goodbye"));
        }
        match (&mut self.rdma, &frame) {
            (Some(rdma), Frame::Window { .. }) => {
                rdma.path().add_window(&frame, |window| shared.parts.may_have(window))?;
                return Ok(true);
            }
            (_, Frame::Goodbye) | (None, _) => {}
            (Some(_), _) => return Err(LinkError::Wrong("it asks over a stream, and has a network card")),
        }
        let (range, bytes, is_reply) = match frame {
            Frame::Done { count } => return self.initiator.done(count).map(|()| true),
            Frame::Value { value } => return self.initiator.value_received(value).map(|()| true),
            Frame::Goodbye => {
                self.has_left = true;
                return Ok(true);
            }
            Frame::Data { bytes } => (self.initiator.data(bytes)?, bytes, true),
            Frame::Put { bytes, .. } => match self.target.put(&frame, shared.parts)? {
                Some(range) => (range, bytes, false),
                None => return Ok(true),
            },
            _ => return self.target.request(&frame, shared.parts, shared.copies).map(|()| true),
        };
        let staged = if range.part.in_host {
            None
        } else {
            let Some(staged) = self.arrivals.allocate(u64::from(bytes)) else { return Ok(false) };
            Some(staged)
        };
        // SAFETY: a range of a part, which is kept, or of staging memory, which is freed behind the thread of
        // the links.
        unsafe { self.reader.begin_payload(staged.unwrap_or(range.address), bytes) };
        self.arriving = Some(Arriving { range, bytes: u64::from(bytes), staged, is_reply });
        Ok(true)
    }

    fn write(&mut self, shared: &Shared<'_>) -> Result<bool, LinkError> {
        let mut did = false;
        loop {
            while self.writer.has_capacity() {
                if let Some(rdma) = &mut self.rdma {
                    let Some(window_frame) =
                        shared.parts.next_exposed(rdma.announced).filter(|_| !self.has_left)
                    else {
                        break;
                    };
                    if let Frame::Window { window, .. } = window_frame {
                        rdma.announced = window + 1;
                    }
                    self.writer.push(&window_frame, None);
                    did = true;
                    continue;
                }
                // Answers first: the peer waits for them, and they take no position at its end.
                let (frame, payload) = if let Some(done) = self.target.next_done() {
                    (done, None)
                } else if let Some(reply) = self.target.next(shared.copies) {
                    reply
                } else if let Some(request) = self.initiator.next(shared.copies) {
                    request
                } else {
                    break;
                };
                if let Some(payload) = self.writer.push(&frame, payload) {
                    self.payload_written(&payload);
                }
                did = true;
            }
            if self.has_ended {
                return Ok(did);
            }
            let (count, payload) = match self.writer.flush(&self.stream) {
                // Who has left reads nothing more.
                Err(_) if self.has_left => (0, None),
                flushed => flushed?,
            };
            if let Some(payload) = payload {
                self.payload_written(&payload);
            }
            if count == 0 {
                return Ok(did);
            }
            did = true;
        }
    }

    fn payload_written(&mut self, payload: &Payload) {
        if payload.is_reply {
            self.target.payload_written(payload.is_staged);
        } else if payload.is_staged {
            self.initiator.payload_written();
        }
    }

    /// Whether nothing is under way in either direction.
    pub fn is_idle(&self) -> bool {
        // What is left has no reader when the stream has ended.
        let is_written = self.has_ended || self.writer.is_empty();
        let is_idle = self.rdma.as_ref().map_or_else(|| self.initiator.is_idle(), RdmaEnd::is_idle);
        is_idle && self.target.is_idle() && self.arriving.is_none() && is_written
    }

    /// Whether the peer needs this end no more, behind the goodbye: a card that has gone answers nothing, also
    /// not what it has done.
    pub fn is_released(&self) -> bool {
        self.rdma.is_none() || self.is_released || self.has_ended
    }

    /// Says that this rank asks for nothing more, unless the peer has gone.
    pub fn leave(&mut self) {
        if !self.has_ended {
            self.writer.push(&Frame::Goodbye, None);
        }
    }

    /// Whether something was posted that the last step did not see: it took all there was.
    pub fn has_news(&self, link: &Link) -> bool {
        let is_blocked = self.rdma.as_ref().map_or_else(|| self.initiator.is_blocked(), RdmaEnd::is_blocked);
        self.initiates && !is_blocked && !link.inbox().operations.is_empty()
    }

    /// Whether something is to be waited for at the stream, and whether that is capacity to write.
    pub fn waits(&self) -> Option<bool> {
        (!self.has_ended).then_some(!self.writer.is_empty())
    }

    /// Ends the stream behind what was written.
    pub fn end_writing(&self) {
        self.stream.end_writing();
    }

    /// Ends the stream in both directions.
    pub fn shut(&self) {
        self.stream.shut();
    }
}

impl AsFd for LinkEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::{GpuError, Lane};
    use crate::device::remote::frame::{MAX_IN_FLIGHT, Position};
    use crate::device::remote::link::{Links, Operation};

    /// Of a rank whose windows are all in the host.
    struct NoLane;

    impl Lane for NoLane {
        fn copy(&mut self, _to: u64, _from: u64, _bytes: u64) -> Result<(), GpuError> {
            unreachable!("nothing lies on the GPU")
        }

        fn set(&mut self, _to: u64, _value: u64) -> Result<(), GpuError> {
            unreachable!("nothing lies on the GPU")
        }

        fn mark(&mut self) -> Result<u64, GpuError> {
            Ok(0)
        }

        fn done(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_rank_that_has_left_first_holds_up_no_other() {
        let (links, parts, mut copies) =
            (Links::new(2).unwrap(), Parts::default(), Copies::new(Box::new(NoLane), 0));
        let (ours, theirs) = ByteStream::pair().unwrap();
        let theirs = ByteStream::of_descriptor(theirs).unwrap();
        let mut end = LinkEnd::new(1, true, ours, 4096);
        let mut shared = Shared { link: links.to(1), parts: &parts, copies: &mut copies };
        theirs.write([&Frame::Goodbye.encode(), &[]]).unwrap();
        drop(theirs);
        while end.waits().is_some() {
            end.step(&mut shared).unwrap();
        }
        end.leave();
        end.step(&mut shared).unwrap();
        assert!(end.is_idle(), "it waits for somebody to read its goodbye");
    }

    #[test]
    fn what_waits_for_answers_is_no_news() {
        let (links, parts, mut copies) =
            (Links::new(2).unwrap(), Parts::default(), Copies::new(Box::new(NoLane), 0));
        let (ours, theirs) = ByteStream::pair().unwrap();
        let theirs = ByteStream::of_descriptor(theirs).unwrap();
        let mut end = LinkEnd::new(1, true, ours, 4096);
        let mut shared = Shared { link: links.to(1), parts: &parts, copies: &mut copies };
        let post = || links.post(1, Operation::Store { to: Position { window: 0, offset: 0 }, value: 1 });
        post();
        assert!(end.has_news(links.to(1)), "it has not looked yet");
        for _ in 0..2 * MAX_IN_FLIGHT {
            post();
        }
        while end.step(&mut shared).unwrap() {}
        assert!(!links.to(1).inbox().operations.is_empty());
        assert!(!end.has_news(links.to(1)), "it could take nothing more");
        let done = Frame::Done { count: MAX_IN_FLIGHT as u32 };
        for _ in 0..2 {
            theirs.write([&done.encode(), &[]]).unwrap();
            while end.step(&mut shared).unwrap() {}
        }
        assert!(links.to(1).inbox().operations.is_empty());
        post();
        assert!(end.has_news(links.to(1)), "it came behind the last step");
    }
}
