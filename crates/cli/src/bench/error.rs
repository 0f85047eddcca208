//! Errors of `causeway bench`: no target to measure, or results that are lost.

use std::io;

use causeway_access::ServersError;
use causeway_measure::files::FilesError;
use thiserror::Error;

use crate::embedded::EmbeddedError;
use crate::keys::HandOverError;
use crate::library::LibraryError;
use crate::report::ReportError;
use crate::server::ServerError;

/// Why no target can be measured.
#[derive(Debug, Error)]
pub enum TargetError {
    /// There is no server as it is named.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A process that measures would not find the server's key.
    #[error(transparent)]
    Keys(#[from] HandOverError),
    /// There is no client library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The private server does not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// There is no place for what measuring processes report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
}

impl From<ServersError> for TargetError {
    fn from(error: ServersError) -> Self {
        Self::Server(error.into())
    }
}

/// Why results are lost.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// The files cannot be written.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Nobody reads the tables.
    #[error("cannot print the results: {0}")]
    Print(#[source] io::Error),
}
