//! Failures of a link over queue pairs.

use causeway_ibverbs::Status;
use causeway_transport::{LinkError, TransportError};
use thiserror::Error;

/// How a peer broke the rules that go with queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A message is none.
    #[error("a message over verbs makes no sense")]
    Message,
    /// Credits came back that were never spent.
    #[error("more credits were returned than were spent")]
    Credits,
    /// A completion is for a request that was never posted.
    #[error("a completion came for a request that was never posted")]
    Completion,
    /// The stripes of a piece contradict each other.
    #[error("a piece was announced in {0} stripes that do not fit together")]
    Stripes(u32),
    /// An announced piece lies outside the arena, or is longer than its transfer.
    #[error("a piece of {length} bytes in slot {slot} does not lie in the arena or not in its transfer")]
    Piece {
        /// Its first slot.
        slot: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// More pieces are announced than there are slots.
    #[error("more pieces were announced than the arena has slots")]
    TooManyPieces,
    /// A slot was given back that was not leased.
    #[error("slot {0} was given back, which was not leased")]
    NotLeased(u32),
}

/// Why a link over verbs has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The peer broke the rules.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A request failed.
    #[error("the InfiniBand (verbs) connection has failed: {0}")]
    Request(Status),
    /// The device, or what drives it, has failed.
    #[error("the RDMA device has failed: {0}")]
    Device(String),
}

impl From<Violation> for LinkError {
    fn from(violation: Violation) -> Self {
        TransportError::violation(violation).into()
    }
}

impl From<Failure> for LinkError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Violation(violation) => violation.into(),
            other => TransportError::failed(other).into(),
        }
    }
}
