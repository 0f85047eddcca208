//! Output of results: tables on standard output, files in a folder, and an exit code.

use super::error::ResultsError;
use causeway_measure::files::{self, FilesError};
use std::io::{self, Write as _};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_access::{Endpoint, Target};
use causeway_measure::reference::{Rate, line_rate, memory_copy};
use nix::ifaddrs::getifaddrs;

/// Makes the folder for results, before anything is measured.
pub fn prepare(folder: &Path) -> Result<(), ResultsError> {
    Ok(files::prepare(folder)?)
}

/// Prints tables, or JSON with nothing beside it, and has files written if a folder is named.
pub fn tables(
    text: &str,
    is_json: bool,
    folder: Option<&Path>,
    write: impl FnOnce(&Path) -> Result<Vec<PathBuf>, FilesError>,
) -> Result<(), ResultsError> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(ResultsError::Print)?;
    if let Some(folder) = folder {
        let written = files::listed(&write(folder)?);
        let reported =
            if is_json { writeln!(io::stderr(), "{written}") } else { writeln!(io::stdout(), "\n{written}") };
        reported.map_err(ResultsError::Print)?;
    }
    Ok(())
}

/// Prints what went wrong; the exit code says whether anything did.
pub fn errors(errors: &[String]) -> ExitCode {
    for error in errors {
        // When nobody reads our standard error the exit code still tells.
        let _ = writeln!(io::stderr(), "causeway: {error}");
    }
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This machine's memory, and the networks to servers.
pub fn references(servers: &[Target]) -> Vec<Rate> {
    let mut rates: Vec<_> = memory_copy().into_iter().collect();
    for rate in servers.iter().filter_map(network) {
        if !rates.contains(&rate) {
            rates.push(rate);
        }
    }
    rates
}

/// The rate of the interface through which packets to a server leave; none for servers of this machine, and where
/// the kernel knows no rate.
fn network(server: &Target) -> Option<Rate> {
    let Endpoint::Tcp { host, port } = &server.endpoint else { return None };
    // Connecting sends nothing: the kernel chooses the way.
    let socket =
        UdpSocket::bind((IpAddr::from([0_u8; 16]), 0)).or_else(|_| UdpSocket::bind("0.0.0.0:0")).ok()?;
    socket.connect((host.as_str(), *port)).ok()?;
    let own = socket.local_addr().ok()?.ip().to_canonical();
    let interface = getifaddrs().ok()?.find(|interface| {
        let address = interface.address.as_ref();
        let v4 = address.and_then(|address| address.as_sockaddr_in()).map(|address| IpAddr::V4(address.ip()));
        let v6 =
            address.and_then(|address| address.as_sockaddr_in6()).map(|address| IpAddr::V6(address.ip()));
        v4.or(v6) == Some(own)
    })?;
    let name = interface.interface_name;
    let speed = std::fs::read_to_string(Path::new("/sys/class/net").join(&name).join("speed")).ok()?;
    line_rate(&name, &speed)
}

#[cfg(test)]
mod references_tests {
    use super::*;

    #[test]
    fn there_is_always_memory_to_compare_with_and_loopback_is_no_network() {
        let servers = Target::list("127.0.0.1:1?insecure-no-key,unix:@x").unwrap();
        let rates = references(&servers);
        assert!(matches!(rates.as_slice(), [memory] if memory.name.starts_with("memory copy")), "{rates:?}");
    }
}
