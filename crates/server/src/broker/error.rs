//! Errors of a broker's start.

use std::io;
use std::net::SocketAddr;

use causeway_access::VsockAddress;
use causeway_access::keys::clients::ClientsError;
use causeway_access::keys::file::KeyFileError;
use causeway_sandbox::PlanError;
use thiserror::Error;

use super::hot_restart::TakeOverError;
use crate::admission::LimitsError;
use crate::back_end::BackEndError;

/// Why a broker could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is nowhere to listen.
    #[error("there is neither an address nor a Unix socket nor a vsock to listen at")]
    Nowhere,
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The list of clients with keys of their own cannot be used.
    #[error(transparent)]
    Clients(#[from] ClientsError),
    /// The audit log cannot be written.
    #[error("the audit log cannot be written (--audit-log): {0}")]
    AuditLog(io::Error),
    /// A Unix socket is taken or cannot be made.
    #[error("cannot listen at the Unix socket {name}: {}", explain_socket(.cause))]
    Socket {
        /// Its name.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The address is taken or not ours.
    #[error("cannot listen at {address}: {}", explain_bind(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The vsock is taken, or this machine has none.
    #[error("cannot listen at {address}: {cause}")]
    Vsock {
        /// The address.
        address: VsockAddress,
        /// Why, and what to do.
        cause: String,
    },
    /// The address for metrics is taken or not ours.
    #[error("cannot serve metrics at {address}: {}", explain_metrics(.cause))]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
    /// The system does not let the broker have what it is asked to give to others.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// No back end can serve as it is wanted.
    #[error(transparent)]
    BackEnd(#[from] BackEndError),
    /// Workers would have more rights than they may.
    #[error(transparent)]
    Sandbox(#[from] PlanError),
    /// The running server does not hand over.
    #[error(transparent)]
    TakeOver(#[from] TakeOverError),
    /// The system refused something else.
    #[error("the server cannot start: {0}")]
    System(#[from] io::Error),
}

fn explain_bind(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already; is a server running? Choose another port with --listen"
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; `ip address` lists its addresses".to_owned()
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need root; choose a higher one".to_owned(),
        _ => cause.to_string(),
    }
}

fn explain_socket(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already; is a server running? Choose another path with --listen unix:PATH".to_owned()
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "its folder does not exist: create it, or choose another path with --listen unix:PATH".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "this user may not create files in its folder: choose another path with --listen unix:PATH".to_owned()
        }
        _ => cause.to_string(),
    }
}

fn explain_metrics(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there already; choose another port with --metrics".to_owned()
        }
        _ => explain_bind(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_about_what_was_to_be_listened_at() {
        let text = |kind: io::ErrorKind| {
            StartError::Socket { name: "/nowhere/s".to_owned(), cause: kind.into() }.to_string()
        };
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::NotFound, io::ErrorKind::AddrInUse] {
            let text = text(kind);
            assert!(text.contains("unix:PATH") && !text.contains("port"), "{text}");
        }
    }
}
