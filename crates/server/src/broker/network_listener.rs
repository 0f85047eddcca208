//! Network listener: a socket over TCP or vsock at which callers are accepted.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use causeway_connection::vsock::VsockListener;

use crate::admission::NetworkAddress;

/// A socket at which callers from a network are accepted.
pub enum NetworkListener {
    Tcp(Arc<TcpListener>),
    Vsock(Arc<VsockListener>),
}

impl NetworkListener {
    /// The next caller.
    pub fn accept(&self) -> io::Result<(TcpStream, NetworkAddress)> {
        match self {
            Self::Tcp(socket) => socket.accept().map(|(stream, peer)| (stream, peer.into())),
            Self::Vsock(socket) => {
                socket.accept().map(|(stream, peer)| (stream, NetworkAddress::Vsock(peer)))
            }
        }
    }
}

impl AsFd for NetworkListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Vsock(socket) => socket.as_fd(),
        }
    }
}
