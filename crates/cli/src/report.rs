//! Report of `causeway run --stats`: what a program did, in words and numbers.
//!
//! The client library writes counts of calls and bytes to the file that `CAUSEWAY_STATS` names, when the
//! program ends. Here they are read and put into words.

use core::fmt::Write as _;
use std::io;
use std::process::Command;

use causeway_doctor::print::binary;
use serde_json::Value;
use thiserror::Error;

use crate::copies;
use crate::demangle::kernel_name;

/// How many functions are listed by name.
const NAMED: usize = 5;

/// Why there is nothing to report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// No file can be made.
    #[error("cannot create a temporary file for the report: {0}")]
    NoFile(io::Error),
    /// The program left no report.
    #[error(
        "there is no report of the program: it made no CUDA call, was ended by a signal, or did not use \
         our libcuda.so.1"
    )]
    NotWritten,
    /// The report cannot be understood.
    #[error("malformed report of the program: {0}")]
    Damaged(serde_json::Error),
}

/// The file that the client library writes its report to.
#[derive(Debug)]
pub struct File {
    folder: tempfile::TempDir,
}

impl File {
    /// A place for a report; it goes with this value.
    pub fn new() -> Result<Self, ReportError> {
        Ok(Self { folder: tempfile::tempdir().map_err(ReportError::NoFile)? })
    }

    /// Makes the program, and those that it starts, write a report each here.
    pub fn ask_for(&self, command: &mut Command) {
        command.env(causeway_config::table::STATS.name, self.folder.path().join("%p.json"));
    }

    /// Reads what the program, and those that it has started, have written: one report of all.
    pub fn read(&self) -> Result<Report, ReportError> {
        let entries = std::fs::read_dir(self.folder.path()).map_err(|_| ReportError::NotWritten)?;
        let texts = entries.flatten().filter_map(|entry| std::fs::read(entry.path()).ok());
        let read = texts.map(|text| serde_json::from_slice(&text).map_err(ReportError::Damaged));
        let reports = read.collect::<Result<Vec<Value>, _>>()?;
        let processes = reports.len();
        let all = reports.into_iter().reduce(sum).ok_or(ReportError::NotWritten)?;
        Ok(Report { all, processes })
    }
}

/// Both reports as one: counts are added, the longest time since a session was opened stays, and what is not
/// a number is the first's that has it.
fn sum(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (name, value) in second {
                let together = match first.remove(&name) {
                    Some(before) if name == "seconds" => longer(before, value),
                    Some(before) => sum(before, value),
                    None => value,
                };
                first.insert(name, together);
            }
            Value::Object(first)
        }
        (Value::Number(first), Value::Number(second)) => match (first.as_u64(), second.as_u64()) {
            (Some(first), Some(second)) => first.saturating_add(second).into(),
            _ => (first.as_f64().unwrap_or(0.0) + second.as_f64().unwrap_or(0.0)).into(),
        },
        (first, _) => first,
    }
}

/// A number of things by their name, of which there may be one.
fn counted(number: u64, name: &str) -> String {
    format!("{number} {name}{}", if number == 1 { "" } else { "s" })
}

fn longer(first: Value, second: Value) -> Value {
    if second.as_f64() > first.as_f64() { second } else { first }
}

/// What a program did, with those that it has started.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    all: Value,
    /// How many have written a report.
    processes: usize,
}

impl Report {
    fn number(&self, field: &str) -> u64 {
        self.all[field].as_u64().unwrap_or(0)
    }

    fn text(&self, field: &str) -> &str {
        self.all[field].as_str().unwrap_or("unknown")
    }

    /// The module of the fabric that carried calls and copies.
    pub fn module(&self) -> Option<&str> {
        self.all["via"].as_str()
    }

    /// All counts, with the number of processes that they are of.
    pub fn to_json(&self) -> Value {
        let mut all = self.all.clone();
        if let Value::Object(fields) = &mut all {
            fields.insert("processes".to_owned(), self.processes.into());
        }
        all
    }

    /// A few lines for people.
    pub fn summary(&self) -> String {
        let seconds = |field: &str| self.all[field].as_f64().unwrap_or(0.0);
        let calls = ["local", "posted", "called"].map(|kind| self.number(kind));
        let [local, posted, called] = calls;
        let total: u64 = calls.iter().sum();
        let bytes = |field: &str| binary(self.number(field));
        let mut out = String::new();
        // Writing to a string does not fail.
        if self.processes > 1 {
            let _ = writeln!(out, "  of       {} processes that used a GPU, combined", self.processes);
        }
        let _ = writeln!(out, "  device   {} ({})", self.text("device"), self.text("backend"));
        let _ = writeln!(out, "  via      {}{}", self.text("via"), self.not_via());
        let _ = writeln!(
            out,
            "  calls    {total}: {local} answered locally, {posted} posted without waiting, {called} called"
        );
        let _ = writeln!(
            out,
            "  bytes    {} to the device, {} from the device, {} of code",
            bytes("bytes_to_device"),
            bytes("bytes_from_device"),
            bytes("module_bytes")
        );
        if self.number("bytes_not_sent") > 0 {
            let spared = bytes("bytes_not_sent");
            let _ = writeln!(out, "  spared   {spared} of those to the device, which the server had already");
        }
        for line in copies::paths(&self.all) {
            let _ = writeln!(out, "  {line}");
        }
        if let ("verbs", Some(direct)) = (self.text("via"), self.all["gpudirect"].as_str()) {
            let _ = writeln!(out, "  cards    {direct}");
        }
        for sentence in self.all["between_servers"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            let _ = writeln!(out, "  {sentence}");
        }
        for (reason, bytes) in
            self.all["registered_memory"]["mirrored_bytes"].as_object().into_iter().flatten()
        {
            let size = binary(bytes.as_u64().unwrap_or(0));
            let _ = writeln!(
                out,
                "  {size} of registered memory that kernels use are mirrored on the server: {reason}"
            );
        }
        let _ = writeln!(out, "  copies   carried by plans of: {}", self.text("pipeline"));
        let _ = writeln!(
            out,
            "  time     {:.3} s since the session was opened, {:.3} s of it in {} for the server",
            seconds("seconds"),
            seconds("wait_seconds"),
            counted(self.number("waits"), "wait")
        );
        for line in self.device_times() {
            let _ = writeln!(out, "  {line}");
        }
        let waits = self.waits();
        if !waits.is_empty() {
            let _ = writeln!(out, "  waited for: {}", waits.join(", "));
        }
        let _ = writeln!(out, "  most often called: {}", self.most_often().join(", "));
        for warning in copies::warnings(&self.all) {
            let _ = writeln!(out, "  warning: {warning}");
        }
        out
    }

    /// What was waited for, a round trip each: the steps of opening the session, and then calls, the most
    /// frequent first.
    fn waits(&self) -> Vec<String> {
        let opening = self.all["round_trips"]["opening"].as_array().into_iter().flatten();
        let mut named: Vec<String> = opening.filter_map(Value::as_str).map(str::to_owned).collect();
        let all = self.all["round_trips"]["all"].as_object().into_iter().flatten();
        let mut calls: Vec<(u64, &str)> =
            all.filter_map(|(name, count)| Some((count.as_u64()?, name.as_str()))).collect();
        calls.sort_by_key(|(count, name)| (core::cmp::Reverse(*count), *name));
        calls.truncate(NAMED);
        named.extend(calls.into_iter().map(|(count, name)| format!("{name} {count}x")));
        named
    }

    /// What kernels and copies took on the devices, where it was asked for.
    fn device_times(&self) -> Vec<String> {
        let all = &self.all["device_time"];
        if !all.is_object() {
            return Vec::new();
        }
        let seconds = |value: &Value| value.as_f64().unwrap_or(0.0);
        let took = |field: &str| seconds(&all[field]["seconds"]);
        let kernels = all["kernels"]["count"].as_u64().unwrap_or(0);
        let mut lines = vec![
            format!("on the devices: {:.3} s in {}", took("kernels"), counted(kernels, "kernel")),
            format!(
                "copies there: {:.3} s to the device, {:.3} s from the device, {:.3} s within devices",
                took("to_device"),
                took("from_device"),
                took("within_device")
            ),
            format!(
                "devices were busy for {:.3} s, {:.3} s of it with kernels and copies at once",
                seconds(&all["busy_seconds"]),
                seconds(&all["overlap_seconds"])
            ),
        ];
        let mut kernels: Vec<_> = all["by_kernel"].as_object().into_iter().flatten().collect();
        kernels
            .sort_by(|first, second| seconds(&second.1["seconds"]).total_cmp(&seconds(&first.1["seconds"])));
        for (name, total) in kernels.into_iter().take(NAMED) {
            let count = total["count"].as_u64().unwrap_or(0);
            let name = kernel_name(name);
            lines.push(format!("  {:.3} s in {count} of {name}", seconds(&total["seconds"])));
        }
        if let Some(count @ 1..) = all["not_timed"].as_u64() {
            lines.push(match count {
                1 => "1 more launch or copy was not timed".to_owned(),
                _ => format!("{count} more launches and copies were not timed"),
            });
        }
        lines
    }

    /// Why nothing else carried the session.
    fn not_via(&self) -> String {
        let reasons = self.all["not_via"].as_object().into_iter().flatten();
        reasons.map(|(via, text)| format!("; not {via}: {}", text.as_str().unwrap_or("unknown"))).collect()
    }

    fn most_often(&self) -> Vec<String> {
        let mut functions: Vec<(u64, &str)> = self.all["calls"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, kinds)| {
                let counts = kinds.as_object().into_iter().flat_map(|kinds| kinds.values());
                (counts.filter_map(Value::as_u64).sum(), name.as_str())
            })
            .collect();
        functions.sort_by_key(|(count, name)| (core::cmp::Reverse(*count), *name));
        functions.truncate(NAMED);
        functions.into_iter().map(|(count, name)| format!("{name} {count}x")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_put_into_words() {
        let all = serde_json::json!({
            "device": "Causeway software GPU", "backend": "software GPU 0.1.0",
            "via": "tcp", "not_via": { "shm": "it is far" },
            "local": 20, "posted": 5, "called": 3, "waits": 4, "wait_seconds": 0.25, "seconds": 1.5,
            "bytes_to_device": 2048, "bytes_not_sent": 1024,
            "round_trips": { "opening": ["connection", "hello"], "all": { "cuMemAlloc": 1, "cuCtxSynchronize": 3 } },
            "copies": { "to_device": { "tcp": { "copies": 1, "bytes": 2 << 20 }, "pageable": { "copies": 1, "bytes": 2 << 20 } } },
            "bytes_from_device": 1024, "module_bytes": 100, "between_servers": ["device 1 copies by itself"],
            "registered_memory": { "shared_bytes": 5, "mirrored_bytes": { "it is read-only": 4096 } },
            "device_time": {
                "kernels": { "count": 7, "seconds": 0.5 }, "to_device": { "count": 2, "seconds": 0.125 },
                "busy_seconds": 0.6, "overlap_seconds": 0.025, "not_timed": 9,
                "by_kernel": { "short": { "count": 3, "seconds": 0.1 }, "_Z4longPf": { "count": 4, "seconds": 0.4 } },
            },
            "calls": { "cuLaunchKernel": { "posted": 5 }, "cuDeviceGetAttribute": { "local": 20, "called": 1 } },
        });
        let text = Report { all, processes: 1 }.summary();
        for part in [
            "Causeway software GPU (software GPU 0.1.0)",
            "via      tcp; not shm: it is far",
            "28: 20 answered locally, 5 posted without waiting, 3 called",
            "2 KiB to the device, 1 KiB from the device, 100 bytes of code",
            "spared   1 KiB of those to the device",
            "to the device: 2 MiB over TCP (1x)",
            "device 1 copies by itself",
            "4 KiB of registered memory that kernels use are mirrored on the server: it is read-only",
            "warning: 2 MiB of the bytes to the device (100 %) went from pageable memory",
            "0.250 s of it in 4 waits",
            "waited for: connection, hello, cuCtxSynchronize 3x, cuMemAlloc 1x",
            "cuDeviceGetAttribute 21x, cuLaunchKernel 5x",
            "on the devices: 0.500 s in 7 kernels\n  copies there: 0.125 s to the device",
            "busy for 0.600 s, 0.025 s of it with",
            "  0.400 s in 4 of long\n    0.100 s in 3 of short",
            "9 more launches and copies were not timed",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn one_of_a_kind_is_told_in_the_singular() {
        let all =
            serde_json::json!({ "waits": 1, "device_time": { "kernels": { "count": 1 }, "not_timed": 1 } });
        let text = Report { all, processes: 1 }.summary();
        for part in ["in 1 wait for the server", "in 1 kernel\n", "1 more launch or copy was not timed"] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn reports_of_several_processes_are_one() {
        let file = File::new().unwrap();
        assert!(matches!(file.read(), Err(ReportError::NotWritten)));
        for (number, calls) in
            [(1, r#"{"a": {"local": 1}}"#), (2, r#"{"a": {"local": 2}, "b": {"posted": 4}}"#)]
        {
            let text = format!(
                r#"{{"device": "one", "local": {number}, "wait_seconds": 0.25, "seconds": {number}.5, "calls": {calls}}}"#
            );
            std::fs::write(file.folder.path().join(format!("{number}.json")), text).unwrap();
        }
        let report = file.read().unwrap();
        let wanted = serde_json::json!({
            "device": "one", "local": 3, "wait_seconds": 0.5, "seconds": 2.5,
            "calls": { "a": { "local": 3 }, "b": { "posted": 4 } },
        });
        assert_eq!(report.all, wanted);
        assert!(report.summary().contains("of       2 processes"), "{}", report.summary());
    }
}
