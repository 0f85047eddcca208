//! The two directions of a connection, encrypted or not.
//!
//! Memory of the program (the source or the destination of a large copy) is handed to the kernel as it is,
//! never as a Rust slice: the program's other threads may touch it meanwhile. On an encrypted connection it
//! is copied into a record before it is encrypted, and decrypted where it arrives.
//!
//! | Module      | Question it answers                                           |
//! |-------------|---------------------------------------------------------------|
//! | `outgoing`  | How do bytes get to the peer?                                  |
//! | `incoming`  | How do bytes come from the peer?                               |
//! | `handshake` | How do the first frames travel, before there is a link?        |

mod handshake;
mod incoming;
mod outgoing;

use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use thiserror::Error;

use crate::record::{Cipher, ConnectionKeys};
use crate::transmit::receive_some;
pub use handshake::{HandshakeReadError, handshake_frame};
pub use incoming::Incoming;
pub use outgoing::Outgoing;

/// Records that are sent with one system call.
const RECORDS_AT_ONCE: usize = 4;

/// An open connection: what both directions share.
pub type Socket = Arc<TcpStream>;

/// Ends both directions of a connection at once, whoever is waiting on it.
pub fn shut_down(socket: &Socket) {
    // An error means that the connection has ended already, which is what is wanted.
    let _ = socket.shutdown(Shutdown::Both);
}

/// Ends a connection so that what was sent last still reaches the peer.
///
/// Closing a socket with unread bytes resets the connection, which can overtake the last words; so the peer's
/// bytes are read and dropped until it ends the connection too, for half a second at most.
pub fn end_after_last_words(socket: &Socket) {
    let deadline = Instant::now() + Duration::from_millis(500);
    // Errors here and below mean that the connection has ended already.
    let _ = socket.shutdown(Shutdown::Write);
    let mut dropped = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match receive_some(socket.as_fd(), &mut dropped, RecvFlags::empty()) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    }
}

/// A connection that is authenticated, between messages, and may be handed to another process.
#[derive(Debug)]
pub struct Connection {
    /// The direction to the peer.
    pub outgoing: Outgoing,
    /// The direction from the peer.
    pub incoming: Incoming,
    handshake_only: bool,
}

impl Connection {
    /// Takes over a connection; `keys` are there when it is encrypted.
    pub fn new(socket: TcpStream, keys: Option<ConnectionKeys>) -> Self {
        let socket = Arc::new(socket);
        let handshake_only = keys.as_ref().is_some_and(|keys| keys.handshake_only);
        let (send, receive) = match keys {
            Some(keys) => (Some(Cipher::new(keys.send)), Some(Cipher::new(keys.receive))),
            None => (None, None),
        };
        let outgoing = Outgoing::new(Arc::clone(&socket), send);
        Self { outgoing, incoming: Incoming::new(socket, receive), handshake_only }
    }

    /// Both directions for a link, which is in the clear where the keys protect the handshake alone.
    pub fn into_directions(self) -> (Outgoing, Incoming) {
        let Self { mut outgoing, mut incoming, handshake_only } = self;
        if handshake_only {
            // Neither end reads ahead in the handshake, so that no byte of the link was taken for a record.
            outgoing.go_clear();
            incoming.go_clear();
        }
        (outgoing, incoming)
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        self.outgoing.socket()
    }

    /// The state of the encryption, for another process that goes on with this connection.
    ///
    /// # Errors
    /// When the peer sent more than it may before it was answered.
    pub fn into_keys(self) -> Result<Option<ConnectionKeys>, SpokeTooSoon> {
        if self.incoming.has_bytes() {
            return Err(SpokeTooSoon);
        }
        let handshake_only = self.handshake_only;
        Ok(match (self.outgoing.into_cipher(), self.incoming.into_cipher()) {
            (Some(send), Some(receive)) => {
                let (send, receive) = (send.into_state(), receive.into_state());
                Some(ConnectionKeys { send, receive, handshake_only })
            }
            _ => None,
        })
    }
}

/// The peer sent bytes before it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the peer sent more before it was answered")]
pub struct SpokeTooSoon;
