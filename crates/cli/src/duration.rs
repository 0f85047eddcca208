//! Durations that options take: parsers for clap.

use std::time::Duration;

use causeway_config::duration::{expected, parse, whole_seconds};

/// A time in whole seconds from `MIN` to `MAX`, which may have a unit.
pub fn seconds<const MIN: u32, const MAX: u32>(text: &str) -> Result<u32, String> {
    let (min, max) = (u64::from(MIN), u64::from(MAX));
    whole_seconds(text, min, max)
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| format!("give {}", expected(min, max)))
}

/// A time of more than 0 and at most `MAX` seconds, which may have a fraction and a unit.
pub fn fraction<const MAX: u32>(text: &str) -> Result<Duration, String> {
    let max = Duration::from_secs(MAX.into());
    parse(text).filter(|time| !time.is_zero() && *time <= max).ok_or_else(|| {
        format!("give more than 0 and at most {MAX} seconds, or a time with ms, s, m, h or d, such as 500ms")
    })
}

/// A time in the largest unit in which it is whole.
pub fn describe(seconds: u32) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    match units.iter().find(|(length, _)| seconds >= *length && seconds.is_multiple_of(*length)) {
        Some((length, unit)) if seconds == *length => format!("1 {unit}"),
        Some((length, unit)) => format!("{} {unit}s", seconds / length),
        None => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_largest_whole_unit() {
        for (seconds, text) in [
            (86_400, "1 day"),
            (172_800, "2 days"),
            (7200, "2 hours"),
            (600, "10 minutes"),
            (90, "90 s"),
            (0, "0 s"),
        ] {
            assert_eq!(describe(seconds), text);
        }
    }

    #[test]
    fn options_name_the_times_that_they_take() {
        assert_eq!(seconds::<0, 86_400>("10m"), Ok(600));
        let error = seconds::<1, 86_400>("0").unwrap_err();
        assert!(error.starts_with("give a time from 1s to 1d"), "{error}");
        assert_eq!(fraction::<60>("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "61", "2m", "nan", "-1"] {
            let error = fraction::<60>(wrong).unwrap_err();
            assert!(error.contains("at most 60 seconds"), "{error}");
        }
    }
}
