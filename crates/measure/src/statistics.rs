//! Statistics of samples: percentiles and confidence intervals.

use serde::Serialize;

/// The middle and the spread of samples, in their own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many samples there were.
    pub count: usize,
    /// The 5th percentile.
    pub p5: f64,
    /// The median.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the samples over their mean; 0 for one sample.
    pub relative_deviation: f64,
}

impl Summary {
    /// Summarises samples; none when there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        if sorted.is_empty() {
            return None;
        }
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Self {
            count,
            p5: between(&sorted, 0.05),
            median: between(&sorted, 0.5),
            p95: between(&sorted, 0.95),
            mean,
            relative_deviation: if mean == 0.0 { 0.0 } else { deviation / mean },
        })
    }

    /// As it stands in a line of CSV.
    pub fn fields(&self) -> [(&'static str, String); 6] {
        [
            ("repetitions", self.count.to_string()),
            ("median", self.median.to_string()),
            ("p5", self.p5.to_string()),
            ("p95", self.p95.to_string()),
            ("mean", self.mean.to_string()),
            ("relative_deviation", self.relative_deviation.to_string()),
        ]
    }

    /// The same of `scale / sample`, as rates are of times: the slow end of the times is the low end of the
    /// rates. The mean is that of the times, turned into a rate: all work over all time.
    pub fn inverse(&self, scale: f64) -> Self {
        Self {
            p5: scale / self.p95,
            median: scale / self.median,
            p95: scale / self.p5,
            mean: scale / self.mean,
            ..*self
        }
    }
}

/// The value below which `share` of the samples lie, between two samples by linear interpolation; none when
/// there are none.
pub fn percentile(samples: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(samples);
    (!sorted.is_empty()).then(|| between(&sorted, share))
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The percentile of at least one sorted sample.
fn between(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn the_middle_and_the_ends_of_a_hundred_and_one_samples() {
        // 0 to 100 in an order that is not theirs.
        let samples: Vec<f64> = (0..101).map(|index| f64::from(index * 37 % 101)).collect();
        let summary = Summary::of(&samples).unwrap();
        assert_eq!(summary.count, 101);
        for (found, expected) in
            [(summary.p5, 5.0), (summary.median, 50.0), (summary.p95, 95.0), (summary.mean, 50.0)]
        {
            close(found, expected);
        }
        // The variance of 0 to 100 with 100 degrees of freedom: 101 * 102 / 12.
        close(summary.relative_deviation, (101.0_f64 * 102.0 / 12.0).sqrt() / 50.0);
    }

    #[test]
    fn between_two_samples_lies_their_mean() {
        close(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        close(percentile(&[5.0, 1.0, 2.0, 3.0, 4.0], 0.25).unwrap(), 2.0);
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn one_sample_has_no_spread_and_none_no_summary() {
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!(
            [one.p5, one.median, one.p95, one.mean, one.relative_deviation],
            [7.0, 7.0, 7.0, 7.0, 0.0]
        );
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn slow_times_are_low_rates() {
        let rates = Summary::of(&[1.0, 2.0, 4.0]).unwrap().inverse(8.0);
        assert!(rates.p5 < rates.median && rates.median < rates.p95, "{rates:?}");
        close(rates.median, 4.0);
    }
}
