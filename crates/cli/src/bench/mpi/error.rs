//! Errors of `causeway bench mpi`.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::bench::error::{ResultsError, TargetError};
use crate::mpirun::MpirunError;

/// Why a channel is not measured between containers.
pub const NO_IPC: &str = "cudaIPC cannot open memory of a process in another PID namespace, so ipc is \
     omitted for isolated ranks";

/// Why no message was measured.
#[derive(Debug, Error)]
pub enum MpiError {
    /// No target can be measured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// There is no launcher, or no interposer for it.
    #[error(transparent)]
    Mpirun(#[from] MpirunError),
    /// There is no measuring program.
    #[error(
        "there is no measuring program at {}: install the package causeway-mpi, or build it with `make mpi` of the \
         sources and name it by --program",
        .0.display()
    )]
    NoProgram(PathBuf),
    /// What was asked for cannot be.
    #[error("there is nothing to measure: {NO_IPC}")]
    NothingLeft,
    /// There is no folder that containers can share.
    #[error("cannot create a folder that the containers share: {0}")]
    Folder(io::Error),
    /// The results are lost.
    #[error(transparent)]
    Results(#[from] ResultsError),
}
