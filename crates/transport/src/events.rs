//! Callbacks to the owner of a link: what has come or was lost, and how fast transfers may go.

use std::os::fd::OwnedFd;
use std::time::Duration;

use causeway_memory::SealedMemory;

use crate::destination::Destination;
use crate::error::{DescriptorError, LinkError};
use crate::staging::Lease;

/// Notifications of a link to its owner.
pub trait LinkEvents: Send + Sync {
    /// The first bytes of a transfer have come that nobody expects: where shall they go? With `None` they
    /// are read and dropped. Runs on a thread that receives and must not block; `total` is the transfer's
    /// size in bytes, as the peer says.
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let _ = (transfer, total);
        None
    }

    /// All bytes of a transfer that nobody expects lie in memory that both processes share. The owner may
    /// take them in place, or give the lease back to have them copied as if they came in parts. Runs on
    /// a thread of the link and must not block.
    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let _ = transfer;
        Err(lease)
    }

    /// The peer has handed over memory with `Link::send_descriptor`, or tried to. Nothing says in which order
    /// that comes with messages and transfers. While this blocks, the peer's next descriptors wait.
    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let _ = (number, memory);
    }

    /// The peer has handed over a descriptor of device memory, or of a file, with `Link::send_allocation`, or
    /// tried to. What it really is the receiver has to find out.
    fn allocation(&self, number: u64, allocation: Result<OwnedFd, DescriptorError>) {
        let _ = (number, allocation);
    }

    /// The peer has gone, or this end has closed the link: nothing more is handed over.
    fn descriptors_end(&self) {}

    /// The link is lost; runs once, on some thread, before transfers and calls fail because of it. Not called
    /// when the owner itself closes the link.
    fn lost(&self, cause: &LinkError);
}

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// A message of the peer.
    Message,
    /// A transfer of the peer.
    Transfer,
    /// Nothing of the peer: the thread that receives messages has something else to do, and returns soon even
    /// where it sleeps until a message comes.
    Yield,
}

/// Which way bytes have gone, as this end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Says how long a thread that carries transfers waits before it carries more. Messages are not asked about.
pub trait Pacer: Send + Sync {
    /// So many bytes of transfers have gone; how long to wait. May wait for an answer from elsewhere itself.
    fn pause(&self, direction: Direction, bytes: usize) -> Duration;
}
