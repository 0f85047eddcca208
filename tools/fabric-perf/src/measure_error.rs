//! Errors of a measurement.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::case::{Case, Setting};
use crate::control::{ControlError, Reply, VERSION};
use crate::endpoint::EndpointError;
use crate::link::LinkFailure;
use crate::perftest::PerftestError;

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// Nobody answers.
    #[error("cannot connect to {to}: {cause}. Start `fabric-perf --listen` there first")]
    Connect {
        /// Where.
        to: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The other end fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// It speaks otherwise.
    #[error(
        "the other end is another version of fabric-perf, which speaks version {0} and not {VERSION}: start the same \
         release on both machines"
    )]
    Version(u32),
    /// This end fails.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A case fails.
    #[error("{case} with {setting}: {cause}")]
    Case {
        /// What was measured.
        case: Case,
        /// With which setting.
        setting: Setting,
        /// What happened.
        cause: EndpointError,
    },
    /// There is no link, or it fails in a case.
    #[error("{}a link with {setting}: {cause}", case.map(|case| format!("{case}, through ")).unwrap_or_default())]
    Link {
        /// What was measured; nothing where the link is made.
        case: Option<Case>,
        /// With which setting.
        setting: Setting,
        /// What happened.
        cause: LinkFailure,
    },
    /// perftest fails.
    #[error(transparent)]
    Perftest(#[from] PerftestError),
    /// Bytes were wrong.
    #[error("WRONG CONTENT: {case} with {setting}: the received data differs from the sent data")]
    Wrong {
        /// What was carried.
        case: Case,
        /// With which setting.
        setting: Setting,
    },
}

impl MeasureError {
    /// The other end has answered something else than it was asked.
    pub(crate) fn unexpected(reply: &Reply) -> Self {
        ControlError::Unexpected(format!("{reply:?}")).into()
    }
}
