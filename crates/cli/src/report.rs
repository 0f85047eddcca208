//! What did a program do, in words and numbers?
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

/// How many functions are listed by name.
const NAMED: usize = 5;

/// Why there is nothing to report.
#[derive(Debug, Error)]
pub enum ReportError {
    /// No file can be made.
    #[error("no temporary file for the report can be made: {0}")]
    NoFile(io::Error),
    /// The program left no report.
    #[error(
        "there is no report of the program: it made no CUDA call, was ended by a signal, or did not use \
         our libcuda.so.1"
    )]
    NotWritten,
    /// The report cannot be understood.
    #[error("the report of the program cannot be understood: {0}")]
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

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("report.json")
    }

    /// Makes the program write its report here.
    pub fn ask_for(&self, command: &mut Command) {
        command.env(causeway_config::table::STATS.name, self.path());
    }

    /// Reads what the program has written.
    pub fn read(&self) -> Result<Report, ReportError> {
        let text = std::fs::read(self.path()).map_err(|_| ReportError::NotWritten)?;
        Ok(Report(serde_json::from_slice(&text).map_err(ReportError::Damaged)?))
    }
}

/// What a program did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report(Value);

impl Report {
    fn number(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or(0)
    }

    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or("unknown")
    }

    /// The module of the fabric that carried calls and copies.
    pub fn module(&self) -> Option<&str> {
        self.0["via"].as_str()
    }

    /// A few lines for people.
    pub fn summary(&self) -> String {
        let seconds = |field: &str| self.0[field].as_f64().unwrap_or(0.0);
        let calls = ["local", "posted", "called"].map(|kind| self.number(kind));
        let [local, posted, called] = calls;
        let total: u64 = calls.iter().sum();
        let bytes = |field: &str| binary(self.number(field));
        let mut out = String::new();
        // Writing to a string does not fail.
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
        for line in copies::paths(&self.0) {
            let _ = writeln!(out, "  {line}");
        }
        if let ("verbs", Some(direct)) = (self.text("via"), self.0["gpudirect"].as_str()) {
            let _ = writeln!(out, "  cards    {direct}");
        }
        for sentence in self.0["between_servers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let _ = writeln!(out, "  {sentence}");
        }
        let _ = writeln!(out, "  copies   carried by plans of: {}", self.text("pipeline"));
        let _ = writeln!(
            out,
            "  time     {:.3} s since the session was opened, {:.3} s of it in {} waits for the server",
            seconds("seconds"),
            seconds("wait_seconds"),
            self.number("waits")
        );
        let waits = self.waits();
        if !waits.is_empty() {
            let _ = writeln!(out, "  waited for: {}", waits.join(", "));
        }
        let _ = writeln!(out, "  most often called: {}", self.most_often().join(", "));
        for warning in copies::warnings(&self.0) {
            let _ = writeln!(out, "  warning: {warning}");
        }
        out
    }

    /// What was waited for, a round trip each: the steps of opening the session, and then calls, the most frequent
    /// first.
    fn waits(&self) -> Vec<String> {
        let opening = self.0["round_trips"]["opening"].as_array().into_iter().flatten();
        let mut named: Vec<String> = opening.filter_map(Value::as_str).map(str::to_owned).collect();
        let all = self.0["round_trips"]["all"].as_object().into_iter().flatten();
        let mut calls: Vec<(u64, &str)> =
            all.filter_map(|(name, count)| Some((count.as_u64()?, name.as_str()))).collect();
        calls.sort_by_key(|(count, name)| (core::cmp::Reverse(*count), *name));
        calls.truncate(NAMED);
        named.extend(calls.into_iter().map(|(count, name)| format!("{name} {count}x")));
        named
    }

    /// Why nothing else carried the session.
    fn not_via(&self) -> String {
        let reasons = self.0["not_via"].as_object().into_iter().flatten();
        reasons.map(|(via, text)| format!("; not {via}: {}", text.as_str().unwrap_or("unknown"))).collect()
    }

    fn most_often(&self) -> Vec<String> {
        let mut functions: Vec<(u64, &str)> = self.0["calls"]
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
        let report = Report(serde_json::json!({
            "device": "Causeway software GPU", "backend": "software GPU 0.1.0",
            "via": "tcp", "not_via": { "shm": "it is far" },
            "local": 20, "posted": 5, "called": 3, "waits": 4, "wait_seconds": 0.25, "seconds": 1.5,
            "bytes_to_device": 2048, "bytes_not_sent": 1024,
            "round_trips": { "opening": ["connection", "hello"], "all": { "cuMemAlloc": 1, "cuCtxSynchronize": 3 } },
            "copies": { "to_device": { "tcp": { "copies": 1, "bytes": 2 << 20 }, "pageable": { "copies": 1, "bytes": 2 << 20 } } },
            "bytes_from_device": 1024, "module_bytes": 100, "between_servers": ["device 1 copies by itself"],
            "calls": { "cuLaunchKernel": { "posted": 5 }, "cuDeviceGetAttribute": { "local": 20, "called": 1 } },
        }));
        let text = report.summary();
        for part in [
            "Causeway software GPU (software GPU 0.1.0)",
            "via      tcp; not shm: it is far",
            "28: 20 answered locally, 5 posted without waiting, 3 called",
            "2 KiB to the device, 1 KiB from the device, 100 bytes of code",
            "spared   1 KiB of those to the device",
            "to the device: 2 MiB over TCP (1x)",
            "device 1 copies by itself",
            "warning: 2 MiB of the bytes to the device (100 %) went from pageable memory",
            "0.250 s of it in 4 waits",
            "waited for: connection, hello, cuCtxSynchronize 3x, cuMemAlloc 1x",
            "cuDeviceGetAttribute 21x, cuLaunchKernel 5x",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }
}
