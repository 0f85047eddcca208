//! `causeway trace`: a timeline of a program, here and on the devices.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use causeway_config::table;
use clap::Args;
use serde_json::{Value, json};
use tempfile::TempDir;
use thiserror::Error;

use crate::demangle::kernel_name;
use crate::launch;
use crate::run::{self, RunError};
use crate::server::ServerArguments;

/// Run a program and record a trace of its CUDA calls.
///
/// The file has a row for each thread of the program, with its calls and its waits for the server, and one
/// for each stream, with launches and copies as the device timed them. All rows share one clock; round trips
/// determine where the device's times lie on it. Perfetto (ui.perfetto.dev), Chrome (chrome://tracing) and
/// speedscope read the file. Tracing adds a few microseconds to each launch.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Output file.
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    output: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Why there is no trace.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The program was not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The program's processes have no place to leave their traces.
    #[error("cannot create a folder for the traces of the program's processes: {0}")]
    Folder(io::Error),
    /// The trace of a process cannot be read.
    #[error("cannot read the trace of a process: {0}")]
    Read(io::Error),
    /// The trace of a process makes no sense.
    #[error("the trace of a process is damaged: {0}")]
    Damaged(serde_json::Error),
    /// No process has left a trace.
    #[error("the program has left no trace: it made no call of the CUDA driver, or was killed")]
    Nothing,
    /// The file cannot be written.
    #[error("{}: cannot write the trace: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

impl TraceError {
    /// The exit code, as of `causeway run`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(error) => error.exit_code(),
            _ => 125,
        }
    }
}

/// Runs the program; returns with its exit code, or ends this process by the same signal.
pub fn trace(arguments: &Arguments) -> Result<ExitCode, TraceError> {
    // Before the program runs, which may take hours.
    let write = |cause| TraceError::Write { path: arguments.output.clone(), cause };
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&arguments.output);
    drop(file.map_err(write)?);
    let folder = TempDir::new().map_err(TraceError::Folder)?;
    let ran = run_traced(arguments, folder.path());
    if ran.is_err() {
        // It is empty; that it stays is no further trouble.
        let _ = std::fs::remove_file(&arguments.output);
    }
    let status = ran?;
    match gather(folder.path()).and_then(|traces| join(traces).ok_or(TraceError::Nothing)) {
        Ok(trace) => {
            std::fs::write(&arguments.output, format!("{trace}\n")).map_err(write)?;
            let lost = trace["otherData"]["lost"].as_u64().unwrap_or(0);
            let lost = if lost > 0 { format!(", {lost} more were discarded") } else { String::new() };
            let count = trace["traceEvents"].as_array().map_or(0, Vec::len);
            let file = arguments.output.display();
            // When nobody reads our standard error there is nobody to tell.
            let _ =
                writeln!(io::stderr(), "causeway: {file} has {count} events{lost}; ui.perfetto.dev shows it");
        }
        // How the program ended matters more than its trace.
        Err(error) => {
            let _ = std::fs::remove_file(&arguments.output);
            let _ = writeln!(io::stderr(), "causeway: {error}");
        }
    }
    Ok(launch::end_like(status))
}

/// Runs the program, whose processes leave their traces in `folder`.
fn run_traced(arguments: &Arguments, folder: &Path) -> Result<ExitStatus, RunError> {
    let (mut command, _servers) = run::prepare(&arguments.server, &arguments.program, false)?;
    command.env(table::TRACE.name, folder.join("%p.json"));
    Ok(launch::run_program(command)?)
}

/// The traces that the processes have left.
fn gather(folder: &Path) -> Result<Vec<Value>, TraceError> {
    let mut traces = Vec::new();
    for file in std::fs::read_dir(folder).map_err(TraceError::Read)? {
        let text = std::fs::read(file.map_err(TraceError::Read)?.path()).map_err(TraceError::Read)?;
        traces.push(serde_json::from_slice(&text).map_err(TraceError::Damaged)?);
    }
    Ok(traces)
}

/// One trace of several, whose times begin at 0; nothing where nothing was traced.
fn join(traces: Vec<Value>) -> Option<Value> {
    let lost: u64 = traces.iter().filter_map(|trace| trace["otherData"]["lost"].as_u64()).sum();
    let lists = traces.into_iter().filter_map(|mut trace| match trace["traceEvents"].take() {
        Value::Array(events) => Some(events),
        _ => None,
    });
    let mut events: Vec<Value> = lists.flatten().collect();
    let times = events.iter().filter_map(|event| event["ts"].as_f64());
    let first = times.min_by(f64::total_cmp)?;
    let mut names = HashMap::new();
    for event in &mut events {
        if let Some(time) = event["ts"].as_f64() {
            event["ts"] = json!(time - first);
        }
        if event["cat"] == "device" {
            demangle(event, &mut names);
        }
    }
    Some(json!({ "traceEvents": events, "displayTimeUnit": "ns", "otherData": { "lost": lost } }))
}

/// Gives a kernel the name of its source, and has its symbol in `args`. There may be a million events and a few names.
fn demangle(event: &mut Value, names: &mut HashMap<String, String>) {
    let Some(symbol) = event["name"].as_str() else { return };
    if !names.contains_key(symbol) {
        names.insert(symbol.to_owned(), kernel_name(symbol).into_owned());
    }
    if let Some(name) = names.get(symbol).filter(|name| *name != symbol) {
        event["args"] = json!({ "symbol": symbol });
        event["name"] = json!(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_the_names_of_their_sources() {
        let event =
            |name: &str, category: &str| json!({ "name": name, "cat": category, "ph": "X", "ts": 1.0 });
        let events = [event("_Z3addIfEvPT_", "device"), event("plain", "device"), event("_Z3addv", "call")];
        let joined = join(vec![json!({ "traceEvents": events })]).unwrap();
        let (kernel, others) = (&joined["traceEvents"][0], &joined["traceEvents"]);
        assert_eq!(
            (&kernel["name"], &kernel["args"]["symbol"]),
            (&json!("add<float>"), &json!("_Z3addIfEvPT_"))
        );
        assert_eq!((&others[1]["name"], &others[2]["name"]), (&json!("plain"), &json!("_Z3addv")));
        assert!(others[1]["args"].is_null());
    }

    #[test]
    fn traces_of_several_processes_are_one_that_begins_at_zero() {
        let trace = |time: f64, lost: u64| {
            let event = json!({ "name": "a", "ph": "X", "ts": time, "dur": 1.0 });
            let name = json!({ "name": "process_name", "ph": "M" });
            json!({ "traceEvents": [name, event], "otherData": { "lost": lost } })
        };
        let joined = join(vec![trace(1000.5, 1), trace(1002.5, 2)]).unwrap();
        let events = joined["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 4);
        assert_eq!((&events[1]["ts"], &events[3]["ts"]), (&json!(0.0), &json!(2.0)));
        assert_eq!(joined["otherData"]["lost"], 3);
        assert!(join(vec![json!({ "traceEvents": [] })]).is_none() && join(Vec::new()).is_none());
    }
}
