//! Connecting to a server, in this process or by another one.

use core::fmt::Debug;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use crate::socket::{self, DialError};
use crate::unix;
use crate::vsock;
use causeway_access::Endpoint;

/// Makes connections for a process that may not make them itself: a server's worker has its broker do it.
pub trait Dial: Debug + Send + Sync {
    /// A connected stream socket, within `timeout`.
    fn dial(&self, endpoint: &Endpoint, timeout: Duration) -> io::Result<OwnedFd>;
}

/// Connects to a server from this process.
pub fn dial_here(endpoint: &Endpoint, timeout: Duration) -> Result<TcpStream, DialError> {
    match endpoint {
        Endpoint::Tcp { host, port } => socket::dial(host, *port, timeout),
        Endpoint::Unix(name) => connect(name)
            // The standard library's type for TCP serves for any stream socket.
            .map(TcpStream::from)
            .map_err(|cause| DialError::NoSocket { name: name.clone(), cause }),
        Endpoint::Vsock(address) => vsock::dial(*address, timeout).map_err(DialError::from),
    }
}

/// Connects to a Unix socket: a path, or `@` and an abstract name.
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let connected = match name.strip_prefix('@') {
        Some(name) => unix::connect_to_name(name),
        None => unix::connect_at(Path::new(name)),
    };
    connected.map(OwnedFd::from)
}
