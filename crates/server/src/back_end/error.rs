//! Errors of opening a back end.

use thiserror::Error;

use super::built_in::NotBuiltIn;

/// Why no back end can serve as the server's owner wants it.
#[derive(Debug, Error)]
pub enum BackEndError {
    /// This build does not hold it.
    #[error(transparent)]
    NotBuiltIn(#[from] NotBuiltIn),
    /// The environment asks for a software GPU that there cannot be.
    #[cfg(feature = "software")]
    #[error(transparent)]
    SoftwareGpu(#[from] causeway_config::ValueError),
}
