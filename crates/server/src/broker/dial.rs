//! Outgoing connections that the broker makes for workers.
//!
//! A worker may make no connections itself: its client would use it to find out what there is in the server's
//! network. The broker connects to servers that hold the same key and have proved their address with it, to
//! those that its owner has named, and to sockets of this host at which a server of the same user listens that
//! proves the same key.

use core::str::FromStr;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use causeway_access::local::is_socket_name;
use causeway_access::target::is_address_proof;
use causeway_access::{Endpoint, Key};
use causeway_connection::host_socket::{connect_named, peer_credentials, request_proof};
use causeway_connection::socket::dial_one_of;
use thiserror::Error;

/// The longest that a worker may have the broker wait.
const MAX_DIAL_TIME: Duration = Duration::from_secs(10);

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
        let max_bits = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits.strip_prefix('/') {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= max_bits)?,
            None if bits.is_empty() => max_bits,
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

/// Whether the broker looks at a Unix socket for a worker: one whose name is that of a server, abstract or in
/// the folder of this server's own. Whether there is one elsewhere, a client does not find out.
fn may_connect(name: &str, folder: Option<&Path>) -> bool {
    match name.strip_prefix('@') {
        Some(name) => is_socket_name(name),
        None => {
            let path = Path::new(name);
            folder.is_some_and(|folder| path.parent() == Some(folder))
                && path.file_name().and_then(OsStr::to_str).is_some_and(is_socket_name)
        }
    }
}

/// Connects to a server of this host, which has shown that it is one with the same key and of this user.
fn connect_to_server(name: &str, timeout: Duration, key: Option<&Key>) -> io::Result<OwnedFd> {
    let stream = connect_named(name, timeout)?;
    let own = rustix::process::geteuid().as_raw();
    if peer_credentials(&stream).is_none_or(|listener| listener.uid != own) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
    }
    request_proof(&stream, key, timeout)?;
    Ok(stream.into())
}

/// What the broker knows that decides where it connects to.
#[derive(Debug)]
pub struct Known<'a> {
    /// The server's key, if it has one.
    pub key: Option<Key>,
    /// The servers that its owner has named.
    pub named: &'a [PeerRange],
    /// The folder of its own socket for processes of this host.
    pub folder: Option<&'a Path>,
}

/// Connects for a worker. Nothing is looked up before it is known that it may be: a name of the network could
/// be anybody's, and so an address is wanted.
///
/// # Errors
/// A sentence for the worker's client. It does not say more about an address that is not connected to.
pub fn dial(
    endpoint: &Endpoint,
    timeout: Duration,
    proof: &[u8; 32],
    known: &Known<'_>,
) -> Result<OwnedFd, String> {
    let timeout = timeout.min(MAX_DIAL_TIME);
    match endpoint {
        Endpoint::Unix(name) => {
            let refused = || {
                format!(
                    "the server does not connect to a socket of this name for its clients, only to sockets \
                     of servers of its own user with the same key that are abstract or in its own folder \
                     ({endpoint})"
                )
            };
            if !may_connect(name, known.folder) {
                return Err(refused());
            }
            connect_to_server(name, timeout, known.key.as_ref()).map_err(|error| {
                tracing::debug!("no connection to {name} for a worker: {error}");
                refused()
            })
        }
        Endpoint::Tcp { host, port } => {
            let refused = |why: &str| Err(format!("the server does not connect to {endpoint}: {why}"));
            let Ok(ip) = host.parse::<IpAddr>() else {
                return refused("it is a host name, and servers connect only to addresses for their clients");
            };
            let address = SocketAddr::new(ip, *port);
            if !may_dial(address, known.key.as_ref(), proof, known.named) {
                return refused(
                    "it connects only to servers with the same key that have the same address as seen from \
                     the client, and to those that `causeway serve --peers` names",
                );
            }
            dial_one_of(&[address], timeout).map(OwnedFd::from).map_err(|error| error.to_string())
        }
        // The number means another machine here than it does to the client.
        Endpoint::Vsock(_) => {
            Err(format!("the server does not connect to {endpoint}: servers reach each other over a network"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::target::{address_proof, socket_proof};
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

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
        let known = Known { key: Some(key), named: &[], folder: None };
        let told = |port| {
            let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port };
            dial(&endpoint, second, &[0; 32], &known).unwrap_err().replace(&format!(":{port}:"), ":PORT:")
        };
        assert_eq!(told(port), told(1), "what listens and what does not is told in the same words");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody has come");
        let name = Endpoint::Tcp { host: "localhost".into(), port };
        let anybody = Known { key: None, named: &["0.0.0.0/0".parse().unwrap()], folder: None };
        assert!(dial(&name, second, &[0; 32], &anybody).unwrap_err().contains("it is a host name"));
        assert!(listener.accept().is_err(), "nobody has come");
    }

    #[test]
    fn only_names_of_servers_in_the_own_folder_are_looked_at() {
        let own = Some(Path::new("/run/causeway"));
        for name in ["@causeway-1", "/run/causeway/causeway-1.sock"] {
            assert!(may_connect(name, own), "{name}");
        }
        for name in [
            "@dbus",
            "@causeway-",
            "@causeway-1/2",
            "/run/docker.sock",
            "/run/causeway/causeway-.sock",
            "/",
            "",
        ] {
            assert!(!may_connect(name, own), "{name}");
        }
        assert!(
            !may_connect("/tmp/causeway-1.sock", own)
                && !may_connect("/run/causeway/../causeway-1.sock", own)
        );
        assert!(!may_connect("/run/causeway/causeway-1.sock", None));
    }

    #[test]
    fn a_socket_is_handed_on_only_where_a_server_with_the_same_key_listens() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = folder.join("causeway-1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(&path, folder.join("causeway-2.sock")).unwrap();
        let (key, second) = (Key::generate(), Duration::from_secs(20));
        let known = |key: &Key| Known { key: Some(key.clone()), named: &[], folder: Some(&folder) };
        let (same, other) = (known(&key), known(&Key::generate()));
        let reach = |name: &str, known: &Known<'_>| {
            dial(&Endpoint::Unix(folder.join(name).to_str().unwrap().into()), second, &[0; 32], known)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2 {
                    let (mut caller, _) = listener.accept().unwrap();
                    let mut asked = [0; 40];
                    caller.read_exact(&mut asked).unwrap();
                    let proof = socket_proof(Some(&key), asked.last_chunk().unwrap());
                    caller.write_all(&[b"CSWY\0\0\0\0".as_slice(), &proof].concat()).unwrap();
                }
            });
            assert!(reach("causeway-1.sock", &same).is_ok());
            let refused = reach("causeway-1.sock", &other).unwrap_err();
            assert!(refused.contains("with the same key"), "{refused}");
        });
        listener.set_nonblocking(true).unwrap();
        let refusals = ["causeway-2.sock", "causeway-3.sock"]
            .map(|name| reach(name, &same).unwrap_err().replace(name, "NAME"));
        assert_eq!(refusals[0], refusals[1], "what is there and what is not is told in the same words");
        assert!(listener.accept().is_err(), "nobody has come by the link");
    }
}
