//! Pauses of threads that carry transfers at a rate.
//!
//! A thread pauses after what it has carried and before it takes anything else. So no lane is held meanwhile: what shows
//! the peer that this end is there goes out on it, and what comes stays in the kernel until the peer's own kernel holds it
//! back.

use std::time::Instant;

use causeway_transport::{Direction, Shared};

use super::Lanes;

impl Lanes {
    /// Waits as long as the pacer of the link says after so many bytes, or until the link has ended.
    pub(super) fn pace(&self, link: &Shared, direction: Direction, bytes: usize) {
        let pause = link.pause(direction, bytes);
        if pause.is_zero() {
            return;
        }
        let started_at = Instant::now();
        let mut state = self.0.state.lock();
        while !state.over {
            let left = pause.saturating_sub(started_at.elapsed());
            if left.is_zero() {
                break;
            }
            self.0.end.wait_for(&mut state, left);
        }
    }
}
