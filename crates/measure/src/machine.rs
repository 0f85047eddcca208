//! Machine and time of a measurement.

use jiff::{Timestamp, Unit};
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

/// The time now, in universal time, as ISO 8601 writes it: `2026-11-25T09:30:00Z`.
pub fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_written_to_the_second() {
        let now = now();
        assert!(now.len() == 20 && now.ends_with('Z') && now.parse::<Timestamp>().is_ok(), "{now}");
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
