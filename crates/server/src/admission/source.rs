//! Origin of a connection (network address, or credentials of a local process), and the group of origins that
//! share a limit.

use core::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;

use causeway_access::keys::groups::GroupName;
use causeway_access::{ClientName, VsockAddress};
use causeway_connection::host_socket::peer_credentials;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::handshake::KeyId;

/// What callers have in common who share what one of them may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An address of the network. Of an IPv6 address only the first 64 bits count: whoever has one address of
    /// such a network can have all (RFC 4291, 2.5.1).
    Network(IpAddr),
    /// A virtual machine of this host, or this guest's host, by its number (CID).
    Machine(u32),
    /// A client with a key of its own, wherever it comes from.
    Client(ClientName),
    /// A user of this host; `u32::MAX` is nobody, of whom the kernel says nothing.
    User(u32),
}

impl Source {
    /// That of a caller.
    pub fn of(origin: Origin) -> Self {
        match origin {
            Origin::Network(NetworkAddress::Ip(address)) => Self::of_address(address.ip()),
            Origin::Network(NetworkAddress::Vsock(address)) => Self::Machine(address.cid),
            Origin::Client { name, .. } => Self::Client(name),
            Origin::Host { user, .. } => Self::User(user),
        }
    }

    /// That of an address.
    pub fn of_address(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(IpAddr::V4(address)) => address.fmt(f),
            Self::Network(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::Machine(cid) => write!(f, "vsock:{cid}"),
            Self::Client(name) => write!(f, "client {name}"),
            Self::User(user) => write!(f, "user {user} of its host"),
        }
    }
}

/// Whose sessions a limit bounds together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitScope {
    /// Those of one peer.
    Peer(Source),
    /// Those of all members of a group.
    Group(GroupName),
}

const NETWORK: u8 = 1;
const USER: u8 = 2;
const CLIENT: u8 = 3;
const MACHINE: u8 = 4;

impl Encode for Source {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Network(address) => {
                NETWORK.encode(out);
                let address = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => *address,
                };
                address.octets().encode(out);
            }
            Self::User(user) => {
                USER.encode(out);
                user.encode(out);
            }
            Self::Machine(cid) => {
                MACHINE.encode(out);
                cid.encode(out);
            }
            Self::Client(name) => {
                CLIENT.encode(out);
                name.as_str().encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for Source {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            NETWORK => Ok(Self::of_address(IpAddr::from(input.value::<[u8; 16]>()?))),
            USER => Ok(Self::User(input.value()?)),
            MACHINE => Ok(Self::Machine(input.value()?)),
            CLIENT => {
                let name: ClientName =
                    input.value::<&str>()?.parse().map_err(|_| DecodeError::MalformedText)?;
                Ok(Self::Client(name))
            }
            other => Err(DecodeError::UnknownTag { what: "source of callers", value: u64::from(other) }),
        }
    }
}

/// The address of a caller on a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkAddress {
    /// Over TCP.
    Ip(SocketAddr),
    /// Over vsock, from a virtual machine or its host.
    Vsock(VsockAddress),
}

impl NetworkAddress {
    /// The machine that has it. What it has of ports, any of its programs may use; of a vsock it is left in, since a number
    /// alone names none.
    pub fn machine(&self) -> String {
        match self {
            Self::Ip(address) => address.ip().to_string(),
            Self::Vsock(address) => address.to_string(),
        }
    }
}

impl From<SocketAddr> for NetworkAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Vsock(address) => address.fmt(f),
        }
    }
}

/// Where a caller comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From a network address.
    Network(NetworkAddress),
    /// A client that has proved who it is by a key of its own.
    Client {
        /// Its name.
        name: ClientName,
        /// Which of its keys that was.
        key: KeyId,
        /// From where.
        address: NetworkAddress,
    },
    /// From this host, at a Unix socket.
    Host {
        /// The process that connected; 0 where it is of another namespace.
        process: i32,
        /// Its user.
        user: u32,
        /// Its first group.
        group: u32,
    },
}

impl Origin {
    /// The client that has proved who it is by a key of its own.
    pub fn client(&self) -> Option<ClientName> {
        match self {
            Self::Client { name, .. } => Some(*name),
            Self::Network(_) | Self::Host { .. } => None,
        }
    }

    /// That of whoever is at the other end of a Unix socket. One of whom the kernel says nothing is nobody.
    pub fn of_local(stream: &UnixStream) -> Self {
        match peer_credentials(stream) {
            Some(peer) => Self::Host { process: peer.pid, user: peer.uid, group: peer.gid },
            None => Self::Host { process: 0, user: u32::MAX, group: u32::MAX },
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Client { name, address, .. } => write!(f, "{name} at {address}"),
            Self::Host { process, user, .. } => write!(f, "process {process} of user {user} on this host"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> Source {
        Source::of_address(address.parse().unwrap())
    }

    #[test]
    fn addresses_that_one_caller_can_have_all_of_count_as_one() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }

    #[test]
    fn a_source_is_told_to_other_processes_and_to_people() {
        let sources = [
            source("10.0.0.1"),
            source("2001:db8::1"),
            Source::User(1000),
            Source::Client("ada".parse().unwrap()),
            Source::Machine(3),
        ];
        for source in sources {
            let mut bytes = Vec::new();
            source.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value(), Ok(source));
        }
        let texts = sources.map(|source| source.to_string());
        assert_eq!(texts, ["10.0.0.1", "2001:db8::/64", "user 1000 of its host", "client ada", "vsock:3"]);
    }

    #[test]
    fn a_caller_over_vsock_is_known_by_its_machine() {
        let caller = |port| Origin::Network(NetworkAddress::Vsock(VsockAddress { cid: 3, port }));
        assert_eq!(Source::of(caller(1)), Source::of(caller(2)));
        assert_eq!(caller(1).to_string(), "vsock:3:1");
        let of_network: SocketAddr = "10.0.0.1:5".parse().unwrap();
        assert_ne!(Source::of(caller(1)), Source::of(Origin::Network(of_network.into())));
    }

    #[test]
    fn a_process_of_this_host_is_known_by_its_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        let origin = Origin::of_local(&one);
        let (process, user) = (std::process::id() as i32, rustix::process::geteuid().as_raw());
        assert!(
            matches!(origin, Origin::Host { process: told, user: owner, .. } if told == process && owner == user)
        );
        assert_eq!(origin.to_string(), format!("process {process} of user {user} on this host"));
    }
}
