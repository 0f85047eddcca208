//! Sizes in bytes, written as `64K` or `16M`.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// A number of bytes as people write it: `64K`, `4M`, `1G`, `2T`, or digits alone. Units are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A text that is no number of bytes, or of more than 64 bits.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a size: write a number of bytes, or a number and K, M, G or T, such as 64K")]
pub struct SizeError(String);

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => f.pad(&format!("{}{unit}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl FromStr for Size {
    type Err = SizeError;

    /// Reads what [`Display`](fmt::Display) writes, and `64k`, `64 KiB` and `64 B`.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        let end = trimmed.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(end);
        let unit = unit.trim_start().to_ascii_uppercase();
        let shift = match unit.strip_suffix("IB").unwrap_or(&unit) {
            "" => (unit != "IB").then_some(0),
            "B" => Some(0),
            letter => UNITS.iter().find(|(known, _)| letter.chars().eq([*known])).map(|(_, shift)| *shift),
        };
        let bytes =
            digits.parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| SizeError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_and_read_with_units() {
        for (bytes, text) in
            [(0, "0"), (1, "1"), (1000, "1000"), (64 << 10, "64K"), (5 << 30, "5G"), (1 << 40, "1T")]
        {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for (text, bytes) in [("3m", 3 << 20), (" 4 KiB ", 4 << 10), ("7B", 7), ("1gib", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(format!("{:>5}", Size(64 << 10)), "  64K");
    }

    #[test]
    fn what_is_no_size_is_named() {
        for wrong in ["", "M", "iB", "1iB", "1.5M", "-1", "+1", "1MB", "1KK", "99999999999G", "é", "1 é"] {
            let error = wrong.parse::<Size>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{wrong:?} is not a size")), "{error}");
        }
    }
}
