//! Authorization of a conversation that lasts: whether the key that its caller has proved still counts.
//!
//! A caller proves its key once, and may then ask for as long as it likes. What it asks after its key was revoked, has
//! expired or was replaced is refused, as a new connection of it would be.

use causeway_access::Key;

use super::shared::Shared;
use crate::admission::Origin;

/// What a caller has proved.
pub struct Authorization {
    peer: Origin,
    /// The server's key when the conversation began; nothing where none was needed.
    server_key: Option<Key>,
}

impl Authorization {
    /// That of a caller which has proved who it is just now.
    pub fn new(shared: &Shared, peer: Origin) -> Self {
        // A key that cannot be read lets nobody in over a network.
        Self { peer, server_key: shared.key.current().ok().flatten() }
    }

    /// Whether it still counts.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, shared: &Shared) -> Result<(), String> {
        match self.peer {
            // The kernel says whose process is at the other end, and that stays so.
            Origin::Host { .. } => Ok(()),
            Origin::Client { key, .. } => shared.clients.is_accepted(key).map_err(|why| why.to_string()),
            Origin::Network(_) => match shared.key.current() {
                Ok(key) if key == self.server_key => Ok(()),
                Ok(_) => Err("the server's key has been replaced since this connection was made".to_owned()),
                Err(error) => Err(format!("the server's key cannot be read: {error}")),
            },
        }
    }
}
