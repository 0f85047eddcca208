//! `causeway devices`: the GPUs of a server.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use causeway_access::Target;
use causeway_api::calls::COMMANDS;
use causeway_api::snapshot::{Device, Snapshot};
use causeway_doctor::print::binary;
use causeway_link::{ConnectError, Session, connect, describe_process};
use causeway_wire::codec::{DecodeError, Decoder};
use clap::Args;
use ratatui::crossterm::terminal;
use serde_json::{Value, json};
use thiserror::Error;

use crate::server::{ServerArguments, ServerError, connect_options};
use crate::status_query::ServerConnection;
use crate::waiting;

/// Numbers of `CUdevice_attribute` that are shown.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;

/// List the GPUs of a server, or of several.
///
/// If this client may use only part of a GPU's memory, both sizes are listed, as `4 GiB of 8 GiB`; the limit
/// applies to all GPUs of a server together. If no server is named, the GPUs are those of this machine's
/// service, if it runs, or of a private server with the software GPU. If one of several servers does not
/// respond, an error is printed, the others are listed, and the exit code is 1.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Print the transport that a session with this server uses, and why it uses no other.
    #[arg(short, long)]
    verbose: bool,
    /// Print all of it as JSON.
    #[arg(long)]
    json: bool,
}

/// Why there is no list.
#[derive(Debug, Error)]
pub enum DevicesError {
    /// There is no server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The server gives no session.
    #[error(transparent)]
    Session(#[from] ConnectError),
    /// The server's list makes no sense.
    #[error("malformed list of devices from the server: {0}")]
    Damaged(#[from] DecodeError),
    /// Nobody reads the list.
    #[error("cannot print the list: {0}")]
    Print(#[from] io::Error),
}

/// Prints the list.
pub fn devices(arguments: &Arguments) -> Result<ExitCode, DevicesError> {
    let servers = arguments.server.servers_or_service()?;
    arguments.server.report_private(&servers)?;
    // What a program reads is complete.
    let width = terminal::size().ok().filter(|_| io::stdout().is_terminal());
    let width = width.map_or(usize::MAX, |(columns, _)| usize::from(columns));
    let mut out = io::stdout().lock();
    let mut first = 0;
    let mut all = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for target in &servers.targets {
        let (session, snapshot, limit) = match ask(arguments, target) {
            Ok(found) => found,
            // The others are shown all the same.
            Err(error) if servers.targets.len() > 1 => {
                if arguments.json {
                    all.push(json!({
                        "server": target.endpoint.to_string(),
                        "name": target.name,
                        "error": error.to_string(),
                    }));
                }
                let _ = writeln!(io::stderr(), "causeway: {error}");
                code = ExitCode::FAILURE;
                continue;
            }
            Err(error) => return Err(error),
        };
        if arguments.json {
            all.push(to_json(target, &session, &snapshot, limit, first));
            first += snapshot.devices.len();
            continue;
        }
        writeln!(out, "{} at {target}, CUDA {}", snapshot.backend, cuda_version(&snapshot))?;
        for line in table(&snapshot.devices, limit, first, width) {
            writeln!(out, "{line}")?;
        }
        first += snapshot.devices.len();
        if arguments.verbose {
            writeln!(out, "via {}", session.link.kind())?;
            for reason in &session.reasons {
                writeln!(out, "not via {}: {}", reason.kind, reason.text)?;
            }
        }
    }
    if arguments.json {
        writeln!(out, "{:#}", json!({ "servers": all }))?;
    }
    Ok(code)
}

/// What a server has, as JSON.
fn to_json(
    target: &Target,
    session: &Session,
    snapshot: &Snapshot,
    limit: Option<u64>,
    first: usize,
) -> Value {
    let devices = snapshot.devices.iter().enumerate().map(|(number, device)| {
        let attribute = |number| attribute(device, number);
        let capability = attribute(CAPABILITY_MAJOR).zip(attribute(CAPABILITY_MINOR));
        json!({
            "number": first + number,
            "name": device.name.to_string(),
            "memory_bytes": device.total_memory,
            "capability": capability.map(|(major, minor)| format!("{major}.{minor}")),
            "multiprocessors": attribute(MULTIPROCESSORS),
            "pci": device.pci_bus_id.to_string(),
            "uuid": device.uuid_text(),
        })
    });
    let reasons = session.reasons.iter();
    json!({
        "server": target.endpoint.to_string(),
        "name": target.name,
        "back_end": snapshot.backend.to_string(),
        "cuda": cuda_version(snapshot),
        "memory_limit_bytes": limit,
        "via": session.link.kind().to_string(),
        "not_via": reasons.map(|reason| json!({ "transport": reason.kind.to_string(), "reason": reason.text })).collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
    })
}

fn cuda_version(snapshot: &Snapshot) -> String {
    let version = snapshot.driver_version;
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A device's attribute, if the server tells it.
fn attribute(device: &Device, number: i32) -> Option<i32> {
    device.attributes.iter().find(|(attribute, _)| *attribute == number).map(|(_, value)| *value)
}

/// Asks a server what it has, by a session that ends at once, and how much device memory this client may have.
fn ask(arguments: &Arguments, target: &Target) -> Result<(Session, Snapshot, Option<u64>), DevicesError> {
    let hello = describe_process(COMMANDS, Vec::new());
    let via = arguments.server.via(target).map_err(ServerError::from)?;
    let session = waiting::with_notice(target, || connect(target, hello, &connect_options(via)))?;
    let snapshot = Decoder::new(&session.welcome.snapshot).value();
    session.link.close();
    let limit = ServerConnection::connect(target).and_then(|mut server| server.device_memory_limit());
    // A server of before does not know the question.
    let limit = limit.inspect_err(|error| tracing::debug!("the limits are not known: {error}"));
    Ok((session, snapshot?, limit.ok().flatten()))
}

/// A device's memory, and how much of it this client may have, where that is less.
fn memory(total: u64, limit: Option<u64>) -> String {
    match limit {
        Some(limit) if limit < total => format!("{} of {}", binary(limit), binary(total)),
        _ => binary(total),
    }
}

/// The lines of the table, with columns as wide as they must be. The devices are numbered from `first` on, as a program
/// numbers those of several servers. As many columns are shown as fit a width; name and memory always are.
fn table(devices: &[Device], limit: Option<u64>, first: usize, width: usize) -> Vec<String> {
    const GAP: usize = 2;
    const MIN_COLUMNS: usize = 3;
    let head = ["no", "name", "memory", "capability", "multiprocessors", "PCI", "UUID"].map(str::to_owned);
    let rows: Vec<[String; 7]> = devices
        .iter()
        .enumerate()
        .map(|(number, device)| {
            let attribute = |number: i32| {
                attribute(device, number).map_or_else(|| "?".to_owned(), |value| value.to_string())
            };
            [
                (first + number).to_string(),
                device.name.to_string(),
                memory(device.total_memory, limit),
                format!("{}.{}", attribute(CAPABILITY_MAJOR), attribute(CAPABILITY_MINOR)),
                attribute(MULTIPROCESSORS),
                device.pci_bus_id.to_string(),
                device.uuid_text(),
            ]
        })
        .collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or_default()
        })
        .collect();
    let fits = |columns: &usize| widths[..*columns].iter().sum::<usize>() + GAP * (columns - 1) <= width;
    let visible = (MIN_COLUMNS..=head.len()).rev().find(fits).unwrap_or(MIN_COLUMNS);
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths[..visible]).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    [&head].into_iter().chain(&rows).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let device = Device {
            name: "NVIDIA H200".into(),
            total_memory: 141 << 30,
            pci_bus_id: "0000:3b:00.0".into(),
            attributes: vec![(75, 9), (76, 0), (16, 132)],
            ..Device::default()
        };
        let narrow = table(core::slice::from_ref(&device), None, 0, 80);
        assert_eq!(narrow[1], "0   NVIDIA H200  141 GiB  9.0         132              0000:3b:00.0");
        assert_eq!(table(core::slice::from_ref(&device), None, 0, 10)[1], "0   NVIDIA H200  141 GiB");
        let limited = |limit| table(core::slice::from_ref(&device), Some(limit), 0, 10).remove(1);
        assert_eq!(limited(4 << 30), "0   NVIDIA H200  4 GiB of 141 GiB");
        assert_eq!(limited(200 << 30), "0   NVIDIA H200  141 GiB");
        let lines = table(&[device], None, 0, usize::MAX);
        assert_eq!(lines[0], "no  name         memory   capability  multiprocessors  PCI           UUID");
        assert_eq!(
            lines[1],
            "0   NVIDIA H200  141 GiB  9.0         132              0000:3b:00.0  \
             GPU-00000000-0000-0000-0000-000000000000"
        );
    }
}
