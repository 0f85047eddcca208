//! The clients that have keys of their own, as their file says at the moment.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_access::keys::clients::{Clients, ClientsError, NotAccepted};
use causeway_access::keys::groups::PeerLimits;
use causeway_access::{ClientName, Key};
use causeway_config::read::PROCESS;
use causeway_config::table::CUDA_MPS_ACTIVE_THREAD_PERCENTAGE;
use causeway_wire::handshake::{KeyId, NewKey};
use jiff::Timestamp;
use thiserror::Error;

use super::access::Version;
use super::mps;
use super::unix_groups::{UserGroups, group_number};
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

/// The clients of a running server. Changes of their file take effect from the next connection on, and within a second
/// for sessions that are open.
#[derive(Debug)]
pub struct AcceptedClients {
    /// Nothing where nobody has a key of its own.
    path: Option<PathBuf>,
    /// As the file was when it could be used last.
    read: Mutex<rank::Leaf, UsedList>,
    /// The Unix groups of local users.
    users: UserGroups,
}

/// A list of clients, and the numbers of the Unix groups that it names.
#[derive(Debug, Default)]
struct ClientList {
    clients: Clients,
    unix_groups: HashMap<String, u32>,
}

impl ClientList {
    fn read(path: &Path) -> Result<Self, ClientsError> {
        let clients = read_clients(path)?;
        let number = |name: &str| Some((name.to_owned(), group_number(name).ok()?));
        let unix_groups = clients.unix_groups().filter_map(number).collect();
        Ok(Self { clients, unix_groups })
    }
}

/// Reads a list of clients for a server of this machine, which must have the Unix groups that the list names.
///
/// # Errors
/// When it cannot be used; the error has the line and the key.
pub fn read_clients(path: &Path) -> Result<Clients, ClientsError> {
    Clients::read_checked(path, &|group| group_number(group).map(drop))
}

/// A list of clients that could be used, and the version of the file that cannot.
#[derive(Debug, Default)]
struct UsedList {
    /// That of the file it is from; none before the first, and where there was no file.
    version: Option<Version>,
    clients: Option<Arc<ClientList>>,
    /// The version that has been reported.
    reported: Option<Option<Version>>,
}

impl AcceptedClients {
    /// Those of a file, which is read now.
    ///
    /// # Errors
    /// When the file is there and cannot be used.
    pub fn new(path: Option<PathBuf>) -> Result<Self, ClientsError> {
        let clients = Self { path, read: Mutex::default(), users: UserGroups::default() };
        clients.read_again()?;
        Ok(clients)
    }

    /// Who is accepted now. While the file cannot be used, what it said last counts: one wrong line of an editor shuts
    /// nobody out, and lets nobody in who was not.
    fn current(&self) -> Arc<ClientList> {
        self.read_again().unwrap_or_else(|error| {
            let version = self.path.as_deref().and_then(|path| Version::of(path).ok());
            let mut read = self.read.lock();
            // Each caller comes by here, and sessions once a second.
            if read.reported != Some(version) {
                read.reported = Some(version);
                tracing::error!("{error}; the previous list of clients stays in effect until this is fixed");
            }
            read.clients.clone().unwrap_or_default()
        })
    }

    /// Reads the file if it has changed since it could be used last.
    fn read_again(&self) -> Result<Arc<ClientList>, ClientsError> {
        let Some(path) = &self.path else { return Ok(Arc::default()) };
        // Before it is read: should it change meanwhile, it is read again for the next caller.
        let version = Version::of(path).ok();
        let known = || {
            let read = self.read.lock();
            read.clients.as_ref().filter(|_| read.version == version).map(Arc::clone)
        };
        if let Some(list) = known() {
            return Ok(list);
        }
        // Nothing is locked meanwhile: groups may be in a directory service. Several callers may read the same.
        let list = Arc::new(ClientList::read(path)?);
        let mut read = self.read.lock();
        if read.clients.is_some() && read.version == version {
            return Ok(list);
        }
        if read.clients.is_some() || !list.clients.named.is_empty() {
            let names: Vec<_> = list.clients.named.keys().map(ToString::to_string).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            tracing::info!(file = %path.display(), "clients with keys of their own: {names}");
        }
        *read = UsedList { version, clients: Some(Arc::clone(&list)), reported: None };
        Ok(list)
    }

    /// The key that a caller says to hold.
    ///
    /// # Errors
    /// Why its holder is not let in.
    pub fn key(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.current().clients.key(id, Timestamp::now()).cloned()
    }

    /// The secret of an invitation.
    ///
    /// # Errors
    /// Why no key can be enrolled with it.
    pub fn invitation(&self, id: KeyId) -> Result<Key, NotAccepted> {
        self.current().clients.invitation(id, Timestamp::now()).cloned()
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
        self.current().clients.is_accepted(id, Timestamp::now())
    }

    /// What the worker of a peer gets in its environment where MPS divides the GPU.
    pub fn mps_environment(&self, peer: Source) -> Option<(String, String)> {
        let of_server = PROCESS.raw(&CUDA_MPS_ACTIVE_THREAD_PERCENTAGE);
        let of_server = of_server.as_ref().and_then(|text| text.to_str());
        mps::environment(&self.current().clients, peer, &self.limits(peer), of_server)
    }

    /// Whether any peer has a share of the GPU's time of its own.
    pub fn has_shares(&self) -> bool {
        self.current().clients.has_shares()
    }

    /// A peer is about to have a session: the Unix groups of a user are looked up again.
    pub fn refresh_groups(&self, peer: Source) {
        if let Source::User(user) = peer
            && !self.current().unix_groups.is_empty()
        {
            self.users.refresh(user);
        }
    }

    /// What a client may have, or another peer, and its group.
    pub fn limits(&self, peer: Source) -> PeerLimits {
        let ClientList { clients, unix_groups } = &*self.current();
        match peer {
            Source::Client(name) => clients.limits_of_client(name),
            Source::User(user) => clients.limits_of_other(|group| {
                unix_groups.get(group).is_some_and(|group| self.users.is_in(user, *group))
            }),
            Source::Network(_) | Source::Machine(_) => clients.limits_of_other(|_| false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::keys::clients::Client;
    use causeway_access::keys::limits::ClientLimits;
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
            let limits = accepted.limits(peer).own;
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

    #[test]
    fn clients_and_users_are_in_groups_as_the_file_says_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients.toml");
        let accepted = AcceptedClients::new(Some(path.clone())).unwrap();
        let ada: ClientName = "ada".parse().unwrap();
        let others = ClientLimits { sessions: Some(5), ..ClientLimits::default() };
        Clients { named: [(ada, Client::new(ada))].into(), others, ..Clients::default() }
            .write(&path)
            .unwrap();
        let clients = std::fs::read_to_string(&path).unwrap();
        let group = |peer| {
            let limits = accepted.limits(peer);
            assert_eq!(limits.own.sessions, Some(5));
            limits.group.map(|(name, limits)| (name.to_string(), limits.sessions))
        };
        let address = Source::of_address("10.0.0.1".parse().unwrap());
        let of_all = || [Source::Client(ada), Source::User(0), Source::User(u32::MAX), address].map(group);
        assert_eq!(of_all(), [None, None, None, None]);
        let write = |groups: &str| std::fs::write(&path, format!("{clients}{groups}")).unwrap();
        write("[groups.staff]\nmembers = [\"ada\", \"@root\"]\nsessions = 7\n");
        let staff = Some(("staff".to_owned(), Some(7)));
        assert_eq!(of_all(), [staff.clone(), staff.clone(), None, None]);
        // A user is in the first one that has a group of the user's.
        write(
            "[groups.guests]\nmembers = [\"@0\"]\n[groups.staff]\nmembers = [\"ada\", \"@root\"]\nsessions = 7\n",
        );
        assert_eq!(of_all(), [staff.clone(), Some(("guests".to_owned(), None)), None, None]);
        write("[groups.guests]\nmembers = [\"@no-such-group\"]\n");
        assert_eq!(group(Source::Client(ada)), staff, "what it said last");
        let error = read_clients(&path).unwrap_err().to_string();
        assert!(
            error.contains("[groups.guests] members: this machine has no group `no-such-group`"),
            "{error}"
        );
    }
}
