//! `fabric-perf`: benchmark of two RDMA devices by queue pairs, capacities and MTUs.
//!
//! | module | contents |
//! | --- | --- |
//! | `arguments` | Command line |
//! | `case` | Cases: the settings of one measurement |
//! | `sweep` | Sweep: the settings that are compared with each other |
//! | `control` | Control connection between the two ends, over TCP, beside the one that is measured |
//! | `endpoint` | Endpoint: device, memory, queue pairs |
//! | `traffic` | Traffic of one repetition, at the end that measures and at the other one |
//! | `dialogue` | Request and reply messages |
//! | `trips` | Round-trip latency |
//! | `poll_deadline` | Poll deadline |
//! | `content` | Check of the bytes that have arrived |
//! | `link` | Measurements of the messages and the memory of Causeway's own links |
//! | `initiator` | The end that measures: `fabric-perf --to HOST` |
//! | `measure_error` | Errors of a measurement |
//! | `endpoints` | Endpoint pair: connection of both ends, and one repetition from the initiator |
//! | `responder` | Responder: `fabric-perf --listen` |
//! | `perftest` | perftest's programs, run beside, and their parsed results |
//! | `results` | Results between two cards, and their conclusions |
//! | `averages` | Averages over bands of sizes: what a setting gains |
//! | `report` | Report for people and programs |
//! | `plots` | Plots |

mod arguments;
mod averages;
mod case;
mod content;
mod control;
mod dialogue;
mod endpoint;
mod endpoints;
mod initiator;
mod link;
mod measure_error;
mod perftest;
mod plots;
mod poll_deadline;
mod report;
mod responder;
mod results;
mod sweep;
mod traffic;
mod trips;

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;

use causeway_measure::files::{self, FilesError};
use clap::Parser as _;
use thiserror::Error;

use arguments::Arguments;
use control::DEFAULT_PORT;
use initiator::{SweepSpec, measure};
use measure_error::MeasureError;
use responder::{ListenError, listen};

/// Why nothing was measured, or results are lost.
#[derive(Debug, Error)]
enum FabricPerfError {
    /// An address makes no sense.
    #[error("`{text}` is not an address of a machine: {cause}")]
    Address { text: String, cause: io::Error },
    /// Nobody is served.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Nothing was measured.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The results cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("cannot print the results: {0}")]
    Print(io::Error),
}

fn main() -> ExitCode {
    match carry_out(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // When nobody reads our standard error the exit code still tells.
            let _ = writeln!(io::stderr(), "fabric-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Listens, or measures.
fn carry_out(arguments: &Arguments) -> Result<(), FabricPerfError> {
    let device = arguments.device.as_deref();
    if let Some(text) = &arguments.listen {
        let say = |line: &str| {
            // Serving goes on when nobody reads.
            let _ = writeln!(io::stdout().lock(), "{line}");
        };
        return Err(listen(address(text)?, device, say).into());
    }
    let to = address(arguments.to.as_deref().unwrap_or_default())?;
    if let Some(folder) = &arguments.out {
        files::prepare(folder)?;
    }
    let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let run = measure(SweepSpec {
        to,
        device: device.map(str::to_owned),
        varied: arguments.varied(),
        cases: arguments.cases(),
        repetitions: arguments.repetitions(),
        tools: arguments.through.clone(),
        command: words.join(" "),
    })?;
    let mut out = io::stdout().lock();
    out.write_all(report::text(&run).as_bytes()).map_err(FabricPerfError::Print)?;
    if let Some(folder) = &arguments.out {
        let written = files::listed(&report::write(folder, &run)?);
        writeln!(out, "\n{written}").map_err(FabricPerfError::Print)?;
    }
    Ok(())
}

/// An address of a machine, with a port or without.
fn address(text: &str) -> Result<SocketAddr, FabricPerfError> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, DEFAULT_PORT));
    }
    let found =
        if text.contains(':') { text.to_socket_addrs() } else { (text, DEFAULT_PORT).to_socket_addrs() };
    let failed = |cause| FabricPerfError::Address { text: text.to_owned(), cause };
    let mut found = found.map_err(failed)?;
    found.next().ok_or_else(|| failed(io::Error::other("it has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_whether_or_not_one_is_named() {
        let port = |text: &str| address(text).unwrap().to_string();
        assert_eq!(port("10.0.0.1"), "10.0.0.1:7691");
        assert_eq!(port("10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(port("fe80::1"), "[fe80::1]:7691");
        assert_eq!(port("[fe80::1]:80"), "[fe80::1]:80");
        assert_eq!(port("localhost").rsplit(':').next(), Some("7691"));
        assert!(address("no such host").is_err());
    }
}
