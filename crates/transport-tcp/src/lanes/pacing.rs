//! Pauses of threads that carry transfers at a rate.
//!
//! A thread pauses after what it has carried and before it takes anything else, and before its first piece for what earlier
//! links have carried. A thread that sends holds no lane meanwhile: what shows the peer that this end is there goes out on
//! it. One that receives keeps its lane: what comes stays in the kernel until the peer's own kernel holds it back,
//! acknowledgements behind pieces included.

use std::time::{Duration, Instant};

use causeway_sync::face::MutexGuard;
use causeway_transport::{Direction, Shared};

use super::{LaneState, Lanes};

/// A pause has parts, between which is looked whether it is over.
const MAX_PAUSE_SLICE: Duration = Duration::from_millis(250);

impl Lanes {
    /// Waits as long as the pacer of the link says after so many bytes, or until the link has ended, or `is_over`, which is
    /// asked now and then.
    pub(super) fn pace(
        &self,
        link: &Shared,
        direction: Direction,
        bytes: usize,
        mut is_over: impl FnMut() -> bool,
    ) {
        let mut left = link.pause(direction, bytes);
        while !left.is_zero() {
            let (started_at, part) = (Instant::now(), left.min(MAX_PAUSE_SLICE));
            if self.has_ended_within(part) || is_over() {
                return;
            }
            left = left.saturating_sub(started_at.elapsed());
            if !left.is_zero() {
                // Sooner where the rate has become higher. What others have carried meanwhile they wait for.
                left = left.min(link.pause(direction, 0));
            }
        }
    }

    /// Waits; whether the link has ended.
    fn has_ended_within(&self, time: Duration) -> bool {
        let started_at = Instant::now();
        let mut state = self.0.state.lock();
        while !state.over {
            let left = time.saturating_sub(started_at.elapsed());
            if left.is_zero() {
                break;
            }
            self.0.end.wait_for(&mut state, left);
        }
        state.over
    }

    /// Waits before the first piece of all that is sent, for what earlier links have sent; whether it has, so that all else
    /// is to be looked at again.
    pub(super) fn waits_before_first(&self, link: &Shared, state: &mut MutexGuard<'_, LaneState>) -> bool {
        if state.may_send || !state.schedule.has_order() {
            return false;
        }
        MutexGuard::unlocked(state, || self.pace(link, Direction::Sent, 0, || false));
        state.may_send = true;
        true
    }
}
