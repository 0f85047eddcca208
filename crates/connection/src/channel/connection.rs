//! Connection: an encrypted or clear socket, and its transfer to another process.

use std::net::TcpStream;
use std::sync::Arc;

use thiserror::Error;

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::socket::Socket;
use crate::record::{Cipher, ConnectionKeys};

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
            outgoing.disable_encryption();
            incoming.disable_encryption();
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
#[error("the peer sent more before it received a response")]
pub struct SpokeTooSoon;
