//! Completion queue polling: dispatch of what it finds, and waiting with backoff and sleep.
//!
//! All queue pairs of a link have one completion queue. Whoever waits for something polls it: the thread
//! that receives frames, a sender that has no credits, and, while the receiver is busy with a command, a
//! thread of ours now and then. PollState is done by one of them at a time; what the others find, they find
//! in what that one has put down.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_ibverbs::{Completion, Receive};
use causeway_sync::WakeReason;
use causeway_transport::LinkError;
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Lease;
use causeway_wire::chunk::ChunkHeader;
use parking_lot::MutexGuard;

use crate::credit::Class;
use crate::endpoint::RECEIVE_MARK;
use crate::error::Failure;
use crate::path::Path;
use crate::poll_state::{AT_ONCE, PollState, RETURNS_WAIT, ReceiveKind};
use crate::receive_completion::Found;
use crate::state::State;

/// How often the [fallback poller](crate::poll_state) polls.
const EVERY: Duration = Duration::from_millis(1);

/// Times in a row that the fallback poller finds the receiver polling, after which it parks.
const MANY_TIMES: u32 = 64;

/// What is released while a thread polls goes to the peer when it is so much, or an eighth of the slots.
/// Otherwise it goes with what is posted next, or before the thread sleeps: a message for each short piece
/// would cost as much as the piece.
const RETURNS_AT_ONCE: usize = 24;

impl State {
    /// Polls for completions, unless somebody does. Whether there were any.
    pub fn poll(&self) -> bool {
        self.poll_state.try_lock().is_some_and(|state| self.poll_as(state))
    }

    /// Polls for completions, after whoever does. Whether there were any.
    fn poll_exclusively(&self) -> bool {
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

/// How long a thread that waits, for credits for instance, sleeps before it polls by itself: usually another
/// one polls, and wakes it. Each time in vain is twice as long, so that a peer which stands still for a while
/// costs no processor time.
const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(64);
/// How long the receiver of frames sleeps before it polls whether the link still is there. Whatever ends it
/// wakes the receiver.
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// Looks between two readings of the clock, which is a system call on some machines and costs more than a
/// poll.
const POLLS: u32 = 32;

/// Looks in vain, some 200 us, after which what is owed to the peer is sent by itself.
const MANY_POLLS: u32 = 64 * POLLS;

/// How long a thread has looked in vain.
#[derive(Default)]
pub struct PollBackoff {
    polls: u32,
    since: Option<Instant>,
}

impl PollBackoff {
    /// Whether the wait has just become long: whoever waits for what this thread keeps must not wait for
    /// ever.
    pub fn is_long(&self) -> bool {
        self.polls == MANY_POLLS
    }

    /// Takes note of one more poll; whether it is too early to sleep.
    pub fn may_continue(&mut self, spin_time: Duration) -> bool {
        if spin_time.is_zero() {
            return false;
        }
        self.polls = self.polls.wrapping_add(1);
        if !self.polls.is_multiple_of(POLLS) {
            core::hint::spin_loop();
            return true;
        }
        // Who is to bring what is looked for may need this very processor.
        std::thread::yield_now();
        self.since.get_or_insert_with(Instant::now).elapsed() < spin_time
    }
}

impl State {
    /// Waits until `ready` finds something, polling for completions meanwhile. An error when the link ends
    /// first.
    pub fn wait_for<T>(
        &self,
        mut ready: impl FnMut() -> Result<Option<T>, LinkError>,
    ) -> Result<T, LinkError> {
        let mut in_vain = PollBackoff::default();
        let mut has_found = false;
        let mut backoff = MIN_BACKOFF;
        loop {
            // Read before anything is asked for: what another thread finds from here on is not slept over.
            let key = self.polled.key();
            self.check()?;
            if let Some(found) = ready()? {
                if has_found {
                    self.release_pending();
                }
                return Ok(found);
            }
            if self.poll() {
                has_found = true;
                in_vain = PollBackoff::default();
                backoff = MIN_BACKOFF;
            } else if !in_vain.may_continue(self.poll) {
                self.release_pending();
                let has_changed = self.polled.wait_for(key, backoff);
                backoff = if has_changed { MIN_BACKOFF } else { MAX_BACKOFF.min(2 * backoff) };
            }
        }
    }

    /// How long the receiver polls before it sleeps.
    pub fn spin_time(&self) -> Duration {
        self.poll
    }

    /// Sleeps until a completion comes, the link ends or somebody calls, or for no reason; whether somebody
    /// has called.
    pub fn sleep(&self) -> Result<bool, LinkError> {
        let failed = |error: io::Error| LinkError::from(Failure::Device(error.to_string()));
        self.completions.request_event().map_err(failed)?;
        // A completion that came before the question causes no event, and another thread may hold some that
        // it has taken out.
        if self.poll_exclusively() || self.has_frames() || self.is_over() {
            return Ok(false);
        }
        let descriptor = self.completions.descriptor();
        let woken = self.receiver_wake.park(descriptor, MAX_SLEEP);
        while self.completions.take_event().map_err(failed)? {}
        Ok(woken == WakeReason::Woken)
    }
}
