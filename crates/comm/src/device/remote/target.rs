//! Target of a link: does what a peer's proxies ask of this rank, and answers.
//!
//! Payloads and stores go to the GPU as soon as they come, and so do signals that set a word of its memory
//! where nothing came before that the lane does not have: the lane keeps their order. All else is done when it
//! is the first that is not done yet, behind what the peer asked for before.

use core::sync::atomic::Ordering;
use std::collections::VecDeque;

use super::frame::{Frame, MAX_IN_FLIGHT};
use super::lanes::{Copies, word};
use super::parts::{PartRange, Parts};
use super::stream::Payload;
use crate::device::remote::lanes::Ring;
use crate::device::remote::stream::LinkError;
use crate::device::request::Atomic;

/// How far a change of a word of the GPU's memory is.
#[derive(Debug, Clone, Copy)]
enum Change {
    New,
    /// The word is read behind this mark.
    Reading(u64),
    /// It is written behind this mark, and was this before.
    Writing(u64, u64),
}

/// A request that is not answered yet.
#[derive(Debug)]
enum Work {
    /// Done behind a mark. The memory stays until then.
    Marked { after: u64, _held: PartRange },
    /// A word of the GPU's memory is written.
    Set { range: PartRange, value: u64 },
    /// A word of the host's memory is written, or counted up.
    Signal { range: PartRange, value: u64, adds: bool },
    /// A word of the host's memory is read and perhaps changed.
    Atomic { range: PartRange, operation: Atomic, value: u64, operand: u64 },
    /// The same in the GPU's memory; `replies` is not so for a signal.
    Change { range: PartRange, operation: Atomic, value: u64, operand: u64, replies: bool, state: Change },
    /// What is to be answered.
    Answered(u64),
    /// Bytes are to be sent; of the GPU's memory from staging memory, behind a mark. A word is answered.
    Read { range: PartRange, bytes: u64, staged: Option<(u64, u64)>, is_word: bool },
    /// They are being written.
    Sending,
}

/// The requests of the peer of one link.
#[derive(Debug)]
pub struct Target {
    work: VecDeque<Work>,
    /// Requests that are done and not answered.
    done: u32,
    /// Reads of the GPU's memory that have no staging memory yet.
    unstaged: usize,
    staging: Ring,
}

impl Target {
    /// None yet.
    pub fn new(staging: Ring) -> Self {
        Self { work: VecDeque::new(), done: 0, unstaged: 0, staging }
    }

    /// Whether all is answered.
    pub fn is_idle(&self) -> bool {
        self.work.is_empty() && self.done == 0
    }

    /// Where a payload goes.
    ///
    /// # Errors
    /// When the bytes do not lie in a window, or the peer asks for too much at a time.
    pub fn put(&self, frame: &Frame, parts: &Parts) -> Result<Option<PartRange>, LinkError> {
        self.must_have_capacity()?;
        let Frame::Put { to, bytes } = *frame else { return Ok(None) };
        parts.find(to, u64::from(bytes)).map(Some).map_err(LinkError::refused)
    }

    /// A payload has come, and is in the window behind a mark.
    pub fn payload_arrived(&mut self, after: u64, range: PartRange) {
        self.work.push_back(Work::Marked { after, _held: range });
    }

    fn must_have_capacity(&self) -> Result<(), LinkError> {
        if self.work.len() + self.done as usize >= MAX_IN_FLIGHT {
            return Err(LinkError::Wrong("it asks for more at a time than it may"));
        }
        Ok(())
    }

    /// Takes a request without a payload.
    ///
    /// # Errors
    /// When it is none, or its position is none of this rank's, or the driver refuses.
    pub fn request(&mut self, frame: &Frame, parts: &Parts, copies: &mut Copies) -> Result<(), LinkError> {
        self.must_have_capacity()?;
        let find_word = |position| parts.find_word(position).map_err(LinkError::refused);
        let work = match *frame {
            Frame::Store { to, value } => {
                let range = find_word(to)?;
                if range.part.in_host {
                    // SAFETY: a word of the range, whose part is kept.
                    unsafe { word(range.address) }.store(value, Ordering::Relaxed);
                    Work::Marked { after: 0, _held: range }
                } else {
                    Work::Marked { after: copies.set(range.address, value)?, _held: range }
                }
            }
            Frame::Signal { to, value, adds } => {
                let range = find_word(to)?;
                match (range.part.in_host, adds) {
                    (true, _) => Work::Signal { range, value, adds },
                    // The lane has all that came before, and no word is between its reading and its writing.
                    (false, false) if self.lane_has_all() && !copies.is_changing => {
                        Work::Marked { after: copies.set(range.address, value)?, _held: range }
                    }
                    (false, false) => Work::Set { range, value },
                    (false, true) => Work::Change {
                        range,
                        operation: Atomic::Add,
                        value,
                        operand: 0,
                        replies: false,
                        state: Change::New,
                    },
                }
            }
            Frame::Atomic { to, operation, value, operand } => {
                let range = find_word(to)?;
                if range.part.in_host {
                    Work::Atomic { range, operation, value, operand }
                } else if operation == Atomic::Fetch {
                    self.unstaged += 1;
                    Work::Read { range, bytes: 8, staged: None, is_word: true }
                } else {
                    Work::Change { range, operation, value, operand, replies: true, state: Change::New }
                }
            }
            Frame::Get { from, bytes } => {
                let bytes = u64::from(bytes);
                let range = parts.find(from, bytes).map_err(LinkError::refused)?;
                self.unstaged += usize::from(!range.part.in_host);
                Work::Read { range, bytes, staged: None, is_word: false }
            }
            _ => return Err(LinkError::Wrong("it sends a frame that is not a request")),
        };
        self.work.push_back(work);
        Ok(())
    }

    /// Whether all that is not done only waits for the lane.
    fn lane_has_all(&self) -> bool {
        self.work.iter().all(|work| matches!(work, Work::Marked { .. }))
    }

    /// Does what can be done. Whether there was anything.
    ///
    /// # Errors
    /// What the driver says.
    pub fn advance(&mut self, copies: &mut Copies) -> Result<bool, LinkError> {
        let mut did = self.stage(copies)?;
        while let Some(first) = self.work.front_mut() {
            match first {
                Work::Marked { after, .. } if copies.is_passed(*after) => {}
                // What another peer changes would be written over it.
                Work::Set { .. } if copies.is_changing => break,
                Work::Set { range, value } => {
                    let mark = copies.set(range.address, *value)?;
                    *first = Work::Marked { after: mark, _held: range.clone() };
                    did = true;
                    continue;
                }
                Work::Signal { range, value, adds } => {
                    // SAFETY: a word of the range, whose part is kept.
                    let word = unsafe { word(range.address) };
                    // Released: what came before is there when it is.
                    if *adds {
                        word.fetch_add(*value, Ordering::Release);
                    } else {
                        word.store(*value, Ordering::Release);
                    }
                }
                Work::Atomic { range, operation, value, operand } => {
                    // SAFETY: a word of the range, whose part is kept.
                    let word = unsafe { word(range.address) };
                    let before = match operation {
                        Atomic::Add => word.fetch_add(*value, Ordering::AcqRel),
                        Atomic::CompareAndSwap => {
                            let swapped =
                                word.compare_exchange(*operand, *value, Ordering::AcqRel, Ordering::Acquire);
                            swapped.unwrap_or_else(|found| found)
                        }
                        Atomic::Fetch => word.load(Ordering::Acquire),
                    };
                    *first = Work::Answered(before);
                    return Ok(true);
                }
                Work::Change { range, operation, value, operand, replies, state } => match *state {
                    Change::New if copies.is_changing => break,
                    Change::New => {
                        copies.is_changing = true;
                        *state = Change::Reading(copies.copy(copies.word, range.address, 8)?);
                        return Ok(true);
                    }
                    Change::Reading(mark) if copies.is_passed(mark) => {
                        let before = copies.copied_word();
                        let after = match operation {
                            Atomic::Add => Some(before.wrapping_add(*value)),
                            Atomic::CompareAndSwap => (before == *operand).then_some(*value),
                            Atomic::Fetch => None,
                        };
                        let mark = after.map_or(Ok(0), |after| copies.set(range.address, after))?;
                        *state = Change::Writing(mark, before);
                        // The next one reads the word behind this in the lane.
                        copies.is_changing = false;
                        did = true;
                        continue;
                    }
                    Change::Writing(mark, before) if copies.is_passed(mark) => {
                        if *replies {
                            *first = Work::Answered(before);
                            return Ok(true);
                        }
                    }
                    Change::Reading(_) | Change::Writing(..) => break,
                },
                _ => break,
            }
            self.work.pop_front();
            self.done += 1;
            did = true;
        }
        Ok(did)
    }

    /// Begins to copy what is read of the GPU's memory, in order.
    fn stage(&mut self, copies: &mut Copies) -> Result<bool, LinkError> {
        let mut did = false;
        if self.unstaged == 0 {
            return Ok(did);
        }
        for work in &mut self.work {
            if let Work::Read { range, bytes, staged: staged @ None, .. } = work
                && !range.part.in_host
            {
                let Some(address) = self.staging.allocate(*bytes) else { break };
                *staged = Some((address, copies.copy(address, range.address, *bytes)?));
                self.unstaged -= 1;
                did = true;
            }
        }
        Ok(did)
    }

    /// The next answer, if there is one.
    pub fn next(&mut self, copies: &Copies) -> Option<(Frame, Option<Payload>)> {
        let is_answered = match self.work.front()? {
            Work::Answered(_) => true,
            Work::Read { range, staged: None, .. } => range.part.in_host,
            Work::Read { staged: Some((_, mark)), .. } => copies.is_passed(*mark),
            _ => false,
        };
        if !is_answered {
            return None;
        }
        match self.work.pop_front()? {
            Work::Answered(value) => Some((Frame::Value { value }, None)),
            Work::Read { staged: Some((address, _)), is_word: true, .. } => {
                // SAFETY: a word of staging memory, which is freed behind the thread of the links.
                let value = unsafe { word(address) }.load(Ordering::Acquire);
                self.staging.free_first();
                Some((Frame::Value { value }, None))
            }
            Work::Read { range: PartRange { part, address }, bytes, staged, .. } => {
                self.work.push_front(Work::Sending);
                let (is_staged, address) = (staged.is_some(), staged.map_or(address, |(staged, _)| staged));
                let payload = Payload { address, bytes, part, is_staged, is_reply: true };
                Some((Frame::Data { bytes: bytes as u32 }, Some(payload)))
            }
            other => {
                self.work.push_front(other);
                None
            }
        }
    }

    /// That requests are done which are answered by nothing else: to be asked before [`next`](Self::next).
    pub fn next_done(&mut self) -> Option<Frame> {
        let count = core::mem::take(&mut self.done);
        (count > 0).then_some(Frame::Done { count })
    }

    /// What [`next`](Self::next) gave last has been written.
    pub fn payload_written(&mut self, is_staged: bool) {
        if is_staged {
            self.staging.free_first();
        }
        if matches!(self.work.front(), Some(Work::Sending)) {
            self.work.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;
    use std::sync::Arc;

    use super::*;
    use crate::device::gpu::Block;
    use crate::device::late_lane::LateLane;
    use crate::device::remote::frame::Position;
    use crate::device::remote::parts::Part;

    /// A rank with a word of its GPU's memory in a window, and two peers that ask for it.
    struct Asked {
        memory: Box<[AtomicU64; 8]>,
        lane: LateLane,
        copies: Copies,
        parts: Parts,
        block: Arc<Block>,
        targets: [Target; 2],
    }

    const WORD: Position = Position { window: 1, offset: 0 };

    fn add(value: u64) -> Frame {
        Frame::Signal { to: WORD, value, adds: true }
    }

    fn set(value: u64) -> Frame {
        Frame::Signal { to: WORD, value, adds: false }
    }

    impl Asked {
        fn new() -> Self {
            let memory: Box<[AtomicU64; 8]> = Box::default();
            let at = |index: usize| (&raw const memory[index]) as u64;
            let (lane, parts) = (LateLane::default(), Parts::default());
            let copies = Copies::new(Box::new(lane.clone()), at(1));
            let block = Arc::new(Block { address: at(0), bytes: 8, descriptor: None, owner: Box::new(()) });
            parts.add(1, Part { region: None, memory: Arc::clone(&block), bytes: 8, in_host: false });
            let targets = [2, 4].map(|index| Target::new(Ring::new(at(index), 16)));
            Self { memory, lane, copies, parts, block, targets }
        }

        fn ask(&mut self, peer: usize, frame: &Frame) {
            self.targets[peer].request(frame, &self.parts, &mut self.copies).unwrap();
        }

        fn advance(&mut self) {
            for target in &mut self.targets {
                target.advance(&mut self.copies).unwrap();
            }
        }

        /// What is in the word when all is done that can be without answers.
        fn end(&mut self) -> u64 {
            for _ in 0..16 {
                self.advance();
                self.lane.run();
                self.copies.look();
            }
            self.memory[0].load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_signal_that_sets_comes_behind_gets_and_adds_before_it() {
        let mut asked = Asked::new();
        asked.memory[0].store(7, Ordering::Relaxed);
        asked.ask(0, &Frame::Get { from: WORD, bytes: 8 });
        asked.ask(0, &set(100));
        asked.end();
        let Some((Frame::Data { bytes: 8 }, Some(payload))) = asked.targets[0].next(&asked.copies) else {
            panic!("the get is not answered");
        };
        // SAFETY: a word of the test's staging memory.
        assert_eq!(unsafe { word(payload.address) }.load(Ordering::Relaxed), 7);
        asked.targets[0].payload_written(true);
        assert_eq!(asked.end(), 100);
        asked.ask(0, &add(1));
        asked.ask(0, &set(200));
        asked.ask(0, &set(300));
        asked.ask(0, &add(4));
        assert_eq!(asked.end(), 304);
    }

    #[test]
    fn a_signal_that_sets_is_not_lost_in_another_peers_add() {
        let mut asked = Asked::new();
        asked.ask(0, &add(1));
        // The word is read.
        asked.advance();
        assert!(asked.copies.is_changing);
        asked.ask(1, &set(100));
        assert_eq!(asked.end(), 100);
    }

    #[test]
    fn memory_is_held_until_what_came_is_copied_there() {
        let mut asked = Asked::new();
        let range = asked.parts.find(WORD, 8).unwrap();
        let mark = asked.copies.copy(range.address, range.address, 8).unwrap();
        asked.targets[0].payload_arrived(mark, range);
        asked.parts.remove(WORD.window);
        assert_eq!(Arc::strong_count(&asked.block), 2);
        asked.end();
        assert_eq!(Arc::strong_count(&asked.block), 1);
        assert!(asked.targets[0].next_done().is_some());
    }
}
