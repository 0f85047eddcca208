//! Delayed acknowledgements of received transfers.
//!
//! It may want their memory back, but each time it is notified, a thread wakes at either end, and takes a core
//! from those that copy: 16 MiB in pieces of 2 came at 22 GB/s when the peer was notified of each piece, and at
//! 28 when it was not (16 cores, 2026-11-23). So it is notified when nothing else is under way, as whoever waits
//! for a copy waits for its last piece; or else after a while, or when [nothing comes](DelayedAcks::take).
//! Pure.

use std::time::{Duration, Instant};

/// How long the peer is not told while more is under way: it may keep some 40 MB longer then, at the speed of
/// memory.
const DELAYED_ACK_TIMEOUT: Duration = Duration::from_millis(1);

/// Transfers that have come whole, of which the peer has not been told.
#[derive(Debug, Default)]
pub(super) struct DelayedAcks {
    since: Option<Instant>,
}

impl DelayedAcks {
    /// One has come; `is_alone` if no other is under way. Whether the peer must be notified now.
    pub fn completed(&mut self, is_alone: bool, now: Instant) -> bool {
        self.since.get_or_insert(now);
        is_alone && self.take() || self.is_due(|| now)
    }

    /// Whether the peer must be notified now, since the first of them has waited long; the clock is read only
    /// if there are any.
    pub fn is_due(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.since.is_some_and(|since| now().saturating_duration_since(since) >= DELAYED_ACK_TIMEOUT)
            && self.take()
    }

    /// Nothing comes any more, or the peer is notified anyway: whether there was something to acknowledge.
    pub fn take(&mut self) -> bool {
        self.since.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_told_of_the_last_one_at_once_and_of_others_after_a_while() {
        let begun = Instant::now();
        let after = |part: u32| begun + DELAYED_ACK_TIMEOUT * part / 4;
        let mut acks = DelayedAcks::default();
        assert!(acks.completed(true, begun), "nothing else is under way");
        assert!(!acks.completed(false, begun) && !acks.is_due(|| after(3)));
        assert!(acks.is_due(|| after(4)) && !acks.is_due(|| after(9)), "it is told once");
        assert!(!acks.completed(false, after(9)) && !acks.completed(false, after(10)));
        assert!(acks.completed(true, after(11)) && !acks.take(), "those before are told of, too");
    }

    #[test]
    fn the_clock_is_not_read_for_nothing() {
        assert!(!DelayedAcks::default().is_due(|| unreachable!()));
    }

    #[test]
    fn what_waits_is_told_when_nothing_comes() {
        let mut acks = DelayedAcks::default();
        assert!(!acks.completed(false, Instant::now()));
        assert!(acks.take() && !acks.take());
    }
}
