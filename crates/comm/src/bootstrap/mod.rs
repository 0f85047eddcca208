//! Bootstrap: connections between ranks of a host, or over a network.
//!
//! Every rank listens at a Unix socket in each folder that has its board, and at an abstract one, which those
//! of its network namespace reach. A connected Unix socket proves that both ends are under one kernel,
//! carries descriptors, and ends with the process at either end. Both say first who they are, with a proof
//! that they know the job's nonce (`hello`); the kernel says which user they are and, where it can be seen
//! from here, which process. Ranks that share nothing of a host meet over TCP (`network`), where the proof
//! alone counts.

mod address;
mod byte_stream;
mod error;
mod hello;
mod listener;
mod network;
mod socket;
mod stream;

pub use address::SocketAddress;
pub use byte_stream::ByteStream;
pub use error::BootstrapError;
pub use hello::HelloError;
pub use listener::{BootstrapListener, Stop};
pub use network::connect_over_network;
pub use socket::{Connection, MESSAGE_BYTES};

use crate::board::{MediumKind, Seen, Slot};
use crate::identity::shared;
use crate::job::Job;
use address::socket_name;
use hello::Expected;
use stream::Stream;

/// Where a rank's sockets may be reached from here, the surest first.
fn candidates(own: &Slot, peer: &Seen) -> Vec<SocketAddress> {
    let folders = peer.media.iter().filter_map(|medium| match medium {
        MediumKind::Folder(folder) => Some(SocketAddress::Folder(folder.clone())),
        MediumKind::SystemV => None,
    });
    let same_net = shared(own.identity.namespaces.net, peer.slot.identity.namespaces.net);
    folders.chain(same_net.then_some(SocketAddress::Abstract)).collect()
}

/// Connects to a rank that a board has shown, and proves to be this one.
///
/// # Errors
/// Why each of its sockets could not be used.
pub fn connect(job: &Job, own: &Slot, peer: &Seen) -> Result<Connection, Vec<BootstrapError>> {
    let rank = peer.slot.rank;
    let expected = Expected { rank, process: Some(peer.slot.identity.process) };
    let mut failures = Vec::new();
    for address in candidates(own, peer) {
        match socket::connect(&address, &socket_name(job, peer.slot.epoch, rank)) {
            Ok(stream) => match hello::introduce(Stream::Unix(stream), address.clone(), job, own, expected) {
                Ok(connection) => return Ok(connection),
                Err(cause) => failures.push(BootstrapError::Imposter { rank, address, cause }),
            },
            Err(cause) => failures.push(BootstrapError::Unreachable { rank, address, cause }),
        }
    }
    if failures.is_empty() {
        failures.push(BootstrapError::NoSocket { rank });
    }
    Err(failures)
}
