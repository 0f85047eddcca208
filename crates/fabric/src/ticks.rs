//! How does a thread that looks for something know how long it has looked, without asking the system?
//!
//! Reading a clock is a system call where the kernel has none for programs to read, as in the guest of the tests over verbs: 80 us
//! there, more than a round trip takes (2026-11-22). The processor's counter is read in some 10 ns everywhere. It says how long a thread has been
//! patient, roughly, and not when something happened: it may differ between processors.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is watched to know how fast it goes.
const WATCHED: Duration = Duration::from_millis(2);

/// The processor's counter, which goes at the same rate whatever the processor does.
pub fn now() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// By how much the counter goes on in this time. The first question takes some 2 ms.
pub fn of(time: Duration) -> u64 {
    static A_MICROSECOND: OnceLock<f64> = OnceLock::new();
    let rate = A_MICROSECOND.get_or_init(|| {
        let (begun, first) = (Instant::now(), now());
        std::thread::sleep(WATCHED);
        let (passed, ticks) = (begun.elapsed(), now().wrapping_sub(first));
        ticks as f64 / (passed.as_nanos() as f64 / 1e3)
    });
    (time.as_nanos() as f64 / 1e3 * rate) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_on_as_long_as_time_passes() {
        let asked = Duration::from_millis(5);
        let ticks = of(asked);
        let (first, begun) = (now(), Instant::now());
        while now().wrapping_sub(first) < ticks {
            std::thread::yield_now();
        }
        // A thread may have been kept from running, in both measurements: only a counter that is far off is wrong.
        assert!(begun.elapsed() >= asked / 4, "{:?}", begun.elapsed());
        assert_eq!(of(Duration::ZERO), 0);
    }
}
