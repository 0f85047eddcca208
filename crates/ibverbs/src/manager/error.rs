//! Errors of rdma_cm connections.

use std::io;
use std::net::IpAddr;

use thiserror::Error;

use crate::library::LoadError;

/// Why a connection is not made.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// librdmacm cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// A step failed.
    #[error("rdma_cm cannot {step}: {source}{}", advice(source))]
    Step {
        /// What was to be done.
        step: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Something else happened than was waited for.
    #[error("rdma_cm cannot {step}: it reports {event} (status {status})")]
    Event {
        /// What was waited for.
        step: &'static str,
        /// What librdmacm calls it.
        event: &'static str,
        /// The number that came with it.
        status: i32,
    },
    /// Nothing happened in time.
    #[error("rdma_cm cannot {step}: nothing was heard in time")]
    TimedOut {
        /// What was waited for.
        step: &'static str,
    },
    /// The address belongs to no RDMA device.
    #[error("no RDMA device of this machine has the address {0}")]
    NoDevice(IpAddr),
}

impl ManagerError {
    /// Whether the port that rdma_cm chose for this end belongs to somebody else, so that another one may do.
    /// It keeps account of its own ports only, and iWARP's connections need the same number from TCP.
    pub fn is_port_taken(&self) -> bool {
        match self {
            Self::Step { source, .. } => source.raw_os_error() == Some(libc::EADDRINUSE),
            Self::Event { status, .. } => *status == -libc::EADDRINUSE,
            Self::Library(_) | Self::TimedOut { .. } | Self::NoDevice(_) => false,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => ". rdma_cm chose a port that TCP has in use",
        Some(libc::ENOENT | libc::ENODEV) => {
            ". /dev/infiniband/rdma_cm must exist and be accessible, and an RDMA device must have the address"
        }
        _ => "",
    }
}

/// What the system says of a step that failed.
pub(crate) fn step_failed(step: &'static str) -> ManagerError {
    ManagerError::Step { step, source: io::Error::last_os_error() }
}
