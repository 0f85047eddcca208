//! Errors of a link.

use std::io;

use thiserror::Error;

use crate::device::failure::{Failure, Status};
use crate::device::gpu::GpuError;

/// Why a link has come to an end.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The peer, or the network, has gone.
    #[error("the connection has ended: {0}")]
    Lost(#[from] io::Error),
    /// This rank's GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A kernel here uses a window that was freed.
    #[error("a window was freed while a kernel used it")]
    Freed,
    /// The peer asks for what it must not, or answers what was not asked.
    #[error("{0}")]
    Wrong(&'static str),
}

impl LinkError {
    /// The peer's position that was refused.
    pub fn refused(status: Status) -> Self {
        Self::Wrong(match status {
            Status::OtherTeam => "it names a window that this rank does not have",
            Status::OutOfBounds => "it names bytes that do not lie in the window",
            Status::Misaligned => "it names a word at no multiple of 8",
            _ => "it asks for what this rank cannot do",
        })
    }

    /// Why the team ends, whose rank this is.
    pub fn into_failure(self, rank: u32, peer: u32) -> Failure {
        match self {
            Self::Lost(cause) if is_end(&cause) => Failure::Peer(peer),
            Self::Gpu(cause) => Failure::Gpu { rank, cause },
            error => Failure::Link { rank, peer, cause: error.to_string() },
        }
    }
}

/// Whether the peer has ended, rather than the network.
fn is_end(cause: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(cause.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}
