//! What does a setting gain over bands of sizes?
//!
//! The bands are those of the paper that [`crate::sweep`] names. Its average of a band is the arithmetic mean
//! of the gains at each size: of +418.69 % for the 11 sizes from 2 bytes to 2 KiB, +48.46 % for the 8 up to
//! 512 KiB and +0.22 % for the 4 up to 8 MiB the mean over all 23 is the +217.14 % that it gives.

use core::fmt;

use serde::Serialize;

use crate::case::{Quantity, Setting};
use crate::results::{MeasuredPath, Run};
use crate::sweep::{Sweep, Varied};

/// A band of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Band {
    /// Up to 2 KiB.
    Short,
    /// Above that, up to 512 KiB.
    Middle,
    /// Above that.
    Long,
    /// Every size.
    All,
}

impl Band {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Short, Self::Middle, Self::Long, Self::All];

    fn holds(self, bytes: u64) -> bool {
        const SHORT: u64 = 2 << 10;
        const MIDDLE: u64 = 512 << 10;
        match self {
            Self::Short => bytes <= SHORT,
            Self::Middle => bytes > SHORT && bytes <= MIDDLE,
            Self::Long => bytes > MIDDLE,
            Self::All => true,
        }
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Short => "to 2 KiB",
            Self::Middle => "to 512 KiB",
            Self::Long => "above",
            Self::All => "all sizes",
        })
    }
}

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
    /// The sizes.
    pub band: Band,
    /// How many of them were measured.
    pub sizes: usize,
    /// The mean gain: 0.05 is 5 % more.
    pub gain: f64,
}

/// The averages of one path in a sweep, band by band; none for a band of which nothing was measured.
pub fn averages(run: &Run, sweep: &Sweep, path: MeasuredPath) -> Vec<Average> {
    let cases = run.cases();
    let of_way =
        cases.iter().filter(|case| case.operation == path.operation && case.quantity == Quantity::Bandwidth);
    let settings = || sweep.settings.iter().enumerate().filter(|(index, _)| *index != sweep.base);
    let mut all = Vec::new();
    for band in Band::ALL {
        for (_, &setting) in settings() {
            let gains: Vec<f64> = of_way
                .clone()
                .filter(|case| band.holds(case.bytes))
                .filter_map(|case| run.gain(path.tool, *case, sweep, setting))
                .collect();
            if !gains.is_empty() {
                let gain = gains.iter().sum::<f64>() / gains.len() as f64;
                all.push(Average { path, varied: sweep.varied, setting, band, sizes: gains.len(), gain });
            }
        }
    }
    all
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
        let texts: Vec<_> =
            found.iter().map(|one| (one.band.to_string(), one.sizes, one.gain.round())).collect();
        let expected = [("to 2 KiB", 1), ("to 512 KiB", 1), ("above", 1), ("all sizes", 3)];
        assert_eq!(texts, expected.map(|(band, sizes)| (band.to_owned(), sizes, 6.0)));
        assert!(Band::Short.holds(2 << 10) && Band::Middle.holds(512 << 10) && !Band::Long.holds(512 << 10));
    }

    #[test]
    fn the_papers_bands_have_eleven_eight_and_four_sizes() {
        let sizes: Vec<u64> = (1..=23).map(|power| 1 << power).collect();
        let count = |band: Band| sizes.iter().filter(|bytes| band.holds(**bytes)).count();
        assert_eq!(Band::ALL.map(count), [11, 8, 4, 23]);
    }
}
