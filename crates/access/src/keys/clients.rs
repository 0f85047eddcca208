//! Client keys: the list of clients that have a key of their own at a server or are invited to enrol one, and
//! their limits.
//!
//! Each client of the file shares a secret with the server that no other client has. So one can be distinguished from
//! another, be limited and be shut out, and none can play the server towards another. The file is TOML, a
//! table for each client, and as private as a key file. `causeway client` writes it; who edits it by hand
//! loses comments when that writes it next.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use causeway_config::file::candidates::CLIENT_LIST;
use causeway_wire::handshake::KeyId;
use jiff::Timestamp;
use thiserror::Error;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::keys::file::{self, KeyFileError};
use crate::keys::groups::{self, GROUPS, Group, Member, PeerLimits};
use crate::keys::limits::ClientLimits;
use crate::keys::values::{LineError, id, named, secret, set_limit, time};
use crate::target::{ClientName, Key, key_id};

/// The table with the limits of everybody else, which no client's name can be.
pub const OTHERS: &str = "*";

/// A client that has a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its key.
    pub key: Key,
    /// The one before, and until when connections may still be made with it.
    pub previous: Option<(Key, Timestamp)>,
    /// The invitation by which it has enrolled its key.
    pub used_invitation: Option<KeyId>,
    /// From when on it is shut out.
    pub expires: Option<Timestamp>,
    /// What it may have; where it is not limited, as the others.
    pub limits: ClientLimits,
}

/// The clients of a server that have keys of their own, and what everybody else may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clients {
    /// The clients with keys of their own.
    pub named: BTreeMap<ClientName, Client>,
    /// Those that have been invited and have no key yet.
    pub invited: BTreeMap<ClientName, InvitedClient>,
    /// What each peer without a key of its own may have, and each client where it has no limit of its own.
    pub others: ClientLimits,
    /// The groups, in the order of the file.
    pub groups: Vec<Group>,
}

/// Why the file with the clients is not used.
#[derive(Debug, Error)]
pub enum ClientsError {
    /// It cannot be read or written, or others can.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// It does not say what it should.
    #[error("{path}:{line}: {cause}", path = path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// What is wrong.
        cause: String,
    },
}

/// Why somebody who comes with a client's key is refused. The texts are for the client's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotAccepted {
    /// No client has such a key.
    #[error(
        "it has no client with this key: the key was revoked or replaced, or belongs to another server; ask \
         its owner for a new connect string (`causeway client add` or `causeway client rotate` there)"
    )]
    Unknown,
    /// The time is over for which it was let in.
    #[error("the client has expired: ask the server's owner to add it again (`causeway client add` there)")]
    Expired,
    /// The key has been replaced, and the time is over for which the old one was good.
    #[error(
        "the key has been replaced by a new one: ask the server's owner for that (`causeway client rotate` there)"
    )]
    Replaced,
    /// No client has such an invitation.
    #[error(
        "it has no such invitation: the invitation was revoked or replaced, or belongs to another server; \
         ask its owner for a new one (`causeway client invite` there)"
    )]
    InvitationUnknown,
    /// A key has been enrolled with the invitation.
    #[error(
        "the invitation has been used. If you have not used it, tell the server's owner at once to revoke \
         that client (`causeway client revoke` there)"
    )]
    InvitationUsed,
    /// The time is over for which the invitation was good.
    #[error(
        "the invitation has expired: ask the server's owner for a new one (`causeway client invite` there)"
    )]
    InvitationExpired,
    /// The peer tries one after the other.
    #[error("too many invitations have been tried from this address: try again in a minute")]
    TooManyAttempts,
}

impl Client {
    /// A client with a new key, without limits.
    pub fn new(name: ClientName) -> Self {
        Self {
            key: Key::generate_for(name),
            previous: None,
            used_invitation: None,
            expires: None,
            limits: ClientLimits::default(),
        }
    }

    /// Gives it another key; the one that it has is good until `until`.
    pub fn rotate(&mut self, name: ClientName, until: Timestamp) {
        let old = core::mem::replace(&mut self.key, Key::generate_for(name));
        self.previous = Some((old, until));
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Clients {
    /// Where the clients are kept of the server whose key is in `key_file`.
    pub fn path_in_folder_of(key_file: &Path) -> PathBuf {
        key_file.with_file_name(CLIENT_LIST)
    }

    /// Reads the file; where it is not there, there are none.
    ///
    /// # Errors
    /// When it cannot be read, when others can, or when a line of it makes no sense.
    pub fn read(path: &Path) -> Result<Self, ClientsError> {
        Self::read_checked(path, &|_| Ok(()))
    }

    /// As [`Self::read`], for a server on this machine: `check_unix_group` says what is wrong with the name of a Unix group.
    ///
    /// # Errors
    /// As for [`Self::read`], and when a Unix group cannot be used.
    pub fn read_checked(
        path: &Path,
        check_unix_group: &dyn Fn(&str) -> Result<(), String>,
    ) -> Result<Self, ClientsError> {
        let text = match file::read_private(path) {
            Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read?,
        };
        parse(&text, check_unix_group).map_err(|(offset, cause)| {
            let line =
                1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
            ClientsError::Content { path: path.to_owned(), line, cause }
        })
    }

    /// Reads the file, changes what is in it and writes it, while no other process does; nothing is written
    /// where `change` fails. Servers and commands of one user take turns by a lock file beside it.
    ///
    /// # Errors
    /// When the file cannot be used, or as `change` says.
    pub fn update<R, E: From<ClientsError>>(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let _lock = file::lock(&path.with_extension("lock")).map_err(ClientsError::from)?;
        let mut clients = Self::read(path)?;
        let result = change(&mut clients)?;
        clients.write(path)?;
        Ok(result)
    }

    /// Writes the file, in the place of one that may be there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ClientsError> {
        Ok(file::write_private(path, &self.text())?)
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64 + 256 * self.named.len()));
        text.push_str("# Clients with keys of their own. `causeway client` writes this file.\n");
        let others = self.others.entries();
        if !others.is_empty() {
            text.push_str(&format!("\n[\"{OTHERS}\"]\n"));
        }
        push_entries(&mut text, &others);
        let secret =
            |key: &Key| Zeroizing::new(key.to_text().rsplit(':').next().unwrap_or_default().to_owned());
        for (name, invited) in &self.invited {
            text.push_str(&format!(
                "\n[{name}]\ninvitation = \"{}\"\ninvitation-until = \"{}\"\n",
                *secret(&invited.secret),
                invited.until
            ));
            push_expiry(&mut text, invited.expires);
            push_entries(&mut text, &invited.limits.entries());
        }
        for (name, client) in &self.named {
            text.push_str(&format!("\n[{name}]\nkey = \"{}\"\n", *secret(&client.key)));
            if let Some((key, until)) = &client.previous {
                text.push_str(&format!(
                    "previous-key = \"{}\"\nprevious-until = \"{until}\"\n",
                    *secret(key)
                ));
            }
            if let Some(KeyId(id)) = client.used_invitation {
                text.push_str(&format!("used-invitation = \"{:016x}\"\n", u64::from_be_bytes(id)));
            }
            push_expiry(&mut text, client.expires);
            push_entries(&mut text, &client.limits.entries());
        }
        for group in &self.groups {
            text.push_str(&group.text());
            push_entries(&mut text, &group.limits.entries());
        }
        text
    }

    /// Removes a client or an invited one, from its group, too; whether there was one.
    pub fn remove(&mut self, name: ClientName) -> bool {
        let is_known = self.named.remove(&name).is_some() | self.invited.remove(&name).is_some();
        for group in &mut self.groups {
            group.members.retain(|member| *member != Member::Client(name));
        }
        is_known
    }

    /// What a client may have.
    pub fn limits_of_client(&self, name: ClientName) -> PeerLimits {
        let own = self.named.get(&name).map_or(self.others, |client| client.limits.or(self.others));
        PeerLimits { own, group: self.group(|member| *member == Member::Client(name)) }
    }

    /// What a peer may have that has no key of its own, of which `is_in` says in which Unix groups it is.
    pub fn limits_of_other(&self, is_in: impl Fn(&str) -> bool) -> PeerLimits {
        let is_member = |member: &Member| matches!(member, Member::UnixGroup(name) if is_in(name));
        PeerLimits { own: self.others, group: self.group(is_member) }
    }

    /// The first group that has such a member.
    fn group(&self, is_member: impl Fn(&Member) -> bool) -> Option<(ClientName, ClientLimits)> {
        let group = self.groups.iter().find(|group| group.members.iter().any(&is_member))?;
        Some((group.name, group.limits))
    }

    /// The Unix groups that are members.
    pub fn unix_groups(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|group| &group.members).filter_map(|member| match member {
            Member::UnixGroup(name) => Some(name.as_str()),
            Member::Client(_) => None,
        })
    }

    /// Whether a client, everybody else or a group has a share of its own, so that time of GPUs is shared out.
    pub fn has_shares(&self) -> bool {
        let of_clients = self.named.values().map(|client| &client.limits);
        let of_invited = self.invited.values().map(|invited| &invited.limits);
        let of_groups = self.groups.iter().map(|group| &group.limits);
        let all = of_clients.chain(of_invited).chain(of_groups).chain([&self.others]);
        all.into_iter().any(|limits| limits.share.is_some())
    }

    /// The key that somebody says to hold, if a connection may be made with it now.
    ///
    /// # Errors
    /// Why it may not.
    pub fn key(&self, id: KeyId, now: Timestamp) -> Result<&Key, NotAccepted> {
        let Some((client, key, until)) = self.holder(id) else { return Err(NotAccepted::Unknown) };
        if client.has_expired(now) {
            return Err(NotAccepted::Expired);
        }
        match until {
            Some(until) if until <= now => Err(NotAccepted::Replaced),
            _ => Ok(key),
        }
    }

    /// Whether a session that was begun with this key may go on. That the key has been replaced is no reason
    /// against it.
    ///
    /// # Errors
    /// Why it may not.
    pub fn is_accepted(&self, id: KeyId, now: Timestamp) -> Result<(), NotAccepted> {
        match self.holder(id) {
            None => Err(NotAccepted::Unknown),
            Some((client, ..)) if client.has_expired(now) => Err(NotAccepted::Expired),
            Some(_) => Ok(()),
        }
    }

    /// Whose key it is, and until when it is good if it has been replaced.
    fn holder(&self, id: KeyId) -> Option<(&Client, &Key, Option<Timestamp>)> {
        self.named.values().find_map(|client| {
            let previous = || client.previous.as_ref().map(|(key, until)| (key, Some(*until)));
            let keys = [Some((&client.key, None)), previous()];
            let (key, until) = keys.into_iter().flatten().find(|(key, _)| key_id(key) == id)?;
            Some((client, key, until))
        })
    }
}

fn push_expiry(text: &mut String, expires: Option<Timestamp>) {
    if let Some(expires) = expires {
        text.push_str(&format!("expires = \"{expires}\"\n"));
    }
}

fn push_entries(text: &mut String, entries: &[(&str, String)]) {
    entries.iter().for_each(|(key, value)| text.push_str(&format!("{key} = {value}\n")));
}

fn parse(text: &str, check_unix_group: &dyn Fn(&str) -> Result<(), String>) -> Result<Clients, LineError> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        // What the parser shows of the line may be a secret.
        (at, format!("this is not TOML: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let mut clients = Clients::default();
    for (name, value) in document.get_ref() {
        let at = name.span().start;
        if name.get_ref() == GROUPS {
            continue;
        }
        let DeValue::Table(table) = value.get_ref() else {
            let name = name.get_ref();
            return Err((at, format!("`{name}` must be a table: write [{name}] above what concerns it")));
        };
        if name.get_ref() == OTHERS {
            clients.others = limits_of_others(table)?;
            continue;
        }
        let client: ClientName =
            name.get_ref().parse().map_err(|cause| (at, format!("[{}]: {cause}", name.get_ref())))?;
        match entry(client, at, table)? {
            Entry::Client(known) => drop(clients.named.insert(client, known)),
            Entry::Invited(invited) => drop(clients.invited.insert(client, invited)),
        }
    }
    // Last, as their members must be known.
    if let Some(tables) = document.get_ref().get(GROUPS) {
        let is_client =
            |name: &ClientName| clients.named.contains_key(name) || clients.invited.contains_key(name);
        clients.groups = groups::parse(tables, &is_client, check_unix_group)?;
    }
    Ok(clients)
}

fn limits_of_others(table: &DeTable<'_>) -> Result<ClientLimits, LineError> {
    let mut limits = ClientLimits::default();
    for (field, value) in table {
        if !set_limit(&mut limits, field.get_ref(), value).map_err(named(&format!("\"{OTHERS}\""), field))? {
            let keys = ClientLimits::KEYS.join(", ");
            let text = format!("[\"{OTHERS}\"] has no key `{}`: there are {keys}", field.get_ref());
            return Err((field.span().start, text));
        }
    }
    Ok(limits)
}

/// What a table is about.
enum Entry {
    Client(Client),
    Invited(InvitedClient),
}

fn entry(name: ClientName, at: usize, table: &DeTable<'_>) -> Result<Entry, LineError> {
    let (mut key, mut previous_key, mut previous_until) = (None, None, None);
    let (mut invitation, mut invitation_until, mut used_invitation) = (None, None, None);
    let (mut expires, mut limits) = (None, ClientLimits::default());
    for (field, value) in table {
        match field.get_ref().as_ref() {
            "key" => key = Some(secret(name, value)?),
            "previous-key" => previous_key = Some(secret(name, value)?),
            "previous-until" => previous_until = Some(time(value)?),
            "invitation" => invitation = Some(secret(name, value)?),
            "invitation-until" => invitation_until = Some(time(value)?),
            "used-invitation" => used_invitation = Some(id(value)?),
            "expires" => expires = Some(time(value)?),
            other if set_limit(&mut limits, other, value).map_err(named(name.as_str(), field))? => {}
            other => {
                let known = format!(
                    "key, previous-key, previous-until, invitation, invitation-until, used-invitation, expires, {}",
                    ClientLimits::KEYS.join(", ")
                );
                return Err((
                    field.span().start,
                    format!("[{name}] has no key `{other}`: there are {known}"),
                ));
            }
        }
    }
    let wrong = |text: String| Err((at, text));
    match (key, invitation, invitation_until) {
        (Some(key), None, None) => {
            let previous = previous_key.zip(previous_until);
            Ok(Entry::Client(Client { key, previous, used_invitation, expires, limits }))
        }
        (None, Some(secret), Some(until)) => {
            Ok(Entry::Invited(InvitedClient { secret, until, expires, limits }))
        }
        (None, None, None) => wrong(format!(
            "[{name}] has no `key`, nor an `invitation`: remove it, and `causeway client add {name}`"
        )),
        (Some(_), ..) => wrong(format!(
            "[{name}] has a `key` and an `invitation`, which only a client without one can have"
        )),
        (None, ..) => wrong(format!("[{name}] needs both `invitation` and `invitation-until`")),
    }
}

/// A client that is to enrol a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitedClient {
    /// The secret of the invitation, in the client's name.
    pub secret: Key,
    /// Until when it counts.
    pub until: Timestamp,
    /// From when on the client will be shut out.
    pub expires: Option<Timestamp>,
    /// What the client will have.
    pub limits: ClientLimits,
}

impl InvitedClient {
    /// A client with a new invitation, without limits.
    pub fn new(name: ClientName, until: Timestamp) -> Self {
        Self { secret: Key::generate_for(name), until, expires: None, limits: ClientLimits::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;

    fn name(text: &str) -> ClientName {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read_again_and_stays_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = Clients::path_in_folder_of(&folder.path().join("key"));
        assert_eq!(Clients::read(&path).unwrap(), Clients::default());
        let mut clients = Clients::default();
        let now = Timestamp::now();
        for text in ["ada", "b-2"] {
            clients.named.insert(name(text), Client::new(name(text)));
        }
        let ada = clients.named.get_mut(&name("ada")).unwrap();
        ada.rotate(name("ada"), now);
        ada.expires = Some(now);
        ada.limits = ClientLimits {
            sessions: Some(3),
            device_memory: Some(4 << 30),
            session_memory: Some(1 << 30),
            idle_timeout: Some(Duration::from_secs(1800)),
            session_time: Some(Duration::from_secs(86_400)),
            bandwidth: Some(8 << 20),
            share: Some(3),
        };
        ada.used_invitation = Some(KeyId([0xab, 0, 0, 0, 0, 0, 0, 1]));
        let invited =
            InvitedClient { expires: Some(now), limits: ada.limits, ..InvitedClient::new(name("eve"), now) };
        clients.invited.insert(name("eve"), invited);
        clients.others = ClientLimits { device_memory: Some(5), ..ClientLimits::default() };
        clients.write(&path).unwrap();
        assert_eq!(Clients::read(&path).unwrap(), clients);
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Clients::read(&path), Err(ClientsError::File(KeyFileError::NotPrivate { .. }))));
    }

    #[test]
    fn an_error_names_its_line_and_no_secrets() {
        let key = Key::generate();
        let good = format!("key = \"{}\"\n", *key.to_text());
        for (text, expected) in [
            (format!("[ada]\n{good}sesions = 3\n"), (3, "no key `sesions`")),
            (format!("[ada]\n{good}sessions = \"3\"\n"), (3, "whole number")),
            (format!("[ada]\n{good}expires = \"soon\"\n"), (3, "2027-01-31")),
            (format!("[ada]\n{good}device-memory = 5\n"), (3, "quotation marks")),
            (format!("[ada]\n{good}device-memory = \"lots\"\n"), (3, "is not a size")),
            (format!("[ada]\n{good}session-memory = \"1M\"\n"), (3, "64M or more")),
            (format!("[ada]\n{good}bandwidth = \"1\"\n"), (3, "1M or more")),
            (format!("[ada]\n{good}idle-timeout = \"0s\"\n"), (3, "is not a time")),
            ("[\"*\"]\nsessions = 3\nkey = 1\n".to_owned(), (3, "[\"*\"] has no key `key`")),
            (format!("[ada]\n{good}[\"b c\"]\n{good}"), (3, "1 to 32 letters")),
            ("[ada]\nkey = \"SECRET\"\n".to_owned(), (2, "6 characters")),
            ("\n[ada]\n".to_owned(), (2, "no `key`")),
            (format!("[ada]\n{good}used-invitation = \"SECRET\"\n"), (3, "16 hexadecimal")),
            (
                format!("[ada]\n{good}invitation = \"{}\"\n", *key.to_text()),
                (1, "a `key` and an `invitation`"),
            ),
            (format!("[ada]\ninvitation = \"{}\"\n", *key.to_text()), (1, "`invitation-until`")),
            ("ada = 1\n".to_owned(), (1, "must be a table")),
            ("[ada]\nkey = SECRET\n".to_owned(), (2, "not TOML")),
        ] {
            let (offset, cause) = parse(&text, &|_| Ok(())).unwrap_err();
            let line = 1 + text[..offset].matches('\n').count();
            assert!((line, cause.contains(expected.1)) == (expected.0, true), "{text}: {line}: {cause}");
            assert!(!cause.contains("SECRET"), "{cause}");
        }
    }

    #[test]
    fn changes_of_several_writers_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients.toml");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..8 {
                        let name = name(&format!("c{writer}-{number}"));
                        let add = |clients: &mut Clients| {
                            clients.named.insert(name, Client::new(name));
                            Ok::<_, ClientsError>(())
                        };
                        Clients::update(path, add).unwrap();
                    }
                });
            }
        });
        assert_eq!(Clients::read(&path).unwrap().named.len(), 32);
        let none = Clients::update(&path, |clients| {
            clients.named.clear();
            Err::<(), _>(ClientsError::File(KeyFileError::NoHomeVariable))
        });
        assert!(none.is_err() && Clients::read(&path).unwrap().named.len() == 32);
    }

    #[test]
    fn keys_count_until_they_are_revoked_replaced_or_expired() {
        let now = Timestamp::now();
        let (before, later) = (now - SignedDuration::from_secs(5), now + SignedDuration::from_secs(5));
        let (ada, mut client) = (name("ada"), Client::new(name("ada")));
        let old = key_id(&client.key);
        client.rotate(ada, later);
        let new = key_id(&client.key);
        let mut clients = Clients { named: [(ada, client)].into(), ..Clients::default() };
        assert_eq!(clients.key(new, now).map(Key::client), Ok(Some(ada)));
        assert!(clients.key(old, now).is_ok() && clients.key(old, later) == Err(NotAccepted::Replaced));
        assert_eq!(clients.is_accepted(old, later), Ok(()), "a session goes on when its key is replaced");
        clients.named.get_mut(&ada).unwrap().expires = Some(before);
        assert_eq!(clients.key(new, now), Err(NotAccepted::Expired));
        assert_eq!(clients.is_accepted(new, now), Err(NotAccepted::Expired));
        clients.named.clear();
        assert_eq!(clients.key(new, now), Err(NotAccepted::Unknown));
        assert_eq!(clients.is_accepted(new, now), Err(NotAccepted::Unknown));
    }
}
