//! Bootstrap over TCP. Over TCP, at hosts that the user names.
//!
//! A rank listens at one of a few ports that follow from the job's nonce and its number. Whoever looks for it
//! tries these ports at each of the hosts, and knows it by its proof. Bytes travel as they are, like the
//! MPI's own: the network between the hosts has to be one that no other host can read.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use causeway_sync::descriptors::above_stdio;

use super::address::SocketAddress;
use super::error::BootstrapError;
use super::hello::{self, Expected};
use super::socket::Connection;
use super::stream::Stream;
use crate::board::Slot;
use crate::job::Job;

/// Ports of a rank: others may have some of them.
const PORTS: u8 = 8;

/// How long a host may take to answer. One that does not is not asked for the other ports.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Listens for ranks of other hosts.
///
/// # Errors
/// When none of the rank's ports is free.
pub(super) fn listen(job: &Job, rank: u32) -> io::Result<(SocketAddress, TcpListener)> {
    let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
    let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    for port in (0..PORTS).map(|attempt| job.port(rank, attempt)) {
        // One for both versions where the host has both.
        for address in any {
            match TcpListener::bind(SocketAddr::new(address, port)).and_then(above_stdio) {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    return Ok((SocketAddress::Network(listener.local_addr()?), listener));
                }
                Err(error) => failure = error,
            }
        }
    }
    Err(failure)
}

/// Looks for a rank at these hosts, and proves to be this one.
///
/// # Errors
/// Why it was found at none of them.
pub fn connect_over_network(
    job: &Job,
    own: &Slot,
    rank: u32,
    hosts: &[String],
) -> Result<Connection, Vec<BootstrapError>> {
    let mut failures = Vec::new();
    for host in hosts {
        let addresses = match (host.as_str(), 0).to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(cause) => {
                failures.push(BootstrapError::Host { host: host.clone(), cause });
                continue;
            }
        };
        for address in addresses {
            for port in (0..PORTS).map(|attempt| job.port(rank, attempt)) {
                let address = SocketAddr::new(address.ip(), port);
                match connect(address, job, own, rank) {
                    Ok(connection) => return Ok(connection),
                    Err(failure) => {
                        let is_silent = matches!(
                            &failure,
                            BootstrapError::Unreachable { cause, .. }
                                if cause.kind() != io::ErrorKind::ConnectionRefused
                        );
                        failures.push(failure);
                        if is_silent {
                            break;
                        }
                    }
                }
            }
        }
    }
    if failures.is_empty() {
        failures.push(BootstrapError::NoHosts { rank });
    }
    Err(failures)
}

fn connect(remote: SocketAddr, job: &Job, own: &Slot, rank: u32) -> Result<Connection, BootstrapError> {
    let address = SocketAddress::Network(remote);
    let unreachable = |cause| BootstrapError::Unreachable { rank, address: address.clone(), cause };
    let stream =
        TcpStream::connect_timeout(&remote, CONNECT_TIMEOUT).and_then(above_stdio).map_err(unreachable)?;
    let stream = Stream::over_network(stream).map_err(unreachable)?;
    let expected = Expected { rank, process: None };
    hello::introduce(stream, address.clone(), job, own, expected).map_err(|cause| BootstrapError::Imposter {
        rank,
        address,
        cause,
    })
}
