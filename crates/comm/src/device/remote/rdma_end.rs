//! Requests of a link over a network card: what this rank's proxies ask of a peer, and what is answered.
//!
//! Requests are posted in their order. Some the card answers, when a write or read has ended, and some the peer's
//! proxy, by frames in their order; the link hears of them in the order in which they were posted.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use causeway_ibverbs::Segment;

use super::frame::{Frame, MAX_IN_FLIGHT, MAX_PAYLOAD, Position};
use super::lanes::{Copies, Ring, word};
use super::link::{Link, Operation};
use super::parts::{PartRange, Parts};
use super::rdma::{BOUNCE_SLOTS, Bounce, Effect, Next, RdmaPath};
use super::stream::LinkError;
use super::target::Target;

/// Requests whose payload is copied out of the GPU while those before it are posted.
const MAX_PREPARED: usize = 64;

/// What a request waits for.
#[derive(Debug)]
enum Expected {
    /// The end of a write or read.
    Completion,
    /// A flush of this number.
    Flushed(u64),
    /// That the peer has done it; of a put whether it has one of the peer's bounce slots.
    Done { has_slot: bool },
    /// Bytes for this range, through a bounce slot.
    Data(PartRange, u32),
    /// A word for this address.
    Word(u64),
    /// Bytes for this range, which the card brings to staging memory.
    Staged(PartRange, u64, u64),
}

#[derive(Debug)]
struct InFlight {
    expected: Expected,
    is_answered: bool,
    /// The mark behind which what answered it is there.
    after: u64,
}

/// A piece of an operation that is not posted yet; of a put the bytes for the card, and what holds them.
#[derive(Debug)]
enum Piece {
    Put { to: Position, source: Segment, held: Option<PartRange> },
    Get { from: Position, to: PartRange, bytes: u64 },
    Other(Operation),
}

/// A piece, the mark behind which it may be posted, and what is left of its operation.
type Prepared = ((Piece, u64), Option<Operation>);

/// A link's end over a card.
#[derive(Debug)]
pub struct RdmaEnd {
    path: RdmaPath,
    prepared: VecDeque<(Piece, u64)>,
    in_flight: VecDeque<InFlight>,
    /// The number of the first of them.
    first: u64,
    /// Those that the peer's proxy answers.
    by_peer: VecDeque<u64>,
    /// Flushes that were posted, and that have ended.
    flushes: [u64; 2],
    /// Bounce slots of the peer's, and of this end's, in use.
    puts: usize,
    gets: usize,
    /// Staging memory of puts, and of reads, of which the first are copied to the GPU behind these marks.
    staging: Ring,
    arrivals: Ring,
    is_blocked: bool,
    /// The first window that was not announced to the peer.
    pub announced: u32,
}

fn after(position: Position, bytes: u64) -> Position {
    Position { offset: position.offset + bytes, ..position }
}

impl RdmaEnd {
    /// Over a path, with rings of staging memory.
    pub fn new(path: RdmaPath, staging: Ring, arrivals: Ring) -> Self {
        Self {
            path,
            prepared: VecDeque::new(),
            in_flight: VecDeque::new(),
            first: 0,
            by_peer: VecDeque::new(),
            flushes: [0; 2],
            puts: 0,
            gets: 0,
            staging,
            arrivals,
            is_blocked: false,
            announced: 0,
        }
    }

    /// What the card does.
    pub fn path(&mut self) -> &mut RdmaPath {
        &mut self.path
    }

    /// Whether nothing is under way in either direction.
    pub fn is_idle(&self) -> bool {
        !self.has_unanswered() && self.in_flight.is_empty() && self.path.is_idle()
    }

    /// Whether a request was taken that is not answered.
    pub fn has_unanswered(&self) -> bool {
        !self.prepared.is_empty() || self.in_flight.iter().any(|request| !request.is_answered)
    }

    /// Whether what is posted has to wait for answers, which wake the thread.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Moves everything on that can be. Whether there was anything.
    ///
    /// # Errors
    /// When the link has come to an end.
    pub fn step(
        &mut self,
        target: &mut Target,
        link: &Link,
        parts: &Parts,
        copies: &mut Copies,
    ) -> Result<bool, LinkError> {
        let mut did = false;
        while let Some(next) = self.path.next_ended()? {
            match next {
                Next::Ended(effect) => self.ended(effect, target, copies)?,
                Next::Frame(frame) => self.accept(&frame, target, parts, copies)?,
            }
            did = true;
        }
        did |= self.complete(link, copies);
        did |= target.advance(copies)?;
        did |= self.prepare(link, parts, copies)?;
        did |= self.post(copies)?;
        did |= self.reply(target, copies)?;
        self.path.submit()?;
        Ok(did)
    }

    fn ended(&mut self, effect: Effect, target: &mut Target, copies: &mut Copies) -> Result<(), LinkError> {
        match effect {
            Effect::None => {}
            Effect::Completes(number) => self.completed(number, copies)?,
            Effect::Staged(number) => {
                self.staging.free_first();
                if let Some(number) = number {
                    self.completed(number, copies)?;
                }
            }
            Effect::Flushed => self.flushes[1] += 1,
            Effect::Replied(payload) => target.payload_written(payload.is_staged),
        }
        Ok(())
    }

    fn completed(&mut self, number: u64, copies: &mut Copies) -> Result<(), LinkError> {
        let Some(request) = self.in_flight.get_mut((number - self.first) as usize) else { return Ok(()) };
        if let Expected::Staged(range, staged, bytes) = &request.expected {
            request.after = copies.copy_from_host(range.address, *staged, *bytes)?;
        }
        request.is_answered = true;
        Ok(())
    }

    /// Takes a frame.
    fn accept(
        &mut self,
        frame: &Frame,
        target: &mut Target,
        parts: &Parts,
        copies: &mut Copies,
    ) -> Result<(), LinkError> {
        match *frame {
            Frame::Done { count } => {
                for _ in 0..count {
                    let request = self.next_by_peer()?;
                    if !matches!(request.expected, Expected::Done { .. }) {
                        let cause = "it says that a request is done, and not what came of it";
                        return Err(LinkError::Wrong(cause));
                    }
                    request.is_answered = true;
                }
            }
            Frame::Value { value } => {
                let request = self.next_by_peer()?;
                let Expected::Word(address) = request.expected else {
                    return Err(LinkError::Wrong("it answers with a word what did not ask for one"));
                };
                request.is_answered = true;
                // SAFETY: a word of a response in the queue's memory, which is freed behind the thread of the
                // links.
                unsafe { word(address) }.store(value, Ordering::Release);
            }
            Frame::Data { bytes } => {
                let landed = self.path.next_arrived(Bounce::Data);
                let request = self.next_by_peer()?;
                let range = match &request.expected {
                    Expected::Data(range, expected) if *expected == bytes => range,
                    _ => return Err(LinkError::Wrong("it answers with other bytes than were asked for")),
                };
                request.after = arrive(range, landed, bytes.into(), copies)?;
                request.is_answered = true;
            }
            Frame::Put { bytes, .. } => {
                if let Some(range) = target.put(frame, parts)? {
                    let landed = self.path.next_arrived(Bounce::Put);
                    let mark = arrive(&range, landed, bytes.into(), copies)?;
                    target.payload_arrived(mark, range);
                }
            }
            _ => target.request(frame, parts, copies)?,
        }
        Ok(())
    }

    /// The first request that the peer has to answer.
    fn next_by_peer(&mut self) -> Result<&mut InFlight, LinkError> {
        let number = self.by_peer.pop_front();
        let at = number.map(|number| (number - self.first) as usize);
        at.and_then(|at| self.in_flight.get_mut(at)).ok_or(LinkError::Wrong("it answers what was not asked"))
    }

    /// Tells the link what is done. Whether there was anything.
    fn complete(&mut self, link: &Link, copies: &Copies) -> bool {
        let mut count = 0;
        while let Some(first) = self.in_flight.front() {
            let is_answered = match first.expected {
                Expected::Flushed(number) => self.flushes[1] >= number,
                _ => first.is_answered,
            };
            if !is_answered || !copies.is_passed(first.after) {
                break;
            }
            match first.expected {
                Expected::Done { has_slot } => self.puts -= usize::from(has_slot),
                Expected::Data(..) => self.gets -= 1,
                Expected::Staged(..) => self.arrivals.free_first(),
                _ => {}
            }
            self.in_flight.pop_front();
            self.first += 1;
            count += 1;
        }
        if count > 0 {
            link.complete(count);
        }
        count > 0
    }

    /// Takes what was posted, and begins to copy payloads that the card does not reach. Whether there was
    /// anything.
    fn prepare(&mut self, link: &Link, parts: &Parts, copies: &mut Copies) -> Result<bool, LinkError> {
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

    /// The first piece of an operation, with the mark behind which it may be posted, and the rest; `None` where
    /// staging memory is missing.
    fn prepare_first(
        &mut self,
        operation: Operation,
        parts: &Parts,
        copies: &mut Copies,
    ) -> Result<Option<Prepared>, LinkError> {
        let find = |position, bytes| parts.find(position, bytes).map_err(|_| LinkError::Freed);
        let max = u64::from(MAX_PAYLOAD);
        Ok(Some(match operation {
            Operation::Put { to, from, bytes } => {
                let piece = bytes.min(max);
                let range = find(from, piece)?;
                let prepared = match range.segment(piece) {
                    Some(source) => (Piece::Put { to, source, held: Some(range) }, 0),
                    None => {
                        let Some(staged) = self.staging.allocate(piece) else { return Ok(None) };
                        let mark = copies.copy(staged, range.address, piece)?;
                        (Piece::Put { to, source: self.path.staged(staged, piece), held: None }, mark)
                    }
                };
                let rest =
                    Operation::Put { to: after(to, piece), from: after(from, piece), bytes: bytes - piece };
                (prepared, (bytes > piece).then_some(rest))
            }
            Operation::Get { from, to, bytes } => {
                let piece = bytes.min(max);
                let range = find(to, piece)?;
                let rest =
                    Operation::Get { from: after(from, piece), to: after(to, piece), bytes: bytes - piece };
                ((Piece::Get { from, to: range, bytes: piece }, 0), (bytes > piece).then_some(rest))
            }
            other => ((Piece::Other(other), 0), None),
        }))
    }

    /// Posts what may be. Whether there was anything.
    fn post(&mut self, copies: &Copies) -> Result<bool, LinkError> {
        let mut did = false;
        while self.in_flight.len() < MAX_IN_FLIGHT
            && self.path.has_capacity()
            && self.prepared.front().is_some_and(|(_, mark)| copies.is_passed(*mark))
        {
            let Some((piece, mark)) = self.prepared.pop_front() else { break };
            if let Some(piece) = self.post_piece(piece)? {
                self.prepared.push_front((piece, mark));
                break;
            }
            did = true;
        }
        if self.path.is_unflushed() && self.path.has_capacity() {
            did |= self.flush()?;
        }
        Ok(did)
    }

    /// Has the card say when what was written to the peer's GPU has arrived.
    fn flush(&mut self) -> Result<bool, LinkError> {
        let is_needed = self.path.flush()?;
        self.flushes[0] += u64::from(is_needed);
        Ok(is_needed)
    }

    fn expect(&mut self, expected: Expected) {
        if matches!(expected, Expected::Done { .. } | Expected::Data(..) | Expected::Word(_)) {
            self.by_peer.push_back(self.next_number());
        }
        self.in_flight.push_back(InFlight { expected, is_answered: false, after: 0 });
    }

    fn next_number(&self) -> u64 {
        self.first + self.in_flight.len() as u64
    }

    /// What a write waits for.
    fn of_write(&self, in_host: bool) -> Expected {
        if in_host { Expected::Completion } else { Expected::Flushed(self.flushes[0] + 1) }
    }

    /// Posts a piece, or returns it where it has to wait.
    fn post_piece(&mut self, piece: Piece) -> Result<Option<Piece>, LinkError> {
        let number = self.next_number();
        match piece {
            Piece::Put { to, source, held } => {
                let is_staged = held.is_none();
                if let Some((remote, in_host)) = self.path.find(to, source.length.into())? {
                    let number = in_host.then_some(number);
                    let effect = match (is_staged, number) {
                        (true, number) => Effect::Staged(number),
                        (false, Some(number)) => Effect::Completes(number),
                        (false, None) => Effect::None,
                    };
                    self.path.write((remote, in_host), source, effect, held)?;
                    self.expect(self.of_write(in_host));
                    return Ok(None);
                }
                if self.puts == BOUNCE_SLOTS {
                    return Ok(Some(Piece::Put { to, source, held }));
                }
                self.puts += 1;
                let slot = self.path.next_bounce(Bounce::Put);
                let effect = if is_staged { Effect::Staged(None) } else { Effect::None };
                self.path.write((slot, true), source, effect, held)?;
                self.send(&Frame::Put { to, bytes: source.length })?;
                self.expect(Expected::Done { has_slot: true });
            }
            Piece::Get { from, to, bytes } => {
                if let Some((remote, _)) = self.path.find(from, bytes)? {
                    let (segment, expected, held) = match to.segment(bytes) {
                        Some(segment) => (segment, Expected::Completion, Some(to)),
                        None => {
                            let Some(staged) = self.arrivals.allocate(bytes) else {
                                return Ok(Some(Piece::Get { from, to, bytes }));
                            };
                            (self.path.staged(staged, bytes), Expected::Staged(to, staged, bytes), None)
                        }
                    };
                    self.path.read(remote, segment, number, held)?;
                    self.expect(expected);
                    return Ok(None);
                }
                if self.gets == BOUNCE_SLOTS {
                    return Ok(Some(Piece::Get { from, to, bytes }));
                }
                self.gets += 1;
                self.send(&Frame::Get { from, bytes: bytes as u32 })?;
                self.expect(Expected::Data(to, bytes as u32));
            }
            Piece::Other(operation) => self.post_other(operation, number)?,
        }
        Ok(None)
    }

    fn post_other(&mut self, operation: Operation, number: u64) -> Result<(), LinkError> {
        match operation {
            Operation::Store { to, value } => match self.path.find(to, 8)? {
                Some((remote, in_host)) => {
                    self.path.write_word((remote, in_host), value, false, number)?;
                    self.expect(self.of_write(in_host));
                }
                None => {
                    self.send(&Frame::Store { to, value })?;
                    self.expect(Expected::Done { has_slot: false });
                }
            },
            Operation::Signal { to, value, adds } => match self.path.find(to, 8)? {
                // What the peer's proxy does is not done when the card has written. A word of a GPU its owner
                // alone sets, who may be changing it.
                Some((remote, true)) if !adds && self.by_peer.is_empty() => {
                    self.order();
                    self.path.write_word((remote, true), value, true, number)?;
                    self.expect(Expected::Completion);
                }
                _ => {
                    self.send(&Frame::Signal { to, value, adds })?;
                    self.expect(Expected::Done { has_slot: false });
                }
            },
            Operation::Atomic { to, operation, value, operand, brought } => {
                self.send(&Frame::Atomic { to, operation, value, operand })?;
                self.expect(Expected::Word(brought));
            }
            // Made into pieces before.
            Operation::Put { .. } | Operation::Get { .. } => {}
        }
        Ok(())
    }

    /// Counts the flush that the path posts in front of what comes behind all before it.
    fn order(&mut self) {
        self.flushes[0] += u64::from(self.path.is_unflushed());
    }

    fn send(&mut self, frame: &Frame) -> Result<(), LinkError> {
        self.order();
        self.path.send(frame)
    }

    /// Answers what is done. Whether there was anything.
    fn reply(&mut self, target: &mut Target, copies: &Copies) -> Result<bool, LinkError> {
        let mut did = false;
        while self.path.has_capacity() {
            if let Some(done) = target.next_done() {
                self.send(&done)?;
            } else if let Some((frame, payload)) = target.next(copies) {
                if let Some(payload) = payload {
                    let segment = self.path.reply(&payload);
                    let slot = self.path.next_bounce(Bounce::Data);
                    self.path.write((slot, true), segment, Effect::Replied(payload), None)?;
                }
                self.send(&frame)?;
            } else {
                break;
            }
            did = true;
        }
        Ok(did)
    }
}

/// Copies a payload from a bounce slot to where it belongs; the mark behind that.
fn arrive(range: &PartRange, landed: u64, bytes: u64, copies: &mut Copies) -> Result<u64, LinkError> {
    if range.part.in_host {
        // SAFETY: a slot of so many bytes, and a range of a part, which is held. That nobody else writes it
        // meanwhile is for the programs to see to, as with any put.
        unsafe {
            core::ptr::copy_nonoverlapping(landed as *const u8, range.address as *mut u8, bytes as usize)
        };
        return Ok(0);
    }
    Ok(copies.copy_from_host(range.address, landed, bytes)?)
}
