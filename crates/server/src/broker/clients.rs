//! The clients that have keys of their own, as their file says at the moment.

use std::path::PathBuf;
use std::sync::Arc;

use causeway_access::keys::clients::{Clients, ClientsError, NotAccepted};
use causeway_access::keys::limits::ClientLimits;
use causeway_access::{ClientName, Key};
use causeway_wire::handshake::{KeyId, NewKey};
use jiff::Timestamp;
use thiserror::Error;

use super::access::Version;
use crate::admission::Source;
use crate::locks::{Mutex, rank};

/// Why a key is not enrolled.
#[derive(Debug, Error)]
pub enum EnrolError {
    /// The invitation does not count.
    #[error(transparent)]
    NotAccepted(#[from] NotAccepted),
    /// The list of clients cannot be read or written.
    #[error(transparent)]
    Clients(#[from] ClientsError),
}

/// The clients of a running server. What becomes of their file counts from the next caller on, and within a second
/// for sessions that are open.
#[derive(Debug)]
pub struct AcceptedClients {
    /// Nothing where nobody has a key of its own.
    path: Option<PathBuf>,
    /// As the file was when it could be used last.
    read: Mutex<rank::Leaf, UsedList>,
}

/// A list of clients that could be used, and the version of the file that cannot.
#[derive(Debug, Default)]
struct UsedList {
    /// That of the file it is from; none before the first, and where there was no file.
    version: Option<Version>,
    clients: Option<Arc<Clients>>,
    /// The version that has been reported.
    reported: Option<Option<Version>>,
}

impl AcceptedClients {
    /// Those of a file, which is read now.
    ///
    /// # Errors
    /// When the file is there and cannot be used.
    pub fn new(path: Option<PathBuf>) -> Result<Self, ClientsError> {
        let clients = Self { path, read: Mutex::default() };
        clients.read_again()?;
        Ok(clients)
    }

    /// Who is accepted now. While the file cannot be used, what it said last counts: one wrong line of an editor shuts
    /// nobody out, and lets nobody in who was not.
    fn current(&self) -> Arc<Clients> {
        self.read_again().unwrap_or_else(|error| {
            let version = self.path.as_deref().and_then(|path| Version::of(path).ok());
            let mut read = self.read.lock();
            // Each caller comes by here, and sessions once a second.
            if read.reported != Some(version) {
                read.reported = Some(version);
                tracing::error!("{error}; until it can be used, the list of clients counts as it was before");
            }
            read.clients.clone().unwrap_or_default()
        })
    }

    /// Reads the file if it has changed since it could be used last.
    fn read_again(&self) -> Result<Arc<Clients>, ClientsError> {
        let Some(path) = &self.path else { return Ok(Arc::default()) };
        // Before it is read: should it change meanwhile, it is read again for the next caller.
        let version = Version::of(path).ok();
        let mut read = self.read.lock();
        if let Some(clients) = &read.clients
            && read.version == version
        {
            return Ok(Arc::clone(clients));
        }
        let clients = Arc::new(Clients::read(path)?);
        if read.clients.is_some() || !clients.named.is_empty() {
            let names: Vec<_> = clients.named.keys().map(ToString::to_string).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            tracing::info!(file = %path.display(), "clients with keys of their own: {names}");
        }
        *read = UsedList { version, clients: Some(Arc::clone(&clients)), reported: None };
        Ok(clients)
    }

    /// The key that a caller says to hold.
    ///
    /// # Errors
    /// Why its holder is not let in.
    pub fn key(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.current().key(id, Timestamp::now()).cloned()
    }

    /// The secret of an invitation.
    ///
    /// # Errors
    /// Why no key can be enrolled with it.
    pub fn invitation(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.current().invitation(id, Timestamp::now()).cloned()
    }

    /// Enrols the key of an invited client, which uses the invitation up: of several that come with one, one succeeds.
    ///
    /// # Errors
    /// Why it is not enrolled.
    pub fn enrol(&self, id: KeyId, key: NewKey) -> Result<ClientName, EnrolError> {
        let path = self.path.as_ref().ok_or(NotAccepted::InvitationUnknown)?;
        Clients::update(path, |clients| Ok(clients.enrol(id, key.0, Timestamp::now())?))
    }

    /// Whether a session that was begun with this key may go on.
    ///
    /// # Errors
    /// Why it may not.
    pub fn is_accepted(&self, id: KeyId) -> Result<(), NotAccepted> {
        self.current().is_accepted(id, Timestamp::now())
    }

    /// Whether any peer has a share of the GPU's time of its own.
    pub fn has_shares(&self) -> bool {
        self.current().has_shares()
    }

    /// What a client may have, or another peer.
    pub fn limits(&self, peer: Source) -> ClientLimits {
        let name = match peer {
            Source::Client(name) => Some(name),
            Source::Network(_) | Source::Machine(_) | Source::User(_) => None,
        };
        self.current().limits(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::keys::clients::Client;
    use causeway_access::target::key_id;

    #[test]
    fn what_becomes_of_the_file_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients.toml");
        let accepted = AcceptedClients::new(Some(path.clone())).unwrap();
        let name: ClientName = "ada".parse().unwrap();
        let limits = ClientLimits { sessions: Some(2), ..ClientLimits::default() };
        let client = Client { limits, ..Client::new(name) };
        let id = key_id(&client.key);
        assert_eq!(accepted.key(id), Err(NotAccepted::Unknown));
        let others = ClientLimits { sessions: Some(5), device_memory: Some(6), ..ClientLimits::default() };
        Clients { named: [(name, client)].into(), others, ..Clients::default() }.write(&path).unwrap();
        assert_eq!(accepted.key(id).unwrap().client(), Some(name));
        assert_eq!(accepted.is_accepted(id), Ok(()));
        let limits = |peer| {
            let limits = accepted.limits(peer);
            (limits.sessions, limits.device_memory)
        };
        assert_eq!(limits(Source::Client(name)), (Some(2), Some(6)));
        assert_eq!(limits(Source::User(1)), (Some(5), Some(6)));
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "[ada]\n").unwrap();
        assert!(accepted.key(id).is_ok() && accepted.is_accepted(id).is_ok(), "the list as it was before");
        assert_eq!(accepted.key(KeyId([9; 8])), Err(NotAccepted::Unknown), "nobody else");
        assert!(
            AcceptedClients::new(Some(path.clone())).is_err(),
            "a server that starts has none from before"
        );
        assert_eq!(limits(Source::User(1)), (Some(5), Some(6)), "what it said last");
        std::fs::write(&path, good).unwrap();
        assert!(accepted.key(id).is_ok());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(accepted.is_accepted(id), Err(NotAccepted::Unknown));
        assert!(AcceptedClients::new(None).unwrap().key(id).is_err());
    }
}
