//! Errors of a case, as the measuring process reports them to its parent.

use thiserror::Error;

use super::driver::{DriverError, Gpu};
use crate::protocol::Reply;

/// Why a case is not measured.
#[derive(Debug, Error)]
pub enum CaseError {
    /// The driver refuses something.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The machine lacks something.
    #[error("{0}")]
    Refused(String),
    /// The content of memory is not what it must be.
    #[error("{0}")]
    Wrong(String),
}

impl CaseError {
    /// The report to the parent. When the driver does not work any more, as after a lost connection, nothing
    /// else can be measured.
    pub(super) fn reply(self, gpu: &Gpu) -> Reply {
        let reason = self.to_string();
        match self {
            Self::Wrong(_) => Reply::Wrong { reason },
            Self::Driver(_) if gpu.synchronize().is_err() => Reply::Unable { reason },
            Self::Driver(_) | Self::Refused(_) => Reply::Refused { reason },
        }
    }
}
