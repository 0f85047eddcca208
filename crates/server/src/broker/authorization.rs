//! Authorization of a conversation that lasts: whether the key that its caller has proved still counts.
//!
//! A caller proves its key once, and may then ask for as long as it likes. What it asks after its key was revoked, has
//! expired or was replaced is refused, as a new connection of it would be.

use causeway_access::Key;
use causeway_wire::handshake::KeyId;

use super::access::ServerKey;
use super::clients::AcceptedClients;
use crate::admission::Origin;

/// What a caller has proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// Whose process it is, says the kernel, and that stays so.
    Host,
    /// A client's own key.
    Client(KeyId),
    /// The server's key as it was when the conversation began; nothing where none was needed.
    Server(Option<Key>),
}

impl Authorization {
    /// That of a caller which has proved who it is just now.
    pub fn new(server_key: &ServerKey, peer: Origin) -> Self {
        match peer {
            Origin::Host { .. } => Self::Host,
            Origin::Client { key, .. } => Self::Client(key),
            // A key that cannot be read lets nobody in over a network.
            Origin::Network(_) => Self::Server(server_key.current().ok().flatten()),
        }
    }

    /// Whether it still counts.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, server_key: &ServerKey, clients: &AcceptedClients) -> Result<(), String> {
        match self {
            Self::Host => Ok(()),
            Self::Client(key) => clients.is_accepted(*key).map_err(|why| why.to_string()),
            Self::Server(proved) => match server_key.current() {
                Ok(key) if key == *proved => Ok(()),
                Ok(_) => Err("the server's key has been replaced since this connection was made".to_owned()),
                Err(error) => Err(format!("cannot read the server's key: {error}")),
            },
        }
    }
}
