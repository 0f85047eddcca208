//! Sizes of copies, and how a size is written.

use core::fmt;
use core::str::FromStr;

use causeway_config::size::SizeError;
use thiserror::Error;

/// The largest size: beyond it a copy takes seconds and fits few GPUs.
pub const MAX_BYTES: u64 = 16 << 30;

/// Units, and how many bytes each is.
const UNITS: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Why a text is no list of sizes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizesError {
    /// A word is no size.
    #[error("{0:?} is not a size: write a number of bytes, or a number and K, M or G, such as 64K")]
    NotASize(String),
    /// A size is out of range.
    #[error("{0:?} is not a size that can be copied: sizes go from 1 byte to {max}", max = Size(MAX_BYTES))]
    OutOfRange(String),
    /// A range goes down.
    #[error("the range {0:?} ends before it begins")]
    Backwards(String),
    /// There is nothing.
    #[error("no size is named")]
    Empty,
}

/// A number of bytes that is written with the largest unit that divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        let text = match unit {
            Some((unit, bytes)) => format!("{} {unit}", self.0 / bytes),
            None => format!("{} B", self.0),
        };
        f.pad(&text)
    }
}

impl FromStr for Size {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let causeway_config::Size(size) =
            text.parse().map_err(|_: SizeError| SizesError::NotASize(text.to_owned()))?;
        match size {
            1..=MAX_BYTES => Ok(Self(size)),
            _ => Err(SizesError::OutOfRange(text.to_owned())),
        }
    }
}

/// Sizes in ascending order, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

impl Sizes {
    /// From one size to another, each `factor` times the one before; both ends are in it when the factor
    /// leads from one to the other.
    pub fn steps(from: u64, to: u64, factor: u64) -> Self {
        let next = |size: &u64| size.checked_mul(factor);
        Self(core::iter::successors(Some(from), next).take_while(|size| *size <= to).collect())
    }

    /// The sizes in bytes.
    pub fn bytes(&self) -> &[u64] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = SizesError;

    /// A list such as `8,4K,1M..1G`: sizes, and ranges in which each size is twice the one before.
    fn from_str(text: &str) -> Result<Self, SizesError> {
        let mut sizes = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((from, to)) = word.split_once("..") else {
                sizes.push(word.parse::<Size>()?.0);
                continue;
            };
            let (from, to) = (from.trim().parse::<Size>()?, to.trim().parse::<Size>()?);
            if from > to {
                return Err(SizesError::Backwards(word.to_owned()));
            }
            sizes.extend(Self::steps(from.0, to.0, 2).0);
        }
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() { Err(SizesError::Empty) } else { Ok(Self(sizes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<Vec<u64>, SizesError> {
        text.parse::<Sizes>().map(|sizes| sizes.0)
    }

    #[test]
    fn lists_and_ranges_are_put_in_order() {
        assert_eq!(bytes("1M, 8,4KiB"), Ok(vec![8, 4 << 10, 1 << 20]));
        assert_eq!(bytes("1..8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(bytes("512M..1G,1g"), Ok(vec![512 << 20, 1 << 30]));
        assert_eq!(bytes("3K..10K"), Ok(vec![3 << 10, 6 << 10]));
        assert_eq!(Sizes::steps(1, 1 << 30, 2).bytes().len(), 31);
    }

    #[test]
    fn what_is_no_size_is_named() {
        for (text, error) in [
            ("8,many", SizesError::NotASize("many".into())),
            ("K", SizesError::NotASize("K".into())),
            ("1T", SizesError::OutOfRange("1T".into())),
            ("-8", SizesError::NotASize("-8".into())),
            ("0", SizesError::OutOfRange("0".into())),
            ("17G", SizesError::OutOfRange("17G".into())),
            ("99999999999999999999", SizesError::NotASize("99999999999999999999".into())),
            ("18446744073709551615G", SizesError::NotASize("18446744073709551615G".into())),
            ("8K..4K", SizesError::Backwards("8K..4K".into())),
            (" , ", SizesError::Empty),
        ] {
            assert_eq!(bytes(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_size_is_written_with_a_unit_that_divides_it() {
        let text = |size| Size(size).to_string();
        assert_eq!(
            [text(1), text(1024), text(1536), text(5 << 20), text(1 << 30)],
            ["1 B", "1 KiB", "1536 B", "5 MiB", "1 GiB"]
        );
        assert_eq!(format!("{:>8}", Size(64 << 10)), "  64 KiB");
    }
}
