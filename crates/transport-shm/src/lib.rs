//! The transport over memory that both processes map, for two processes of one host.
//!
//! The worker makes the memory, a sealed memfd, and hands it over a Unix socket that stays open: descriptors
//! go over it later, and its end tells each side that the other has gone. The memory holds, for each
//! direction, a ring of bytes for frames, a ring of announcements, a ring of returns, and a *staging arena*:
//! slots of which the sender takes a run for a piece of a transfer, fills it, announces it, and gets it back
//! when the receiver has done with it. So the bytes of a transfer are written once and are read where they
//! lie.
//!
//! | Module       | Question it answers                                                        |
//! |--------------|----------------------------------------------------------------------------|
//! | [`layout`]   | What lies where in the memory?                                             |
//! | `segment`    | How is the memory made, handed over, checked and mapped?                    |
//! | `ring`       | How do bytes and entries get across in order?                               |
//! | `arena`      | How are pieces lent, announced, and given back?                             |
//! | `side`       | How do descriptors get across, and who notices that the peer has gone?      |
//! | `messages`   | How do the frames of a link travel?                                         |
//! | `transfers`  | How do the bytes of a transfer travel?                                      |
//! | [`staging`]  | How large is the staging arena of a session?                                |
//! | [`join`]     | How do two processes come to share a segment?                               |
//! | `fuzzing`    | What must hold whatever the peer writes, and whenever?                       |
//!
//! Everything in the memory is the peer's to change at any moment. So each word is read once, checked, and
//! only then used; what this side needs to know for certain (how far it has written or read, which slots it
//! has lent) it keeps for itself. A peer that breaks the rules ends its own link.

mod arena;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod hostile;
pub mod join;
pub mod layout;
mod messages;
mod ring;
mod segment;
mod side;
pub mod staging;
mod transfers;

use std::io;
use std::time::Duration;

use causeway_sync::awake;
use causeway_transport::slots::NotLent;
use causeway_transport::{LinkError, TransportError};
use causeway_wire::text::Printable;
use thiserror::Error;

pub use segment::SegmentError;

/// How long a sender polls for room before it sleeps: on few cores, whoever is to make room needs this one.
fn patience() -> Duration {
    awake::between_commands().min(Duration::from_micros(20))
}

/// How a peer broke the rules of the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// More bytes are said to be in a ring than it holds, or fewer than none.
    #[error("the indexes of a ring in shared memory contradict each other")]
    Indexes,
    /// An announced piece lies outside the arena, or is longer than its slots.
    #[error("a piece of {length} bytes in slot {slot} does not lie in the arena")]
    Piece {
        /// Its first slot.
        slot: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// More pieces are announced than there are slots.
    #[error("more pieces were announced than the arena has slots")]
    TooManyPieces,
    /// A slot was given back that was not lent.
    #[error(transparent)]
    NotLent(#[from] NotLent),
    /// The messages beside the rings make no sense.
    #[error("a message beside the shared memory makes no sense")]
    Side,
    /// Too many descriptors came before anybody wanted them.
    #[error("too many descriptors came before the session began")]
    TooManyDescriptors,
}

impl From<Violation> for LinkError {
    fn from(violation: Violation) -> Self {
        TransportError::violation(violation).into()
    }
}

/// Why two processes do not share memory; a part of a sentence, for people.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The socket cannot be reached.
    #[error("its socket {name} cannot be reached: {cause}")]
    Unreachable {
        /// The socket's name.
        name: Printable,
        /// What the system said.
        cause: io::Error,
    },
    /// The server says no.
    #[error("the server refused it: {0}")]
    Refused(Printable),
    /// Something failed on the way.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The memory is not what it should be.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The other end says something that makes no sense here.
    #[error("the other end of the socket does not speak as it should: {0}")]
    Protocol(String),
}
