//! Protocol violations of a peer in shared memory.

use causeway_transport::slots::NotLeased;
use causeway_transport::{LinkError, TransportError};
use thiserror::Error;

/// How a peer broke the rules of the shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// More bytes are said to be in a ring than it holds, or fewer than none.
    #[error("the indexes of a ring in shared memory contradict each other")]
    Indexes,
    /// An announced piece lies outside the arena, or is longer than its slots.
    #[error("a piece of {length} bytes in slot {slot} is not within the arena")]
    Piece {
        /// Its first slot.
        slot: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// More pieces are announced than there are slots.
    #[error("more pieces were announced than the arena has slots")]
    TooManyPieces,
    /// A slot was released that was not leased.
    #[error(transparent)]
    NotLeased(#[from] NotLeased),
    /// The messages beside the rings make no sense.
    #[error("malformed message on the socket beside the shared memory")]
    Side,
    /// Too many descriptors came before anybody wanted them.
    #[error("too many descriptors were received before the session started")]
    TooManyDescriptors,
}

impl From<Violation> for LinkError {
    fn from(violation: Violation) -> Self {
        TransportError::violation(violation).into()
    }
}
