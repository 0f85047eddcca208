//! Round-trip latency.

use std::time::Instant;

use causeway_measure::statistics::percentile;

/// Round trips, each of which begins when the one before ends. They are timed one by one, as perftest does,
/// so that of a machine with other work the typical one is found; by the processor's counter, which costs no
/// system call.
pub(crate) struct Trips {
    started: Instant,
    ticks: Vec<u64>,
}

impl Default for Trips {
    fn default() -> Self {
        Self::begin()
    }
}

impl Trips {
    /// The first one begins.
    pub(crate) fn begin() -> Self {
        Self { started: Instant::now(), ticks: vec![ticks()] }
    }

    /// One has ended.
    pub(crate) fn one_more(&mut self) {
        self.ticks.push(ticks());
    }

    /// The seconds of the one in the middle; 0 without any.
    pub(crate) fn median(&self) -> f64 {
        let tick = self.started.elapsed().as_secs_f64() / (ticks() - self.ticks[0]).max(1) as f64;
        typical(&self.ticks).map_or(0.0, |ticks| ticks * tick)
    }
}

/// The one in the middle of the times between these.
fn typical(ticks: &[u64]) -> Option<f64> {
    let trips: Vec<f64> = ticks.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    percentile(&trips, 0.5)
}

/// The processor's counter, which goes at the same rate whatever the processor does.
fn ticks() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_typical_round_trip_is_no_mean() {
        assert_eq!(typical(&[100, 103, 105, 9_000, 9_004, 9_005]), Some(3.0));
        assert_eq!(typical(&[100]), None);
    }
}
