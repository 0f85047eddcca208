//! Durations, written as `500ms`, `90s`, `30m`, `8h` or `2d`; digits alone are seconds.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use thiserror::Error;

/// The longest duration in seconds, so that one can be added to any point in time.
const MAX_SECONDS: u128 = u32::MAX as u128;
const NANOSECONDS: u128 = 1_000_000_000;

/// Units, with `ms` before `s` and `m`; the last ones are those that durations are printed in.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("d", 86_400 * NANOSECONDS),
    ("h", 3600 * NANOSECONDS),
    ("m", 60 * NANOSECONDS),
    ("s", NANOSECONDS),
];

/// A duration as people write it: a number, which may have a fraction, and `ms`, `s`, `m`, `h` or `d`;
/// without a unit it is in seconds. None for any other text, and for more than `u32::MAX` seconds.
pub fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(unit, length)| Some((text.strip_suffix(unit)?, *length)))
        .unwrap_or((text, NANOSECONDS));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    // Nine digits of a fraction are nanoseconds even of a second; more would be lost anyway.
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let digits = u32::try_from(fraction.len()).ok()?;
    let part = unit * fraction.parse::<u128>().ok()? / 10_u128.pow(digits);
    let nanoseconds = whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(part)?;
    if nanoseconds > MAX_SECONDS * NANOSECONDS {
        return None;
    }
    let (seconds, rest) = (nanoseconds / NANOSECONDS, nanoseconds % NANOSECONDS);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(rest).ok()?))
}

/// A number of whole seconds as people write it, from one to another, both included.
pub fn whole_seconds(text: &str, min: u64, max: u64) -> Option<u64> {
    let time = parse(text).filter(|time| time.subsec_nanos() == 0)?;
    Some(time.as_secs()).filter(|seconds| (min..=max).contains(seconds))
}

/// What [`whole_seconds`] accepts, as text behind "give".
pub fn expected(min: u64, max: u64) -> String {
    let limits = if max >= MAX_SECONDS as u64 {
        format!("of {} or more", printed(min))
    } else {
        format!("from {} to {}", printed(min), printed(max))
    };
    format!("a time {limits}: whole seconds, or a number with ms, s, m, h or d, such as 10m")
}

/// A number of seconds in the largest unit of which it is a multiple.
fn printed(seconds: u64) -> String {
    match seconds {
        0 => "0".to_owned(),
        seconds => TimeSpan(Duration::from_secs(seconds)).to_string(),
    }
}

/// A time of at least a second, in whole seconds, as people write it: `90s`, `30m`, `8h`, `2d`, or seconds
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

/// A text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a time: write a number of 1 or more and s, m, h or d, such as 30m")]
pub struct TimeSpanError(String);

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.0.as_nanos();
        match UNITS.iter().skip(1).find(|(_, length)| time.is_multiple_of(*length)) {
            Some((unit, length)) => write!(f, "{}{unit}", time / length),
            None => write!(f, "{}s", self.0.as_secs_f64()),
        }
    }
}

impl FromStr for TimeSpan {
    type Err = TimeSpanError;

    fn from_str(text: &str) -> Result<Self, TimeSpanError> {
        let seconds = whole_seconds(text, 1, MAX_SECONDS as u64);
        seconds
            .map(|seconds| Self(Duration::from_secs(seconds)))
            .ok_or_else(|| TimeSpanError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_with_units() {
        for (seconds, text) in [(1, "1s"), (90, "90s"), (1800, "30m"), (28_800, "8h"), (172_800, "2d")] {
            assert_eq!(TimeSpan(Duration::from_secs(seconds)).to_string(), text);
            assert_eq!(text.parse(), Ok(TimeSpan(Duration::from_secs(seconds))));
        }
        for (text, seconds) in [("45", 45), ("1.5h", 5400), ("3000ms", 3), ("4294967295", 4_294_967_295)] {
            assert_eq!(text.parse(), Ok(TimeSpan(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(TimeSpan(Duration::from_millis(1500)).to_string(), "1.5s");
        for wrong in
            ["", "0", "0s", "m", "ms", "500ms", "-1s", "+1s", "30min", "ss", "1mm", "1.", ".5", "1e3"]
        {
            let error = wrong.parse::<TimeSpan>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{wrong:?} is not a time")), "{error}");
        }
    }

    #[test]
    fn fractions_and_milliseconds_are_exact_and_bounded() {
        for (text, nanoseconds) in
            [("500ms", 500_000_000), ("0.5", 500_000_000), ("0.000000001", 1), ("0.0000000019", 1), ("0", 0)]
        {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        let huge = "9".repeat(200);
        for wrong in ["4294967296", "99999999999d", &huge, "1.5.5", "1 s", "é", "nan", "inf"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn seconds_have_limits_that_the_error_names() {
        for (text, seconds) in [("0", Some(0)), ("10m", Some(600)), ("1d", Some(86_400)), ("1500ms", None)] {
            assert_eq!(whole_seconds(text, 0, 86_400), seconds, "{text}");
        }
        assert_eq!(whole_seconds("2d", 0, 86_400), None);
        assert!(expected(0, 86_400).starts_with("a time from 0 to 1d:"), "{}", expected(0, 86_400));
        assert!(expected(1, u64::from(u32::MAX)).starts_with("a time of 1s or more:"));
    }
}
