//! How does one rank reach another of its host: sockets, descriptors, process ids?
//!
//! Every rank listens at a Unix socket in each folder that has its board, and at an abstract one, which those
//! of its network namespace reach. A connected Unix socket proves that both ends are under one kernel,
//! carries descriptors, and ends with the process at either end. Both say first who they are, with a proof
//! that they know the job's nonce (`hello`); the kernel says which user they are and, where it can be seen
//! from here, which process. Ranks that share nothing of a host meet over TCP (`network`), where the proof
//! alone counts.

mod error;
mod hello;
mod listener;
mod network;
mod place;
mod shortage;
mod socket;
mod stream;

pub use error::MeetingError;
pub use hello::HelloError;
pub use listener::{Meeting, Stop};
pub use network::reach_over_network;
pub use place::SocketPlace;
pub use socket::{Connection, MESSAGE_BYTES};

use crate::board::{MediumKind, Seen, Slot};
use crate::identity::shared;
use crate::job::Job;
use hello::Expected;
use place::socket_name;
use stream::Stream;

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
    let expected = Expected { rank, process: Some(peer.slot.identity.process) };
    let mut failures = Vec::new();
    for place in candidates(own, peer) {
        match socket::connect(&place, &socket_name(job, peer.slot.epoch, rank)) {
            Ok(stream) => match hello::introduce(Stream::Unix(stream), place.clone(), job, own, expected) {
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
