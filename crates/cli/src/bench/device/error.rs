//! Errors of `causeway bench device`.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::bench::error::{ResultsError, TargetError};

/// Why kernels that communicate are not measured.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// No target can be measured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no measuring program.
    #[error(
        "there is no measuring program at {}: install the package causeway-dev, or build it with `make programs` of \
         the sources, which leaves it in build/cuda, and name it by --program",
        .0.display()
    )]
    NoProgram(PathBuf),
    /// There is no library that makes teams.
    #[error(
        "there is no {}, which creates teams of kernels: install the package causeway-client, or build it \
         with `cargo build -p causeway-comm` of the sources and name it by --library",
        .0.display()
    )]
    NoLibrary(PathBuf),
    /// There is no folder for a link to the library.
    #[error("cannot create a folder for libcauseway_comm.so: {0}")]
    Folder(io::Error),
    /// The results are lost.
    #[error(transparent)]
    Results(#[from] ResultsError),
}
