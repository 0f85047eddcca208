//! Token bucket: how much may pass now, at a rate and with a burst. Pure: the time is an argument.

use std::time::Duration;

/// Parts of a token that are counted, so that a rate is exact over any time.
const PARTS: u128 = 1_000_000_000;

/// A bucket that is filled at a rate up to its capacity, and out of which tokens are taken.
///
/// One that takes more than there is leaves a debt, for which all who come later wait: a piece of data that is larger
/// than the bucket passes, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tokens a second.
    rate: u64,
    /// The most tokens that it holds.
    capacity: u64,
    /// Parts of tokens that it lacks to be full; more than the capacity's is a debt.
    missing: u128,
    /// When it was so.
    at: Duration,
}

impl TokenBucket {
    /// A full bucket at a time, which is counted from any beginning. A rate of 0 counts as 1.
    pub fn new(rate: u64, capacity: u64, now: Duration) -> Self {
        Self { rate: rate.max(1), capacity, missing: 0, at: now }
    }

    /// Changes the rate and the capacity from `now` on; what is missing stays so.
    pub fn set_rate(&mut self, rate: u64, capacity: u64, now: Duration) {
        self.fill(now);
        (self.rate, self.capacity) = (rate.max(1), capacity);
    }

    fn fill(&mut self, now: Duration) {
        // A clock that goes backwards fills nothing.
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.missing = self.missing.saturating_sub(passed.as_nanos() * u128::from(self.rate));
    }

    /// Takes tokens if there is no debt.
    pub fn try_take(&mut self, count: u64, now: Duration) -> bool {
        self.fill(now);
        let is_free = self.missing + u128::from(count) * PARTS <= u128::from(self.capacity) * PARTS;
        if is_free {
            self.missing += u128::from(count) * PARTS;
        }
        is_free
    }

    /// Takes tokens in any case; returns how long to wait until they count as there. Nobody waits for longer than
    /// `max_wait`: a debt beyond that is forgiven.
    pub fn take(&mut self, count: u64, max_wait: Duration, now: Duration) -> Duration {
        self.fill(now);
        let max_debt = max_wait.as_nanos().saturating_mul(u128::from(self.rate));
        let max_missing = (u128::from(self.capacity) * PARTS).saturating_add(max_debt);
        self.missing = self.missing.saturating_add(u128::from(count) * PARTS).min(max_missing);
        let debt = self.missing.saturating_sub(u128::from(self.capacity) * PARTS);
        let nanoseconds = debt.div_ceil(u128::from(self.rate));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns tokens that were taken for nothing.
    pub fn put_back(&mut self, count: u64) {
        self.missing = self.missing.saturating_sub(u128::from(count) * PARTS);
    }

    /// Whether nothing is missing, so that it is as a new one.
    pub fn is_full(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOR_EVER: Duration = Duration::MAX;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let second = Duration::from_secs(1);
        let mut bucket = TokenBucket::new(100, 50, Duration::ZERO);
        assert_eq!(bucket.take(50, FOR_EVER, Duration::ZERO), Duration::ZERO);
        assert_eq!(bucket.take(100, FOR_EVER, Duration::ZERO), second);
        assert_eq!(bucket.take(0, FOR_EVER, second), Duration::ZERO);
        assert_eq!(bucket.take(50, FOR_EVER, second), second / 2);
        assert!(
            !bucket.try_take(1, second) && bucket.try_take(50, 2 * second) && !bucket.try_take(1, second)
        );
        bucket.put_back(1);
        assert!(bucket.try_take(1, 2 * second) && !bucket.is_full(2 * second) && bucket.is_full(3 * second));
    }

    #[test]
    fn a_debt_is_bounded_however_much_is_taken() {
        let second = Duration::from_secs(1);
        let mut bucket = TokenBucket::new(100, 50, Duration::ZERO);
        for count in [1000, u64::MAX, u64::MAX, 0] {
            assert_eq!(bucket.take(count, 3 * second, Duration::ZERO), 3 * second);
        }
        assert_eq!(bucket.take(0, FOR_EVER, second), 2 * second);
        // From a lower rate on, too.
        bucket.set_rate(10, 50, second);
        assert_eq!(bucket.take(0, 3 * second, second), 3 * second);
        assert_eq!(bucket.take(0, 3 * second, 4 * second), Duration::ZERO);
    }

    proptest! {
        /// Against plain arithmetic: a second model counts what has passed, and how much is in the bucket.
        #[test]
        fn what_is_there_passes_and_nothing_else(
            rate in 1_u64..1 << 40,
            capacity in 0_u64..1 << 30,
            steps in proptest::collection::vec((0_u64..1 << 30, 0_u64..2_000_000_000), 1..60),
        ) {
            let mut bucket = TokenBucket::new(rate, capacity, Duration::ZERO);
            let (mut now, mut level) = (Duration::ZERO, u128::from(capacity) * PARTS);
            for (count, idle) in steps {
                let cost = u128::from(count) * PARTS;
                prop_assert_eq!(bucket.try_take(count, now), cost <= level);
                level -= if cost <= level { cost } else { 0 };
                now += Duration::from_nanos(idle);
                level = (level + u128::from(idle) * u128::from(rate)).min(u128::from(capacity) * PARTS);
            }
        }

        /// Against plain arithmetic: one that waits as long as is said never gets more than the burst and the rate,
        /// and over a long time never less than the rate.
        #[test]
        fn what_passes_is_the_burst_and_the_rate(
            rate in 1_u64..1 << 40,
            capacity in 0_u64..1 << 30,
            steps in proptest::collection::vec((0_u64..1 << 32, 0_u64..2_000_000_000), 1..60),
        ) {
            let mut bucket = TokenBucket::new(rate, capacity, Duration::ZERO);
            let (mut now, mut passed, mut is_saturated) = (Duration::ZERO, 0_u128, true);
            for (count, idle) in steps {
                let wait = bucket.take(count, FOR_EVER, now);
                now += wait;
                passed += u128::from(count);
                let filled = now.as_nanos() * u128::from(rate);
                let allowed = u128::from(capacity) * PARTS + filled;
                prop_assert!(passed * PARTS <= allowed, "{passed} of {allowed} parts");
                // Rounded up to a nanosecond, and no longer.
                if is_saturated && !wait.is_zero() {
                    prop_assert!(allowed - passed * PARTS < u128::from(rate), "waited for too long");
                }
                now += Duration::from_nanos(idle);
                // From the first time on that it is full, tokens are lost, and only the upper bound holds.
                is_saturated &= idle == 0;
            }
        }
    }
}
