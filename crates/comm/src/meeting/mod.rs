//! How does one rank reach another of its host: sockets, descriptors, process ids?
//!
//! Every rank listens at a Unix socket in each folder that has its board, and at an abstract one, which those
//! of its network namespace reach. A connected Unix socket proves that both ends are under one kernel,
//! carries descriptors, and ends with the process at either end. Both say first who they are, with a proof
//! that they know the job's nonce (`hello`); the kernel says which user they are and, where it can be seen
//! from here, which process.

mod hello;
mod listener;
mod place;
mod socket;

use std::io;

use thiserror::Error;

pub use hello::HelloError;
pub use listener::{Meeting, Stop};
pub use place::SocketPlace;
pub use socket::{Connection, MESSAGE_BYTES};

use crate::board::{MediumKind, Seen, Slot};
use crate::identity::shared;
use crate::job::Job;
use place::socket_name;

/// Why two ranks do not meet.
#[derive(Debug, Error)]
pub enum MeetingError {
    /// No socket could be reached.
    #[error("{place} of rank {rank} cannot be reached: {cause}")]
    Unreachable {
        /// Whose it is.
        rank: u32,
        /// Which one.
        place: SocketPlace,
        /// What the system said.
        cause: io::Error,
    },
    /// Whoever is there is not the rank.
    #[error("whoever answers at {place} of rank {rank} is not that rank: {cause}")]
    Imposter {
        /// Whose it should be.
        rank: u32,
        /// Which one.
        place: SocketPlace,
        /// What was wrong.
        cause: HelloError,
    },
    /// There is nothing to try.
    #[error(
        "rank {rank} has no socket that could be reached: the boards on which it was met are in \
         no folder, and its network namespace is another one"
    )]
    NoSocket {
        /// Whose it would be.
        rank: u32,
    },
}

/// Where a rank's sockets may be reached from here, the surest first.
fn candidates(own: &Slot, peer: &Seen) -> Vec<SocketPlace> {
    let folders = peer.media.iter().filter_map(|medium| match medium {
        MediumKind::Folder(folder) => Some(SocketPlace::Folder(folder.clone())),
        MediumKind::SystemV => None,
    });
    let same_net = shared(own.identity.namespaces.net, peer.slot.identity.namespaces.net);
    folders.chain(same_net.then_some(SocketPlace::Abstract)).collect()
}

/// Connects to a rank that a board has shown, and proves to be this one.
///
/// # Errors
/// Why each of its sockets could not be used.
pub fn reach(job: &Job, own: &Slot, peer: &Seen) -> Result<Connection, Vec<MeetingError>> {
    let rank = peer.slot.rank;
    let mut failures = Vec::new();
    for place in candidates(own, peer) {
        match socket::connect(&place, &socket_name(job, peer.slot.epoch, rank)) {
            Ok(stream) => match hello::introduce(stream, place.clone(), job, own, &peer.slot) {
                Ok(connection) => return Ok(connection),
                Err(cause) => failures.push(MeetingError::Imposter { rank, place, cause }),
            },
            Err(cause) => failures.push(MeetingError::Unreachable { rank, place, cause }),
        }
    }
    if failures.is_empty() {
        failures.push(MeetingError::NoSocket { rank });
    }
    Err(failures)
}
