//! Origin of a connection: network address, or credentials of a local process.

use core::fmt;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use causeway_access::ClientName;
use causeway_connection::host_socket::peer_credentials;
use causeway_wire::handshake::KeyId;

/// Where a caller comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From a network address.
    Network(SocketAddr),
    /// A client that has proved who it is by a key of its own.
    Client {
        /// Its name.
        name: ClientName,
        /// Which of its keys that was.
        key: KeyId,
        /// From where.
        address: SocketAddr,
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
