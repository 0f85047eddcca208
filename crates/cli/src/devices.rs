//! Which GPUs does a server have?

use std::io::{self, Write as _};
use std::process::ExitCode;

use causeway_access::Target;
use causeway_api::coverage::FINGERPRINT;
use causeway_api::snapshot::{Device, Snapshot};
use causeway_doctor::print::binary;
use causeway_link::{ConnectError, Session, connect, describe_process};
use causeway_wire::codec::{DecodeError, Decoder};
use clap::Args;
use thiserror::Error;

use crate::server::{ServerArguments, ServerError, connect_options};

/// Numbers of `CUdevice_attribute` that are shown.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;

/// List the GPUs of a server, or of several.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Say what carries a session with this server, and why nothing else does.
    #[arg(short, long)]
    verbose: bool,
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
    #[error("the server's list of devices cannot be understood: {0}")]
    Damaged(#[from] DecodeError),
    /// Nobody reads the list.
    #[error("the list cannot be printed: {0}")]
    Print(#[from] io::Error),
}

/// Prints the list.
pub fn devices(arguments: &Arguments) -> Result<ExitCode, DevicesError> {
    let servers = arguments.server.servers(false)?;
    let mut out = io::stdout().lock();
    let mut first = 0;
    for target in &servers.targets {
        let (session, snapshot) = ask(arguments, target)?;
        let version = snapshot.driver_version;
        writeln!(out, "{} at {}, CUDA {}.{}", snapshot.backend, target, version / 1000, version % 1000 / 10)?;
        for line in table(&snapshot.devices, first) {
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
    Ok(ExitCode::SUCCESS)
}

/// Asks a server what it has, by a session that ends at once.
fn ask(arguments: &Arguments, target: &Target) -> Result<(Session, Snapshot), DevicesError> {
    let hello = describe_process(FINGERPRINT, Vec::new());
    let session = connect(target, hello, &connect_options(arguments.server.via))?;
    let snapshot = Decoder::new(&session.welcome.snapshot).value();
    session.link.close();
    Ok((session, snapshot?))
}

/// The lines of the table, with columns as wide as they must be. The devices are numbered from `first` on, as a program
/// numbers those of several servers.
fn table(devices: &[Device], first: usize) -> Vec<String> {
    let head = ["no", "name", "memory", "capability", "multiprocessors", "PCI", "UUID"].map(str::to_owned);
    let rows: Vec<[String; 7]> = devices
        .iter()
        .enumerate()
        .map(|(number, device)| {
            let attribute = |wanted: i32| {
                let found = device.attributes.iter().find(|(attribute, _)| *attribute == wanted);
                found.map_or_else(|| "?".to_owned(), |(_, value)| value.to_string())
            };
            [
                (first + number).to_string(),
                device.name.to_string(),
                binary(device.total_memory),
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
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
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
        let lines = table(&[device], 0);
        assert_eq!(lines[0], "no  name         memory   capability  multiprocessors  PCI           UUID");
        assert_eq!(
            lines[1],
            "0   NVIDIA H200  141 GiB  9.0         132              0000:3b:00.0  \
             GPU-00000000-0000-0000-0000-000000000000"
        );
    }
}
