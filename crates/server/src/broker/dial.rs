//! Where does the broker connect to for a worker, and how?
//!
//! A worker may make no connections itself: its client would use it to find out what there is in the server's
//! network. The broker connects to servers that hold the same key and have proved their address with it, to
//! those that its owner has named, and to Causeway's sockets on this host.

use core::str::FromStr;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use causeway_access::local::SOCKET_PREFIX;
use causeway_access::target::is_address_proof;
use causeway_access::{Endpoint, Key};
use causeway_connection::dial_here;
use causeway_connection::socket::dial_one_of;
use thiserror::Error;

/// The longest that a worker may have the broker wait.
const LONGEST: Duration = Duration::from_secs(10);

/// Addresses of other servers: one, or all that begin with the same bits; at one port, or at any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerRange {
    network: IpAddr,
    bits: u8,
    port: Option<u16>,
}

/// A text that names no [`PeerRange`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` names no other servers: give ADDRESS, ADDRESS:PORT, ADDRESS/BITS or ADDRESS/BITS:PORT, with an IPv6 address in brackets"
)]
pub struct BadPeerRange(String);

impl FromStr for PeerRange {
    type Err = BadPeerRange;

    fn from_str(text: &str) -> Result<Self, BadPeerRange> {
        Self::parse(text).ok_or_else(|| BadPeerRange(text.to_owned()))
    }
}

impl PeerRange {
    fn parse(text: &str) -> Option<Self> {
        let (address, rest) = match text.strip_prefix('[') {
            Some(text) => text.split_once(']')?,
            None => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
        };
        let (bits, port) = match rest.split_once(':') {
            Some((bits, port)) => (bits, Some(port.parse().ok()?)),
            None => (rest, None),
        };
        let network: IpAddr = address.parse().ok()?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits.strip_prefix('/') {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
            None if bits.is_empty() => most,
            None => return None,
        };
        Some(Self { network, bits, port })
    }

    fn contains(&self, address: SocketAddr) -> bool {
        let (ip, bits) = (address.ip().to_canonical(), u32::from(self.bits));
        let begins_alike = match (self.network, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                (network.to_bits() ^ ip.to_bits()).checked_shr(32 - bits).unwrap_or_default() == 0
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                (network.to_bits() ^ ip.to_bits()).checked_shr(128 - bits).unwrap_or_default() == 0
            }
            _ => false,
        };
        begins_alike && self.port.is_none_or(|port| port == address.port())
    }
}

/// Whether the broker connects to a network address for a worker. Without a key nobody has proved anything,
/// and whoever reaches the server may do as it likes.
pub fn may_dial(address: SocketAddr, key: Option<&Key>, proof: &[u8; 32], named: &[PeerRange]) -> bool {
    named.iter().any(|range| range.contains(address))
        || key.is_none_or(|key| is_address_proof(key, address, proof))
}

/// Whether the broker connects to a Unix socket for a worker: to those of servers, by their names.
fn may_reach(name: &str) -> bool {
    let file = name.strip_prefix('@').or_else(|| Path::new(name).file_name()?.to_str());
    file.is_some_and(|file| file.starts_with(SOCKET_PREFIX))
}

/// Connects for a worker.
///
/// # Errors
/// A sentence for the worker's client. Of addresses that are not connected to it says nothing more.
pub fn dial(
    endpoint: &Endpoint,
    timeout: Duration,
    proof: &[u8; 32],
    key: Option<&Key>,
    named: &[PeerRange],
) -> Result<OwnedFd, String> {
    let timeout = timeout.min(LONGEST);
    match endpoint {
        Endpoint::Unix(name) if may_reach(name) => {
            dial_here(endpoint, timeout).map(OwnedFd::from).map_err(|error| error.to_string())
        }
        Endpoint::Unix(name) => {
            Err(format!("{name} is no socket that the server connects to for its clients"))
        }
        Endpoint::Tcp { host, port } => {
            let found = (host.as_str(), *port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let mut addresses = found.unwrap_or_default();
            addresses.retain(|address| may_dial(*address, key, proof, named));
            if addresses.is_empty() {
                return Err(format!(
                    "the server does not connect to {endpoint}: it connects to servers that hold the same key and are reached by \
                     the same address as from the client, and to those that `causeway serve --peers` names"
                ));
            }
            dial_one_of(&addresses, timeout).map(OwnedFd::from).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::target::address_proof;

    fn range(text: &str) -> PeerRange {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_of_addresses_are_read_and_kept_to() {
        let contains = |text, address: &str| range(text).contains(address.parse().unwrap());
        assert!(contains("10.1.0.0/16", "10.1.255.255:1") && !contains("10.1.0.0/16", "10.2.0.0:1"));
        assert!(contains("10.1.2.3", "10.1.2.3:9") && !contains("10.1.2.3", "10.1.2.2:9"));
        assert!(contains("10.1.2.3:9", "10.1.2.3:9") && !contains("10.1.2.3:9", "10.1.2.3:8"));
        assert!(contains("0.0.0.0/0:9", "8.8.8.8:9") && !contains("0.0.0.0/0", "[::1]:9"));
        assert!(contains("[fd00::]/8", "[fd12::1]:9") && !contains("[fd00::]/8:1", "[fd12::1]:9"));
        assert!(contains("[::]/0", "[fd12::1]:9") && contains("10.0.0.0/8", "[::ffff:10.1.1.1]:9"));
        let wrong =
            ["", "host", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0:x", "::1", "[::1", "[::1]x", "[::1]/129"];
        assert!(wrong.iter().all(|text| text.parse::<PeerRange>().is_err()));
    }

    #[test]
    fn only_proved_and_named_addresses_are_connected_to() {
        let (key, address) = (Key::generate(), "10.0.0.1:7".parse().unwrap());
        let (proof, none) = (address_proof(&key, address), [0; 32]);
        assert!(may_dial(address, Some(&key), &proof, &[]) && !may_dial(address, Some(&key), &none, &[]));
        assert!(!may_dial("10.0.0.1:8".parse().unwrap(), Some(&key), &proof, &[]));
        assert!(!may_dial(address, Some(&Key::generate()), &proof, &[]));
        assert!(may_dial(address, Some(&key), &none, &[range("10.0.0.0/8")]));
        assert!(may_dial(address, None, &none, &[]));
    }

    #[test]
    fn an_address_that_was_not_proved_is_told_apart_from_nothing_that_was_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (key, second) = (Key::generate(), Duration::from_secs(1));
        let told = |port| {
            let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port };
            dial(&endpoint, second, &[0; 32], Some(&key), &[])
                .unwrap_err()
                .replace(&format!(":{port}:"), ":PORT:")
        };
        assert_eq!(told(port), told(1), "what listens and what does not is told in the same words");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody has come");
        let docker = Endpoint::Unix("/var/run/docker.sock".into());
        assert!(dial(&docker, second, &[0; 32], None, &[]).unwrap_err().contains("no socket that"));
    }
}
