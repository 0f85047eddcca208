//! Addresses of a rank's sockets.

use core::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::board::FILE_PREFIX;
use crate::job::Job;

/// A kind of name that a socket has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SocketAddress {
    /// A file in a folder that both see.
    Folder(PathBuf),
    /// A name in the network namespace.
    Abstract,
    /// An address of TCP: not within a host.
    Network(SocketAddr),
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => write!(f, "a socket in {}", folder.display()),
            Self::Abstract => f.write_str("an abstract socket"),
            Self::Network(address) => write!(f, "TCP at {address}"),
        }
    }
}

/// The file name, or the abstract name, of a rank's socket.
pub(super) fn socket_name(job: &Job, epoch: u32, rank: u32) -> String {
    format!("{FILE_PREFIX}{}-{epoch}.{rank}", job.name())
}
