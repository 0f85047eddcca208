//! Completion queue polling, and dispatch of what it finds.
//!
//! All queue pairs of a link have one completion queue. Whoever waits for something polls it: the thread
//! that receives frames, a sender that has no credits, and, while the receiver is busy with a command, a
//! thread of ours now and then. PollState is done by one of them at a time; what the others find, they find
//! in what that one has put down.

use std::sync::atomic::Ordering;
use std::time::Duration;

use causeway_ibverbs::{Completion, Receive};
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Lease;
use causeway_wire::chunk::ChunkHeader;
use parking_lot::MutexGuard;

use crate::credit::Class;
use crate::endpoint::RECEIVE_MARK;
use crate::failure::Failure;
use crate::path::Path;
use crate::poll_state::{AT_ONCE, PollState, RETURNS_WAIT, ReceiveKind};
use crate::receive_completion::Found;
use crate::state::State;

/// How often the [fallback poller](crate::fallback_poller) polls.
const EVERY: Duration = Duration::from_millis(1);

/// Times in a row that the fallback poller finds the receiver polling, after which it parks.
const MANY_TIMES: u32 = 64;

/// What is given back while a thread polls goes to the peer when it is so much, or an eighth of the slots.
/// Otherwise it goes with what is posted next, or before the thread sleeps: a message for each short piece
/// would cost as much as the piece.
const RETURNS_AT_ONCE: usize = 24;

impl State {
    /// Polls for completions, unless somebody does. Whether there were any.
    pub fn poll(&self) -> bool {
        self.poll_state.try_lock().is_some_and(|state| self.poll_as(state))
    }

    /// Polls for completions, after whoever does. Whether there were any.
    pub(super) fn poll_exclusively(&self) -> bool {
        self.poll_as(self.poll_state.lock())
    }

    fn poll_as(&self, mut poll_state: MutexGuard<'_, PollState>) -> bool {
        let PollState { completions, partial, placed, again } = &mut *poll_state;
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
            if let Err(error) = self.deal_with(completion, [&mut *partial, &mut *placed], again, &mut found) {
                drop(poll_state);
                self.fail(error);
                return true;
            }
        }
        let posted =
            again.iter_mut().zip(&self.paths).try_for_each(|(again, path)| self.post_again(path, again));
        drop(poll_state);
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

    fn post_again(&self, path: &Path, again: &mut Vec<(Receive, ReceiveKind)>) -> Result<(), Failure> {
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
        for (_, kind) in again.drain(..) {
            match kind {
                ReceiveKind::Control => {
                    path.posted_again(Class::Control, 1);
                }
                ReceiveKind::CreditUpdate => path.credit_update_received(),
                ReceiveKind::Hello => {}
            }
        }
        Ok(())
    }

    /// Polls for completions while the receiver of frames is busy, until the link ends.
    pub(super) fn fallback_poller(&self) {
        let mut times = 0;
        while !self.is_over() {
            std::thread::sleep(EVERY);
            if !self.fallback_poller.is_attended() {
                times = 0;
                while self.poll() {}
                self.release_pending();
            } else if times < MANY_TIMES {
                times += 1;
            } else {
                times = 0;
                self.fallback_poller.park(|| self.is_over());
            }
        }
    }
}
