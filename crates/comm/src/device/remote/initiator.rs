//! Initiator of a link: sends what this rank's proxies ask of a peer, and takes the answers.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use super::frame::{Frame, MAX_IN_FLIGHT, MAX_PAYLOAD, Position};
use super::lanes::{Copies, word};
use super::link::{Link, Operation};
use super::parts::{PartRange, Parts};
use super::stream::Payload;
use crate::device::remote::lanes::Ring;
use crate::device::remote::stream::LinkError;

/// Requests whose payload is copied out of the GPU while those before it are written.
const MAX_PREPARED: usize = 64;

/// What answers a request.
#[derive(Debug)]
enum Expected {
    /// That it is done.
    Done,
    /// Bytes for this range.
    Data(PartRange, u32),
    /// A word for this address.
    Word(u64),
}

/// A request that is not written yet.
#[derive(Debug)]
struct Prepared {
    frame: Frame,
    payload: Option<Payload>,
    /// The mark behind which the payload is there.
    after: u64,
    expected: Expected,
}

/// A request that was written.
#[derive(Debug)]
struct InFlight {
    expected: Expected,
    /// The mark behind which what answered it is there.
    after: u64,
}

/// The requests of one link.
#[derive(Debug)]
pub struct Initiator {
    prepared: VecDeque<Prepared>,
    in_flight: VecDeque<InFlight>,
    /// How many of those in flight are answered.
    answered: usize,
    staging: Ring,
    /// Whether more was posted than could be taken.
    is_blocked: bool,
}

fn after(position: Position, bytes: u64) -> Position {
    Position { offset: position.offset + bytes, ..position }
}

impl Initiator {
    /// None yet.
    pub fn new(staging: Ring) -> Self {
        Self {
            prepared: VecDeque::new(),
            in_flight: VecDeque::new(),
            answered: 0,
            staging,
            is_blocked: false,
        }
    }

    /// Whether nothing is under way that was taken from the link.
    pub fn is_idle(&self) -> bool {
        self.prepared.is_empty() && self.in_flight.is_empty()
    }

    /// Whether a request was taken that is not answered.
    pub fn has_unanswered(&self) -> bool {
        !self.prepared.is_empty() || self.in_flight.len() > self.answered
    }

    /// Whether what is posted has to wait for answers, so that the peer's stream says when to go on.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Takes what was posted, and begins to copy payloads out of the GPU. Whether there was anything.
    ///
    /// # Errors
    /// When a window was freed, or the driver refuses.
    pub fn prepare(&mut self, link: &Link, parts: &Parts, copies: &mut Copies) -> Result<bool, LinkError> {
        let max = MAX_PREPARED - self.prepared.len();
        let taken = link.take_operations(max, |operation| {
            let Some((prepared, rest)) = self.prepare_first(operation, parts, copies)? else {
                return Ok(None);
            };
            self.prepared.push_back(prepared);
            Ok(Some(rest))
        })?;
        self.is_blocked = taken.is_blocked;
        Ok(taken.count > 0)
    }

    /// The first request of an operation, and what is left of that; `None` where staging memory is missing.
    fn prepare_first(
        &mut self,
        operation: Operation,
        parts: &Parts,
        copies: &mut Copies,
    ) -> Result<Option<(Prepared, Option<Operation>)>, LinkError> {
        let find = |position, bytes| parts.find(position, bytes).map_err(|_| LinkError::Freed);
        let simple = |frame, expected| Prepared { frame, payload: None, after: 0, expected };
        let whole = match operation {
            Operation::Put { to, from, bytes } => {
                let piece = bytes.min(u64::from(MAX_PAYLOAD));
                let PartRange { part, address } = find(from, piece)?;
                let is_staged = !part.in_host;
                let (address, mark) = if part.in_host {
                    (address, 0)
                } else {
                    let Some(staged) = self.staging.allocate(piece) else { return Ok(None) };
                    (staged, copies.copy(staged, address, piece)?)
                };
                let payload = Some(Payload { address, bytes: piece, part, is_staged, is_reply: false });
                let frame = Frame::Put { to, bytes: piece as u32 };
                let rest =
                    Operation::Put { to: after(to, piece), from: after(from, piece), bytes: bytes - piece };
                let prepared = Prepared { frame, payload, after: mark, expected: Expected::Done };
                return Ok(Some((prepared, (bytes > piece).then_some(rest))));
            }
            Operation::Get { from, to, bytes } => {
                let piece = bytes.min(u64::from(MAX_PAYLOAD));
                let expected = Expected::Data(find(to, piece)?, piece as u32);
                let rest =
                    Operation::Get { from: after(from, piece), to: after(to, piece), bytes: bytes - piece };
                let prepared = simple(Frame::Get { from, bytes: piece as u32 }, expected);
                return Ok(Some((prepared, (bytes > piece).then_some(rest))));
            }
            Operation::Store { to, value } => simple(Frame::Store { to, value }, Expected::Done),
            Operation::Signal { to, value, adds } => {
                simple(Frame::Signal { to, value, adds }, Expected::Done)
            }
            Operation::Atomic { to, operation, value, operand, brought } => {
                simple(Frame::Atomic { to, operation, value, operand }, Expected::Word(brought))
            }
        };
        Ok(Some((whole, None)))
    }

    /// The next request to write, if it may be and its payload is there.
    pub fn next(&mut self, copies: &Copies) -> Option<(Frame, Option<Payload>)> {
        let is_ready = self.prepared.front().is_some_and(|first| copies.is_passed(first.after));
        if !is_ready || self.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let Prepared { frame, payload, expected, .. } = self.prepared.pop_front()?;
        self.in_flight.push_back(InFlight { expected, after: 0 });
        Some((frame, payload))
    }

    /// A payload in staging memory has been written: the one that was staged first.
    pub fn payload_written(&mut self) {
        self.staging.free_first();
    }

    fn first_unanswered(&mut self) -> Result<&mut InFlight, LinkError> {
        self.in_flight.get_mut(self.answered).ok_or(LinkError::Wrong("it answers what was not asked"))
    }

    /// So many requests are done.
    ///
    /// # Errors
    /// When there are no such requests.
    pub fn done(&mut self, count: u32) -> Result<(), LinkError> {
        for _ in 0..count {
            if !matches!(self.first_unanswered()?.expected, Expected::Done) {
                return Err(LinkError::Wrong("it says that a request is done, and not what came of it"));
            }
            self.answered += 1;
        }
        Ok(())
    }

    /// A word was this before.
    ///
    /// # Errors
    /// When no word was asked for.
    pub fn value_received(&mut self, value: u64) -> Result<(), LinkError> {
        let Expected::Word(address) = self.first_unanswered()?.expected else {
            return Err(LinkError::Wrong("it answers with a word what did not ask for one"));
        };
        // SAFETY: a word of a response in the queue's memory, which is freed behind the thread of the links.
        unsafe { word(address) }.store(value, Ordering::Release);
        self.answered += 1;
        Ok(())
    }

    /// Where the bytes go that come next.
    ///
    /// # Errors
    /// When so many were not asked for.
    pub fn data(&mut self, bytes: u32) -> Result<PartRange, LinkError> {
        match &self.first_unanswered()?.expected {
            Expected::Data(range, expected) if *expected == bytes => Ok(range.clone()),
            _ => Err(LinkError::Wrong("it answers with other bytes than were asked for")),
        }
    }

    /// They have come, and are in the window behind a mark.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn data_arrived(&mut self, after: u64) -> Result<(), LinkError> {
        self.first_unanswered()?.after = after;
        self.answered += 1;
        Ok(())
    }

    /// Tells the link what is done. Whether there was anything.
    pub fn complete(&mut self, link: &Link, copies: &Copies) -> bool {
        let mut count = 0;
        while self.answered > 0 && self.in_flight.front().is_some_and(|first| copies.is_passed(first.after)) {
            self.in_flight.pop_front();
            self.answered -= 1;
            count += 1;
        }
        if count > 0 {
            link.complete(count);
        }
        count > 0
    }
}
