//! The encrypted handshake: Noise `NNpsk0` with Curve25519, AES-256-GCM and SHA-256, by the `snow` library.
//!
//! Two messages of [`MESSAGE_SIZE`] bytes, one each way. Both ends prove that they hold the same key, and
//! the session keys that come out are new for every connection, so that recorded traffic stays closed even
//! if the key becomes known later. The keys then drive the records of [`record`](crate::record).

use snow::{Builder, HandshakeState};
use thiserror::Error;

use crate::record::{ConnectionKeys, RecordKey};
use causeway_access::Key;

/// Size of each of the two messages: a public key and an authentication tag, in bytes.
pub const MESSAGE_SIZE: usize = 48;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// The peer's message could not be authenticated: it holds another key, or somebody altered the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the peer has a different key")]
pub struct WrongKey;

fn builder<'a>(key: &'a Key, prologue: &'a [u8]) -> Builder<'a> {
    let pattern = PATTERN.parse().expect("the pattern is one that the library knows");
    Builder::new(pattern)
        .psk(0, key.bytes())
        .and_then(|builder| builder.prologue(prologue))
        .expect("the key and the prologue are given once")
}

/// One end of a handshake under way.
#[derive(Debug)]
pub struct Handshake {
    state: HandshakeState,
}

impl Handshake {
    /// Starts the client's end; `prologue` is what was said in the clear before, and must be the same at
    /// both ends.
    pub fn client(key: &Key, prologue: &[u8]) -> Self {
        let state = builder(key, prologue).build_initiator();
        Self { state: state.expect("everything the pattern needs is given") }
    }

    /// Starts the server's end.
    pub fn server(key: &Key, prologue: &[u8]) -> Self {
        let state = builder(key, prologue).build_responder();
        Self { state: state.expect("everything the pattern needs is given") }
    }

    /// The next message to send.
    pub fn write(&mut self) -> [u8; MESSAGE_SIZE] {
        let mut message = [0; MESSAGE_SIZE];
        let length = self.state.write_message(&[], &mut message).expect("it is our turn to write");
        debug_assert_eq!(length, MESSAGE_SIZE);
        message
    }

    /// Reads the peer's message.
    pub fn read(&mut self, message: &[u8; MESSAGE_SIZE]) -> Result<(), WrongKey> {
        let mut payload = [0; MESSAGE_SIZE];
        self.state.read_message(message, &mut payload).map(|_| ()).map_err(|_| WrongKey)
    }

    /// The keys of the connection, once both messages have been exchanged; `handshake_only` as in
    /// [`ConnectionKeys`].
    ///
    /// # Panics
    /// When the handshake is not complete.
    pub fn finish(mut self, handshake_only: bool) -> ConnectionKeys {
        assert!(self.state.is_handshake_finished(), "keys asked for in the middle of a handshake");
        let (to_server, to_client) = self.state.dangerously_get_raw_split();
        let (send, receive) =
            if self.state.is_initiator() { (to_server, to_client) } else { (to_client, to_server) };
        ConnectionKeys { send: RecordKey::new(send), receive: RecordKey::new(receive), handshake_only }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_with_the_same_key_get_the_same_session_keys() {
        let key = Key::generate();
        let (mut client, mut server) = (Handshake::client(&key, b"x"), Handshake::server(&key, b"x"));
        server.read(&client.write()).unwrap();
        client.read(&server.write()).unwrap();
        let (client, server) = (client.finish(false), server.finish(false));
        assert!(client.send == server.receive && client.receive == server.send);
        assert!(client.send != client.receive);
    }

    #[test]
    fn another_key_or_prologue_is_noticed_at_the_first_message() {
        let key = Key::generate();
        let first = Handshake::client(&key, b"x").write();
        assert_eq!(Handshake::server(&Key::generate(), b"x").read(&first), Err(WrongKey));
        assert_eq!(Handshake::server(&key, b"y").read(&first), Err(WrongKey));
    }
}
