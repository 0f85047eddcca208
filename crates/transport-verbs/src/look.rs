//! Who looks for completions, and when is what came told?
//!
//! All queue pairs of a link have one completion queue. Whoever waits for something looks there: the thread
//! that receives frames, a sender that has no credits, and, while the receiver is busy with a command, a
//! thread of ours now and then. Looking is done by one of them at a time; what the others find, they find in
//! what that one has put down.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Completion, Receive};
use causeway_wire::chunk::ChunkHeader;
use parking_lot::MutexGuard;

use super::Failure;
use super::come::{Found, Was};
use super::credit::Class;
use super::ends::{RECEIVE_MARK, ReceiveLayout};
use super::parts::Joins;
use super::path::Path;
use super::state::State;
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Lease;

/// Completions that are taken at a time.
pub const AT_ONCE: usize = 32;

/// What is given back while a thread looks goes to the peer when it is so much, or an eighth of the slots.
/// Otherwise it goes with what is posted next, or before the thread sleeps: a message for each short piece
/// would cost as much as the piece.
const RETURNS_AT_ONCE: usize = 24;

thread_local! {
    /// Whether this thread looks, and will see to what is given back meanwhile.
    pub(super) static RETURNS_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// The one who looks.
pub struct Looking {
    completions: [Completion; AT_ONCE],
    joins: Joins,
    /// Those of transfers that come where they belong.
    placed: Joins,
    /// For each path: receives to be posted again, and of what they were.
    again: Vec<Vec<(Receive, Was)>>,
}

impl Looking {
    /// Nobody has looked yet, on so many paths.
    pub fn new(paths: usize) -> Self {
        let completions = [Completion::default(); AT_ONCE];
        let (joins, placed) = Default::default();
        Self { completions, joins, placed, again: (0..paths).map(|_| Vec::new()).collect() }
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
        let Looking { completions, joins, placed, again } = &mut *looking;
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
        let mut found = Found::default();
        for completion in &completions[..count] {
            if let Err(error) = self.deal_with(completion, [&mut *joins, &mut *placed], again, &mut found) {
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
        let is_long = |(chunk, _): &(ChunkHeader, Lease)| chunk.length as usize > SLOT;
        let has_long = found.pieces.iter().any(is_long);
        RETURNS_WAIT.set(true);
        self.follow(found);
        RETURNS_WAIT.set(false);
        let many = RETURNS_AT_ONCE.min(self.arena_slots as usize / 8).max(1);
        self.pump_with(has_long || self.returns.lock().len() >= many);
        self.polled.notify_all();
        true
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
}
