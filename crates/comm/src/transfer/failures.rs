//! Back-off of failed channels.
//!
//! A channel may fail for reasons that pass: a program frees memory too early, a context is reset, memory or
//! descriptors are short. So nothing is left alone for good: what has failed several times in a row is tried again
//! after a pause, which grows with each failure up to a minute, and at once where there is nothing else.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::channels::Channel;

/// Failures in a row after which a channel is left alone for a while.
const TOLERATED: u32 = 3;

/// The first such pause, and the longest.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// What has failed with a peer.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Channel, Failed>);

#[derive(Debug, Default)]
struct Failed {
    in_a_row: u32,
    pause: Option<Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Failures {
    /// A channel has failed. Of one that `needs_long` to become well again the longest pause is made at once.
    pub(super) fn failed(&mut self, channel: Channel, needs_long: bool, now: Instant) {
        let failed = self.0.entry(channel).or_default();
        failed.in_a_row = failed.in_a_row.saturating_add(1);
        let next = failed.pause.map_or(MIN_PAUSE, |pause| (pause.length * 2).min(MAX_PAUSE));
        let length = if needs_long { MAX_PAUSE } else { next };
        if needs_long || failed.in_a_row >= TOLERATED {
            failed.pause = Some(Pause { until: now + length, length });
        }
    }

    /// It has brought a message.
    pub(super) fn succeeded(&mut self, channel: Channel) {
        self.0.remove(&channel);
    }

    /// Whether it is left alone.
    pub(super) fn is_paused(&self, channel: Channel, now: Instant) -> bool {
        self.0.get(&channel).and_then(|failed| failed.pause).is_some_and(|pause| now < pause.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_fails_is_tried_again_after_pauses_that_grow() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 1..TOLERATED {
            failures.failed(Channel::Ipc, false, start);
            assert!(!failures.is_paused(Channel::Ipc, start));
        }
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            failures.failed(Channel::Ipc, false, at(now));
            assert!(failures.is_paused(Channel::Ipc, at(now)) && !failures.is_paused(Channel::Vmm, at(now)));
            now += pause;
            assert!(!failures.is_paused(Channel::Ipc, at(now)), "after {pause} s");
        }
        // One success, and all is as at first.
        failures.succeeded(Channel::Ipc);
        failures.failed(Channel::Ipc, false, at(now));
        assert!(!failures.is_paused(Channel::Ipc, at(now)));
    }

    #[test]
    fn what_needs_long_is_left_alone_at_once_but_not_for_good() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        failures.failed(Channel::Rdma, true, start);
        assert!(
            failures.is_paused(Channel::Rdma, start) && !failures.is_paused(Channel::Rdma, start + MAX_PAUSE)
        );
    }
}
