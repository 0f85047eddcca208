//! Errors of state files.

use std::io;

use causeway_wire::codec::DecodeError;
use thiserror::Error;

/// Why a state file cannot be read; sentences for people.
#[derive(Debug, Error)]
pub enum StateFileError {
    /// The system says so.
    #[error("the state cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// It ends too early.
    #[error("the state is truncated: it ends before its end mark")]
    CutShort,
    /// It is something else.
    #[error("this is not a session's state, or has a format that this release does not support")]
    Foreign,
    /// Its bytes make no sense.
    #[error("the state is damaged: {0}")]
    Damaged(String),
}

impl From<DecodeError> for StateFileError {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error.to_string())
    }
}
