//! Errors of lanes that end the link.

use causeway_transport::{LinkError, TransportError};
use thiserror::Error;

/// Why the link cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LaneError {
    /// The peer counts chunks that were never sent.
    #[error("it counts {found} chunks on a lane that carried {sent}")]
    Count {
        /// What it counts.
        found: u64,
        /// What was sent.
        sent: u64,
    },
    /// The peer names a lane by a number that is taken or too large.
    #[error("it names lane {0}, which does not exist")]
    Number(u32),
    /// What a lane lost cannot be sent again.
    #[error(
        "a bulk lane failed with bytes in flight whose source has changed since, so they cannot be sent again"
    )]
    Unrepeatable,
}

impl From<LaneError> for LinkError {
    fn from(error: LaneError) -> Self {
        match error {
            LaneError::Count { .. } | LaneError::Number(_) => TransportError::violation(error).into(),
            LaneError::Unrepeatable => TransportError::failed(error).into(),
        }
    }
}
