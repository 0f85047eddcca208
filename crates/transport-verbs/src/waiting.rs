//! Waiting for completions: polling, backoff and sleep.

use std::io;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::state::State;
use causeway_sync::WakeReason;
use causeway_transport::LinkError;

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
