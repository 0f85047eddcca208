//! Costs of short copies by the processor and by the driver, of which the lower one counts.
//!
//! The processor copies a short message in less time than a call of the driver takes, on the machines that were
//! measured. A BAR behind a bridge of a virtual machine, or one whose writes are not gathered, may be slower by
//! orders of magnitude. The first copies from a buffer are the driver's, before the buffer is mapped, so that both
//! costs are known without further measurements.

use std::time::Duration;

use super::window::Direction;

/// By what a short copy was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyMethod {
    Processor,
    Driver,
}

/// Copies that are remembered, the middle one of which counts: another process may have taken the processor.
const SAMPLES: usize = 5;

/// Copies without which nothing is known.
const MIN_SAMPLES: usize = 3;

/// How many times what the driver takes the processor must take to be slow. Where both are alike the choice stays.
const SLOW_RATIO: f64 = 1.25;

/// Copies that are left to the driver after the processor was slow: at first, and at most.
const MIN_PAUSE: u32 = 64;
const MAX_PAUSE: u32 = 1 << 16;

/// Classes of sizes of the processor's copies, whose time grows with each line of a cache: up to so many bytes each.
const CLASSES: [u64; 4] = [64, 256, 1024, u64::MAX];

/// Times of the last copies.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    times: [f64; SAMPLES],
    count: usize,
}

impl Samples {
    fn add(&mut self, time: Duration) {
        self.times[self.count % SAMPLES] = time.as_nanos() as f64;
        // Beyond that only the remainder counts.
        self.count = if self.count + 1 == 2 * SAMPLES { SAMPLES } else { self.count + 1 };
    }

    /// The middle one, where there are enough.
    fn median(&self) -> Option<f64> {
        let known = self.count.min(SAMPLES);
        let mut sorted = self.times;
        sorted[..known].sort_by(f64::total_cmp);
        (known >= MIN_SAMPLES).then(|| sorted[known / 2])
    }
}

/// The processor's copies of one class of sizes.
#[derive(Debug, Clone, Copy, Default)]
struct ProcessorCopies {
    samples: Samples,
    /// So many are left to the driver from now on.
    left: u32,
    pause: u32,
}

/// Costs of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct DirectionCosts {
    /// A call takes the same for all short sizes.
    driver: Samples,
    processor: [ProcessorCopies; CLASSES.len()],
}

/// What short copies cost in each direction.
#[derive(Debug, Default)]
pub(super) struct CopyCosts {
    from_gpu: DirectionCosts,
    to_gpu: DirectionCosts,
}

fn class(bytes: u64) -> usize {
    CLASSES.iter().position(|max| bytes <= *max).unwrap_or(CLASSES.len() - 1)
}

impl CopyCosts {
    fn direction(&mut self, direction: Direction) -> &mut DirectionCosts {
        match direction {
            Direction::FromGpu => &mut self.from_gpu,
            Direction::ToGpu => &mut self.to_gpu,
        }
    }

    /// Whether the processor is to make a copy of so many bytes, which counts as one of those that are left to the
    /// driver where it is not.
    pub(super) fn admits(&mut self, direction: Direction, bytes: u64) -> bool {
        let copies = &mut self.direction(direction).processor[class(bytes)];
        let is_preferred = copies.left == 0;
        copies.left = copies.left.saturating_sub(1);
        is_preferred
    }

    /// The same for one that was [admitted](Self::admits) or not: it is not counted again.
    pub(super) fn is_preferred(&mut self, direction: Direction, bytes: u64) -> bool {
        self.direction(direction).processor[class(bytes)].left == 0
    }

    /// A copy has taken so long.
    pub(super) fn observe(&mut self, direction: Direction, bytes: u64, method: CopyMethod, took: Duration) {
        let DirectionCosts { driver, processor } = self.direction(direction);
        if method == CopyMethod::Driver {
            driver.add(took);
            return;
        }
        let copies = &mut processor[class(bytes)];
        copies.samples.add(took);
        let (Some(by_processor), Some(by_driver)) = (copies.samples.median(), driver.median()) else {
            return;
        };
        if by_processor > by_driver * SLOW_RATIO {
            copies.pause = (copies.pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
            copies.left = copies.pause;
            copies.samples = Samples::default();
        } else if copies.samples.count >= SAMPLES {
            copies.pause = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use CopyMethod::{Driver, Processor};
    use Direction::{FromGpu, ToGpu};

    /// Copies of so many bytes, each by what is preferred, and how many were the processor's.
    fn copies(costs: &mut CopyCosts, count: usize, bytes: u64, processor_us: u64, driver_us: u64) -> usize {
        let mut copy = || {
            let is_eager = costs.admits(FromGpu, bytes);
            let (method, took) = if is_eager { (Processor, processor_us) } else { (Driver, driver_us) };
            costs.observe(FromGpu, bytes, method, Duration::from_micros(took));
            is_eager
        };
        (0..count).filter(|_| copy()).count()
    }

    fn costs(driver_us: u64) -> CopyCosts {
        let mut costs = CopyCosts::default();
        for _ in 0..MIN_SAMPLES {
            costs.observe(FromGpu, 8, Driver, Duration::from_micros(driver_us));
        }
        costs
    }

    #[test]
    fn the_processor_copies_while_that_is_quick() {
        assert_eq!(copies(&mut costs(7), 1000, 64, 1, 7), 1000);
        assert_eq!(copies(&mut costs(7), 1000, 64, 8, 7), 1000, "the two are alike");
        assert_eq!(
            copies(&mut CopyCosts::default(), 1000, 64, 900, 7),
            1000,
            "nothing is known of the driver"
        );
    }

    #[test]
    fn a_slow_bar_is_left_alone_for_longer_each_time() {
        let mut slow = costs(7);
        // 3 of 67, 3 of 131, 3 of 259, 3 of 515 ...
        assert_eq!(copies(&mut slow, 67 + 131 + 259 + 515 + 4, 64, 900, 7), 5 * MIN_SAMPLES);
        // It is quick for another size, and in the other direction.
        assert!(slow.admits(FromGpu, 65) && slow.admits(ToGpu, 64) && !slow.is_preferred(FromGpu, 64));
    }

    #[test]
    fn a_bar_that_has_become_quick_is_used_again() {
        let mut slow = costs(7);
        assert_eq!(copies(&mut slow, 67, 64, 900, 7), MIN_SAMPLES);
        assert_eq!(copies(&mut slow, 100, 64, 1, 7), 100);
        // And is left alone for as short a time as at first when it is slow again: 2 more samples make the middle one.
        assert_eq!(copies(&mut slow, SAMPLES / 2 + 1 + MIN_PAUSE as usize, 64, 900, 7), SAMPLES / 2 + 1);
    }

    #[test]
    fn one_copy_that_was_interrupted_changes_nothing() {
        let mut costs = costs(7);
        assert_eq!(copies(&mut costs, 10, 64, 1, 7), 10);
        for _ in 0..SAMPLES {
            assert_eq!(copies(&mut costs, 1, 64, 50_000, 7), 1);
            assert_eq!(copies(&mut costs, 3, 64, 1, 7), 3);
        }
    }
}
