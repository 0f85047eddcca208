//! Locality of two ranks, and their paths. The words for it.

use core::fmt;

use crate::board::MediumKind;
use crate::bootstrap::SocketAddress;

/// How near two ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Locality {
    /// One process.
    SameProcess,
    /// Two processes that share all namespaces.
    SameContainer,
    /// Two containers of one host.
    SameHost,
    /// Not on this host, as far as any board tells.
    OtherHost,
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameProcess => "in the same process",
            Self::SameContainer => "in the same container",
            Self::SameHost => "in another container of this host",
            Self::OtherHost => "on another host, or where no board shows it",
        })
    }
}

/// How far apart the processors of two ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distance {
    /// They share NUMA nodes.
    SameNode,
    /// They have other nodes of one socket.
    SameSocket,
    /// They have other sockets.
    OtherSocket,
    /// One of them does not know where it runs.
    Unknown,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameNode => "at the same NUMA nodes",
            Self::SameSocket => "at other NUMA nodes of a socket",
            Self::OtherSocket => "at other sockets",
            Self::Unknown => "at an unknown distance",
        })
    }
}

/// How a file descriptor gets from one rank to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FdPassing {
    /// Over a Unix socket.
    Socket(SocketAddress),
    /// One process may take it from the other (`pidfd_getfd`).
    Taken,
    /// It is there: one process.
    Same,
}

impl fmt::Display for FdPassing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(locality) => locality.fmt(f),
            Self::Taken => f.write_str("pidfd_getfd"),
            Self::Same => f.write_str("one process"),
        }
    }
}

/// How two ranks come to share memory of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemorySharing {
    /// A memfd, whose descriptor gets across.
    Descriptor(FdPassing),
    /// A file in a folder that both see.
    File(MediumKind),
    /// A System V segment.
    SystemV,
}

impl fmt::Display for MemorySharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(path) => write!(f, "a descriptor by {path}"),
            Self::File(folder) => write!(f, "a file in {folder}"),
            Self::SystemV => f.write_str("a System V segment"),
        }
    }
}

/// How two ranks reach each other over a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkPath {
    /// They have one network namespace.
    Same,
    /// Each has addresses; whether they lead to each other is found out by trying.
    Addresses,
}

/// Whether two processes have process ids for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// One PID namespace.
    Same,
    /// The peer's is below this one's: it is seen from here, and does not see this process.
    FromHere,
    /// This one's is below the peer's.
    FromThere,
    /// Neither sees the other.
    Hidden,
}
