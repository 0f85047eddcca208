//! Who looks for completions, and what follows from them?
//!
//! All queue pairs of a link have one completion queue. Whoever waits for something looks there: the thread that receives frames, a
//! sender that has no credits, and, while the receiver is busy with a command, a thread of ours now and then. Looking is
//! done by one of them at a time; what the others find, they find in what that one has put down.

use std::sync::atomic::Ordering;

use causeway_verbs::{Completion, Outcome, Receive};
use causeway_wire::chunk::{ChunkError, ChunkHeader};
use parking_lot::MutexGuard;

use super::credit::Class;
use super::ends::{RECEIVE_MARK, ReceiveLayout};
use super::message::{Announcement, HEADER, Header, Kind, parse_returns};
use super::messages::Filled;
use super::parts::Joins;
use super::path::Path;
use super::pieces::slots_for;
use super::state::State;
use super::{Failure, Violation};
use crate::link::LinkError;
use crate::shm::layout::LARGEST_PIECE;
use crate::staging::Lease;

/// Completions that are taken at a time.
pub const AT_ONCE: usize = 32;

/// The one who looks.
pub struct Looking {
    completions: [Completion; AT_ONCE],
    joins: Joins,
    /// For each path: receives to be posted again, and of what they were.
    again: Vec<Vec<(Receive, Was)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Was {
    Control,
    Extra,
    Hello,
}

impl Looking {
    /// Nobody has looked yet, on so many paths.
    pub fn new(paths: usize) -> Self {
        let completions = [Completion::default(); AT_ONCE];
        Self { completions, joins: Joins::default(), again: (0..paths).map(|_| Vec::new()).collect() }
    }
}

impl State {
    /// Looks for completions, unless somebody does. Whether there were any.
    pub fn look(&self) -> bool {
        self.looking.try_lock().is_some_and(|looking| self.look_as(looking))
    }

    /// Looks for completions, after whoever does. Whether there were any.
    pub(super) fn look_in_turn(&self) -> bool {
        self.look_as(self.looking.lock())
    }

    fn look_as(&self, mut looking: MutexGuard<'_, Looking>) -> bool {
        let Looking { completions, joins, again } = &mut *looking;
        let count = match self.completions.poll(completions) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) => {
                self.fail(Failure::Device(error.to_string()).into());
                return true;
            }
        };
        let is_flushed = |completion: &&Completion| {
            completion.id() & RECEIVE_MARK != 0 && !completion.status().is_success()
        };
        let flushed = completions[..count].iter().filter(is_flushed).count();
        self.flushed.fetch_add(flushed as u32, Ordering::Relaxed);
        let mut pieces = Vec::new();
        for completion in &completions[..count] {
            if let Err(error) = self.deal_with(completion, joins, again, &mut pieces) {
                drop(looking);
                self.fail(error);
                return true;
            }
        }
        let posted =
            again.iter_mut().zip(&self.paths).try_for_each(|(again, path)| self.post_again(path, again));
        drop(looking);
        if let Err(failure) = posted {
            self.fail(failure.into());
        }
        for (chunk, lease) in pieces {
            if let Err(error) = self.hand_over(chunk, lease) {
                self.fail(error);
            }
        }
        self.pump();
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _held = self.changed.0.lock();
            self.changed.1.notify_all();
        }
        true
    }

    fn deal_with(
        &self,
        completion: &Completion,
        joins: &mut Joins,
        again: &mut [Vec<(Receive, Was)>],
        pieces: &mut Vec<(ChunkHeader, Lease)>,
    ) -> Result<(), LinkError> {
        if !completion.status().is_success() {
            return Err(Failure::Request(completion.status()).into());
        }
        let number = completion.queue_pair();
        let index = self.paths.iter().position(|path| path.pair().number() == number);
        let index = index.ok_or(Failure::Violation(Violation::Completion))?;
        let path = &self.paths[index];
        if completion.id() & RECEIVE_MARK == 0 {
            return Ok(path.complete(completion.id())?);
        }
        // A write with an immediate number would take up a receive, too; no honest peer makes one.
        if completion.outcome() != Outcome::Received {
            return Err(Failure::Violation(Violation::Message).into());
        }
        let receive = (completion.id() & !RECEIVE_MARK) as usize;
        let start = ReceiveLayout::new(self.depth).offset(index, receive);
        let length = (completion.length() as usize).min(ReceiveLayout::size(index));
        // SAFETY: the receive lies in the buffer, and its bytes are ours from its completion until it is posted again.
        let bytes = unsafe { core::slice::from_raw_parts(self.receives.as_ptr().add(start), length) };
        let (header, content) = Header::parse(bytes).map_err(Failure::from)?;
        path.accept(&header)?;
        let was = match header.kind {
            Kind::Frame if index == 0 => {
                let filled = Filled { receive, at: start + HEADER, end: start + length };
                self.incoming.lock().push_back(filled);
                return Ok(());
            }
            Kind::Frame => return Err(Failure::Violation(Violation::Message).into()),
            Kind::Announcement => {
                let announcement = Announcement::parse(content).map_err(Failure::from)?;
                pieces.extend(self.announced(announcement, joins)?);
                Was::Control
            }
            Kind::Returns => {
                let mut lent = self.lent.lock();
                for first in parse_returns(content).map_err(Failure::from)? {
                    let taken = lent.take_back(first.into());
                    taken.map_err(|_| Failure::Violation(Violation::NotLent(first)))?;
                }
                Was::Control
            }
            Kind::Credits => Was::Extra,
            Kind::Hello => {
                self.hellos.fetch_add(1, Ordering::Relaxed);
                Was::Hello
            }
        };
        again[index].push((self.receive(index, receive), was));
        Ok(())
    }

    /// A receive, to be posted again.
    pub(super) fn receive(&self, path: usize, receive: usize) -> Receive {
        let offset = ReceiveLayout::new(self.depth).offset(path, receive);
        let segment = self.receives.region().segment(offset, ReceiveLayout::size(path));
        Receive { id: RECEIVE_MARK | receive as u64, segment }
    }

    fn post_again(&self, path: &Path, again: &mut Vec<(Receive, Was)>) -> Result<(), Failure> {
        if again.is_empty() {
            return Ok(());
        }
        let mut receives = [self.receive(0, 0); AT_ONCE];
        for (place, (receive, _)) in receives.iter_mut().zip(&*again) {
            *place = *receive;
        }
        // SAFETY: what lay in these receives has been dealt with.
        let posted = unsafe { path.pair().post_receives(&receives[..again.len()]) };
        posted.map_err(|error| Failure::Device(error.to_string()))?;
        for (_, was) in again.drain(..) {
            match was {
                Was::Control => {
                    path.posted_again(Class::Control, 1);
                }
                Was::Extra => path.extra_came(),
                Was::Hello => {}
            }
        }
        Ok(())
    }

    /// A part of a piece has come: the piece, when all of it has.
    fn announced(
        &self,
        announcement: Announcement,
        joins: &mut Joins,
    ) -> Result<Option<(ChunkHeader, Lease)>, LinkError> {
        let Announcement { chunk: ChunkHeader { length, total, offset, transfer }, first, .. } = announcement;
        let slots = slots_for(length as usize);
        let is_inside =
            first < self.arena_slots && slots <= self.arena_slots - first && length as usize <= LARGEST_PIECE;
        if !is_inside {
            return Err(Failure::Violation(Violation::Piece { slot: first, length }).into());
        }
        if offset.checked_add(length.into()).is_none_or(|end| end > total) {
            return Err(ChunkError::BeyondEnd { offset, length, total }.into());
        }
        if length == 0 && total > 0 {
            return Err(ChunkError::Empty(transfer).into());
        }
        match joins.came(announcement).map_err(Failure::from)? {
            Some(chunk) => Ok(Some((chunk, self.lease(first, length)?))),
            None => Ok(None),
        }
    }
}
