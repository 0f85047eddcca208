//! Averages over bands of sizes: what a setting gains.
//!
//! The bands are those of the paper that [`crate::sweep`] names. Its average of a band is the arithmetic mean
//! of the gains at each size: of +418.69 % for the 11 sizes from 2 bytes to 2 KiB, +48.46 % for the 8 up to
//! 512 KiB and +0.22 % for the 4 up to 8 MiB the mean over all 23 is the +217.14 % that it gives.

use serde::Serialize;

use crate::case::{Quantity, Setting};
use crate::results::{MeasuredPath, Run};
use crate::sweep::{Sweep, Varied};

/// The bands of sizes: their names, and of each the size above which it begins and its largest.
pub const BANDS: [(&str, u64, u64); 4] = [
    ("to 2 KiB", 0, 2 << 10),
    ("to 512 KiB", 2 << 10, 512 << 10),
    ("above", 512 << 10, u64::MAX),
    ("all sizes", 0, u64::MAX),
];

/// The mean gain in bandwidth of a setting over the base of its sweep, over the sizes of a band.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Average {
    /// What moves the bytes.
    #[serde(flatten)]
    pub path: MeasuredPath,
    /// What differs from the base.
    pub varied: Varied,
    /// The setting.
    #[serde(flatten)]
    pub setting: Setting,
    /// The name of the band.
    pub band: &'static str,
    /// How many of them were measured.
    pub sizes: usize,
    /// The mean gain: 0.05 is 5 % more.
    pub gain: f64,
}

/// The averages of one path in a sweep, band by band; none for a band of which nothing was measured.
pub fn averages(run: &Run, sweep: &Sweep, path: MeasuredPath) -> Vec<Average> {
    let cases = run.cases(path, Quantity::Bandwidth);
    let average = |(band, above, max): (&'static str, u64, u64), setting: Setting| {
        let of_band = cases.iter().filter(|case| case.bytes > above && case.bytes <= max);
        let gains: Vec<f64> = of_band.filter_map(|case| run.gain(path.tool, *case, sweep, setting)).collect();
        let gain = gains.iter().sum::<f64>() / gains.len() as f64;
        let average = Average { path, varied: sweep.varied, setting, band, sizes: gains.len(), gain };
        (!gains.is_empty()).then_some(average)
    };
    let of_band = |band| sweep.others().filter_map(move |(_, setting)| average(band, setting));
    BANDS.into_iter().flat_map(of_band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Tool;
    use crate::results::tests::example;
    use crate::sweep::sweep;

    #[test]
    fn each_size_counts_once_and_in_one_band() {
        let run = example();
        let both = sweep(Varied::Both, 4096);
        let path = MeasuredPath { tool: Tool::Verbs, operation: crate::case::Operation::Send };
        let found = averages(&run, &both, path);
        // Sizes are 2 bytes, 4 KiB and 8 MiB; the logarithm of the capacity grows from 1 to 7.
        let texts: Vec<_> = found.iter().map(|one| (one.band, one.sizes, one.gain.round())).collect();
        let expected = [("to 2 KiB", 1), ("to 512 KiB", 1), ("above", 1), ("all sizes", 3)];
        assert_eq!(texts, expected.map(|(band, sizes)| (band, sizes, 6.0)));
    }

    #[test]
    fn the_papers_bands_have_eleven_eight_and_four_sizes() {
        let sizes: Vec<u64> = (1..=23).map(|power| 1 << power).collect();
        let count = |(_, above, max)| sizes.iter().filter(|size| **size > above && **size <= max).count();
        assert_eq!(BANDS.map(count), [11, 8, 4, 23]);
    }
}
