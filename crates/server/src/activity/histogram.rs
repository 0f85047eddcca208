//! Latency histogram of one session.

use std::time::Duration;

/// The upper ends of the buckets but the last, which has none: powers of 4 from a microsecond to a minute, in
/// ns.
pub const BOUNDS: [u64; 14] = {
    let mut bounds = [1000; 14];
    let mut index = 1;
    while index < bounds.len() {
        bounds[index] = bounds[index - 1] * 4;
        index += 1;
    }
    bounds
};

/// How many took how long, and for how long all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// How many there are in each bucket; the last has what is beyond all bounds.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum in ns.
    pub sum: u64,
}

/// The bucket of a time in ns: the first whose upper end is not below it.
pub fn bucket_of(nanoseconds: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < nanoseconds)
}

impl Histogram {
    /// Adds one that took `time`.
    pub fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanoseconds)] += 1;
        self.sum = self.sum.wrapping_add(nanoseconds);
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.buckets.iter_mut().zip(other.buckets) {
            *own = own.wrapping_add(other);
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |all, bucket| all.wrapping_add(*bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_reaches_it() {
        for (time, bucket) in [(0, 0), (1000, 0), (1001, 1), (4000, 1), (4001, 2), (u64::MAX, 14)] {
            assert_eq!(bucket_of(time), bucket, "{time} ns");
        }
        assert_eq!(BOUNDS[13], 67_108_864_000);
    }

    #[test]
    fn histograms_are_added_up() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.add(Duration::from_micros(1));
        other.add(Duration::from_micros(3));
        other.add(Duration::from_secs(600));
        one.merge(&other);
        assert_eq!((one.count(), one.sum), (3, 600_000_004_000));
        assert_eq!((one.buckets[0], one.buckets[1], one.buckets[14]), (1, 1, 1));
    }
}
