//! How long to wait until asking the driver again makes sense.

use core::time::Duration;

/// How long the thread asks without pause, from the last arrival or completion. Waking a thread costs about
/// as much.
const SPIN: Duration = Duration::from_micros(50);

/// The shortest and the longest pause after that. Between them a pause is a 64th of the time waited so far,
/// so that a completion is noticed late by less than two percent of its wait.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(200));

/// How often the thread asks when nobody waits. A stream holds at least twice as much work as that, so that
/// it does not run dry while the end of its earlier work goes unnoticed.
const IDLE_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The pause before the next question, after so long without an answer; nothing when the next question comes
/// at once.
pub(crate) fn poll_interval(urgent: bool, waited: Duration) -> Option<Duration> {
    match urgent {
        true if waited < SPIN => None,
        true => Some((waited / 64).clamp(PAUSES.0, PAUSES.1)),
        false => Some(IDLE_POLL_INTERVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_rarer_the_longer_a_wait_lasts() {
        let after = |micros| poll_interval(true, Duration::from_micros(micros));
        assert_eq!(after(49), None);
        assert_eq!(after(50), Some(PAUSES.0));
        assert_eq!(after(6400), Some(Duration::from_micros(100)));
        assert_eq!(after(1_000_000), Some(PAUSES.1));
    }

    #[test]
    fn what_nobody_waits_for_is_asked_about_rarely() {
        assert_eq!(poll_interval(false, Duration::ZERO), Some(IDLE_POLL_INTERVAL));
        assert_eq!(poll_interval(false, Duration::from_secs(1)), Some(IDLE_POLL_INTERVAL));
    }
}
