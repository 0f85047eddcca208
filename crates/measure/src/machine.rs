//! Which machine is this, and what time is it?

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What is said of the machine in results.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The processor's model.
    pub processor: String,
    /// How many processors this process may use.
    pub processors: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The kernel and its release.
    pub kernel: String,
}

impl Machine {
    /// This machine; what the system does not tell is `unknown`.
    pub fn this() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let known = |text: Option<&str>| match text.map(str::trim) {
            Some(text) if !text.is_empty() => text.to_owned(),
            _ => "unknown".to_owned(),
        };
        let (cpu, memory) = (file("/proc/cpuinfo"), file("/proc/meminfo"));
        let kibibytes =
            field(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Self {
            host: known(Some(&file("/proc/sys/kernel/hostname"))),
            processor: known(field(&cpu, "model name")),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory: kibibytes.unwrap_or(0) << 10,
            kernel: format!("Linux {}", known(Some(&file("/proc/sys/kernel/osrelease")))),
        }
    }
}

/// The first value of a `name: value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))
        .map(|(_, value)| value.trim())
}

/// The time now, in universal time, as ISO 8601 writes it.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_and_time(since.as_secs())
}

/// Seconds since 1970 as a date and a time.
fn date_and_time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The date so many days after 1 January 1970, in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date_and_time(seconds), text);
        }
    }

    #[test]
    fn this_machine_has_a_name_and_memory() {
        let machine = Machine::this();
        assert!(
            !machine.host.is_empty() && machine.memory > 1 << 20 && machine.processors > 0,
            "{machine:?}"
        );
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(field("model : 1\nmodel name\t: A B\nmodel name: C\n", "model name"), Some("A B"));
    }
}
