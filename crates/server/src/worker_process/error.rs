//! Errors of a worker's start.

use std::io;

use causeway_link::LinkError;
use causeway_sandbox::ConfinementError;
use thiserror::Error;

use crate::protocol::messages::ControlError;

/// Why a worker cannot begin its work.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The broker is gone or says nothing sensible.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The client has gone.
    #[error("the client disconnected before it received a response: {0}")]
    Client(#[from] io::Error),
    /// The first message must be the session's start.
    #[error("the broker sent an unexpected message before the session's start")]
    NoStart,
    /// It would have more rights than it should.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// The link ended at once.
    #[error(transparent)]
    Link(#[from] LinkError),
}
