//! The numbers as a table and as JSON.

use core::fmt;
use serde_json::json;
use std::time::Duration;

/// What one call costs.
#[derive(Debug)]
pub struct CallCost {
    /// The call.
    pub name: &'static str,
    /// `posted` or `called`.
    pub kind: &'static str,
    /// Nanoseconds until it returns.
    pub returned_ns: f64,
    /// Nanoseconds until the device has done it.
    pub done_ns: f64,
}

/// How long copies of one size take.
#[derive(Debug)]
pub struct CopyRate {
    /// `pageable` or `pinned`.
    pub memory: &'static str,
    /// Bytes in a copy.
    pub bytes: usize,
    /// Time to the device.
    pub to_device: Duration,
    /// Time from the device.
    pub from_device: Duration,
}

impl CopyRate {
    /// Both rates in GB/s (1e9 bytes a second), to and from the device.
    fn rates(&self) -> [f64; 2] {
        [self.to_device, self.from_device].map(|time| self.bytes as f64 / time.as_secs_f64() / 1e9)
    }
}

/// All numbers of a run.
#[derive(Debug)]
pub struct Report {
    /// Causeway's version.
    pub release: &'static str,
    /// The device's name.
    pub device: String,
    /// Single calls.
    pub calls: Vec<CallCost>,
    /// Copies.
    pub copies: Vec<CopyRate>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Causeway {} on {}\n", self.release, self.device)?;
        writeln!(f, "{:<38}{:>8}{:>16}{:>16}", "call", "kind", "until return", "until done")?;
        for call in &self.calls {
            let [returned, done] = [call.returned_ns, call.done_ns].map(time);
            writeln!(f, "{:<38}{:>8}{returned:>16}{done:>16}", call.name, call.kind)?;
        }
        writeln!(f, "\n{:<12}{:>10}{:>18}{:>18}", "copy", "size", "to device", "from device")?;
        for copy in &self.copies {
            let [to, from] = copy.rates().map(|rate| format!("{rate:.3} GB/s"));
            writeln!(f, "{:<12}{:>10}{to:>18}{from:>18}", copy.memory, size(copy.bytes))?;
        }
        Ok(())
    }
}

impl Report {
    /// The report as JSON.
    pub fn to_json(&self) -> String {
        let calls = self.calls.iter().map(|call| {
            json!({ "name": call.name, "kind": call.kind, "returned_ns": call.returned_ns, "done_ns": call.done_ns })
        });
        let copies = self.copies.iter().map(|copy| {
            let [to_device, from_device] = copy.rates();
            json!({ "memory": copy.memory, "bytes": copy.bytes, "to_device_gb_s": to_device, "from_device_gb_s": from_device })
        });
        let report = json!({
            "release": self.release,
            "device": self.device,
            "calls": calls.collect::<Vec<_>>(),
            "copies": copies.collect::<Vec<_>>(),
        });
        format!("{report:#}\n")
    }
}

fn time(nanoseconds: f64) -> String {
    if nanoseconds < 1e3 { format!("{nanoseconds:.0} ns") } else { format!("{:.2} us", nanoseconds / 1e3) }
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}
