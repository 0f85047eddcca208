//! Errors of the bootstrap.

use std::io;

use thiserror::Error;

use super::address::SocketAddress;
use super::hello::HelloError;

/// Why two ranks do not meet.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// No socket could be reached.
    #[error("cannot connect to {address} of rank {rank}: {cause}")]
    Unreachable {
        /// Whose it is.
        rank: u32,
        /// Which one.
        address: SocketAddress,
        /// What the system said.
        cause: io::Error,
    },
    /// Whoever is there is not the rank.
    #[error("the process at {address} is not rank {rank}: {cause}")]
    Imposter {
        /// Whose it should be.
        rank: u32,
        /// Which one.
        address: SocketAddress,
        /// What was wrong.
        cause: HelloError,
    },
    /// No such host.
    #[error("cannot resolve {host}, which CAUSEWAY_COMM_HOSTS names: {cause}")]
    Host {
        /// Its name.
        host: String,
        /// What the system said.
        cause: io::Error,
    },
    /// No hosts were named.
    #[error("rank {rank} is on no board, and CAUSEWAY_COMM_HOSTS names no hosts where it could be")]
    NoHosts {
        /// Whose it would be.
        rank: u32,
    },
    /// There is nothing to try.
    #[error(
        "rank {rank} has no reachable socket: the boards that list it are not in a folder, and it is in \
         another network namespace"
    )]
    NoSocket {
        /// Whose it would be.
        rank: u32,
    },
}
