//! How is a connection to a server made, and by whom?

use core::fmt::Debug;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use super::ConnectOptions;
use crate::target::Endpoint;
use crate::tcp::socket::{self, DialError};

/// Makes connections for a process that may not make them itself: a server's worker has its broker do it.
pub trait Dial: Debug + Send + Sync {
    /// A connected stream socket, within `timeout`.
    fn dial(&self, endpoint: &Endpoint, timeout: Duration) -> io::Result<OwnedFd>;
}

/// Connects to a server, or has it done.
pub(super) fn dial(endpoint: &Endpoint, options: &ConnectOptions) -> Result<TcpStream, DialError> {
    if let Some(dialer) = &options.dialer {
        let made = dialer.dial(endpoint, options.connect_timeout);
        return made
            .map(TcpStream::from)
            .map_err(|cause| DialError::Other { target: endpoint.to_string(), cause });
    }
    dial_here(endpoint, options.connect_timeout)
}

/// Connects to a server from this process.
pub fn dial_here(endpoint: &Endpoint, timeout: Duration) -> Result<TcpStream, DialError> {
    match endpoint {
        Endpoint::Tcp { host, port } => socket::dial(host, *port, timeout),
        Endpoint::Unix(name) => reach(name)
            // The standard library's type for TCP serves for any stream socket.
            .map(TcpStream::from)
            .map_err(|cause| DialError::NoSocket { name: name.clone(), cause }),
    }
}

/// Connects to a Unix socket: a path, or `@` and an abstract name.
pub(crate) fn reach(name: &str) -> io::Result<OwnedFd> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixStream::connect_addr(&address).map(OwnedFd::from)
}
