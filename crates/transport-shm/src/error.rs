//! Errors of setting up shared memory between two processes.

use std::io;

use causeway_wire::text::Printable;
use thiserror::Error;

use crate::segment::SegmentError;

/// Why two processes do not share memory; a part of a sentence, for people.
#[derive(Debug, Error)]
pub enum UpgradeError {
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
    #[error("protocol error at the other end of the socket: {0}")]
    Protocol(String),
}
