//! Errors of `causeway doctor`.

use std::io;

use thiserror::Error;

use crate::server::ServerError;

/// Why nothing can be said.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// There is no server as it is named.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A setting of messages between ranks.
    #[error(transparent)]
    Setting(#[from] causeway_config::ValueError),
    /// The other process cannot be looked for.
    #[error(transparent)]
    Meet(#[from] causeway_comm::doctor::DoctorError),
    /// Nobody reads it.
    #[error("cannot print the findings: {0}")]
    Print(#[from] io::Error),
}
