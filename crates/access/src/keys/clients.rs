//! Client keys: the list of clients that have a key of their own at a server, and their limits.
//!
//! Each client of the file shares a secret with the server that nobody else has. So one can be told from another,
//! be limited and be shut out, and none can play the server towards another. The file is TOML, a table for each
//! client, and as private as a key file. `causeway client` writes it; who edits it by hand loses comments when that
//! writes it next.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use causeway_wire::handshake::KeyId;
use jiff::Timestamp;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use super::file::{self, KeyFileError};
use crate::target::{ClientName, Key, key_id};

/// The file's name, beside the server's key file.
const NAME: &str = "clients.toml";

/// A client that has a key of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its key.
    pub key: Key,
    /// The one before, and until when connections may still be made with it.
    pub previous: Option<(Key, Timestamp)>,
    /// From when on it is shut out.
    pub expires: Option<Timestamp>,
    /// The most sessions that it may have at a time.
    pub sessions: Option<usize>,
}

/// The clients of a server that have keys of their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clients(pub BTreeMap<ClientName, Client>);

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

/// Why somebody who comes with a client's key is turned away. The texts are for the client's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotAccepted {
    /// No client has such a key.
    #[error(
        "it knows no client with this key: it has been revoked or replaced, or is another server's; ask its owner for a new \
         connect string (`causeway client add` or `causeway client rotate` there)"
    )]
    Unknown,
    /// The time is over for which it was let in.
    #[error("the client has expired: ask the server's owner to add it anew (`causeway client add` there)")]
    Expired,
    /// The key has been replaced, and the time is over for which the old one was good.
    #[error(
        "the key has been replaced by a new one: ask the server's owner for that (`causeway client rotate` there)"
    )]
    Replaced,
}

impl Client {
    /// A client with a new key, without limits.
    pub fn new(name: ClientName) -> Self {
        Self { key: Key::generate_for(name), previous: None, expires: None, sessions: None }
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
        key_file.with_file_name(NAME)
    }

    /// Reads the file; where it is not there, there are none.
    ///
    /// # Errors
    /// When it cannot be read, when others can, or when a line of it makes no sense.
    pub fn read(path: &Path) -> Result<Self, ClientsError> {
        let text = match file::read_private(path) {
            Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read?,
        };
        parse(&text).map_err(|(offset, cause)| {
            let line =
                1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count();
            ClientsError::Content { path: path.to_owned(), line, cause }
        })
    }

    /// Writes the file, in the place of one that may be there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ClientsError> {
        Ok(file::write_private(path, &self.text())?)
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64 + 256 * self.0.len()));
        text.push_str("# Clients with keys of their own. `causeway client` writes this file.\n");
        for (name, client) in &self.0 {
            let secret =
                |key: &Key| Zeroizing::new(key.to_text().rsplit(':').next().unwrap_or_default().to_owned());
            text.push_str(&format!("\n[{name}]\nkey = \"{}\"\n", *secret(&client.key)));
            if let Some((key, until)) = &client.previous {
                text.push_str(&format!(
                    "previous-key = \"{}\"\nprevious-until = \"{until}\"\n",
                    *secret(key)
                ));
            }
            if let Some(expires) = client.expires {
                text.push_str(&format!("expires = \"{expires}\"\n"));
            }
            if let Some(sessions) = client.sessions {
                text.push_str(&format!("sessions = {sessions}\n"));
            }
        }
        text
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
        self.0.values().find_map(|client| {
            let previous = || client.previous.as_ref().map(|(key, until)| (key, Some(*until)));
            let keys = [Some((&client.key, None)), previous()];
            let (key, until) = keys.into_iter().flatten().find(|(key, _)| key_id(key) == id)?;
            Some((client, key, until))
        })
    }
}

/// What is wrong, and where in the text.
type LineError = (usize, String);

fn parse(text: &str) -> Result<Clients, LineError> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(text.len(), |span| span.start);
        // What the parser shows of the line may be a secret.
        (at, format!("this is not TOML: {}", error.message().lines().next().unwrap_or_default()))
    })?;
    let mut clients = Clients::default();
    for (name, value) in document.get_ref() {
        let at = name.span().start;
        let client: ClientName =
            name.get_ref().parse().map_err(|cause| (at, format!("[{}]: {cause}", name.get_ref())))?;
        let DeValue::Table(table) = value.get_ref() else {
            return Err((at, format!("`{client}` must be a table: write [{client}] above what concerns it")));
        };
        clients.0.insert(client, entry(client, at, table)?);
    }
    Ok(clients)
}

fn entry(name: ClientName, at: usize, table: &DeTable<'_>) -> Result<Client, LineError> {
    let (mut key, mut previous_key, mut previous_until) = (None, None, None);
    let (mut expires, mut sessions) = (None, None);
    for (field, value) in table {
        match field.get_ref().as_ref() {
            "key" => key = Some(secret(name, value)?),
            "previous-key" => previous_key = Some(secret(name, value)?),
            "previous-until" => previous_until = Some(time(value)?),
            "expires" => expires = Some(time(value)?),
            "sessions" => sessions = Some(number(value)?),
            other => {
                let known = "key, previous-key, previous-until, expires, sessions";
                return Err((
                    field.span().start,
                    format!("[{name}] has no key `{other}`: there are {known}"),
                ));
            }
        }
    }
    let key = key
        .ok_or_else(|| (at, format!("[{name}] has no `key`: remove it, and `causeway client add {name}`")))?;
    let previous = previous_key.zip(previous_until);
    Ok(Client { key, previous, expires, sessions })
}

fn secret(name: ClientName, value: &Spanned<DeValue<'_>>) -> Result<Key, LineError> {
    let at = value.span().start;
    let text = string(value)?;
    // A name in it would stand before the client's own.
    let text = Zeroizing::new(format!("{name}:{text}"));
    text.parse().map_err(|cause| (at, format!("{cause}")))
}

fn time(value: &Spanned<DeValue<'_>>) -> Result<Timestamp, LineError> {
    let text = string(value)?;
    text.parse().map_err(|_| {
        (
            value.span().start,
            format!("`{text}` is no time: write it as 2027-01-31T12:00:00Z, in quotation marks"),
        )
    })
}

fn number(value: &Spanned<DeValue<'_>>) -> Result<usize, LineError> {
    let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
    number.ok_or_else(|| (value.span().start, "this must be a whole number".to_owned()))
}

fn string<'a>(value: &'a Spanned<DeValue<'_>>) -> Result<&'a str, LineError> {
    value
        .get_ref()
        .as_str()
        .ok_or_else(|| (value.span().start, "this must be a text in quotation marks".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

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
            clients.0.insert(name(text), Client::new(name(text)));
        }
        let ada = clients.0.get_mut(&name("ada")).unwrap();
        ada.rotate(name("ada"), now);
        (ada.expires, ada.sessions) = (Some(now), Some(3));
        clients.write(&path).unwrap();
        assert_eq!(Clients::read(&path).unwrap(), clients);
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Clients::read(&path), Err(ClientsError::File(KeyFileError::NotPrivate { .. }))));
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_without_secrets() {
        let key = Key::generate();
        let good = format!("key = \"{}\"\n", *key.to_text());
        for (text, expected) in [
            (format!("[ada]\n{good}sesions = 3\n"), (3, "no key `sesions`")),
            (format!("[ada]\n{good}sessions = \"3\"\n"), (3, "whole number")),
            (format!("[ada]\n{good}expires = \"soon\"\n"), (3, "2027-01-31")),
            (format!("[ada]\n{good}[\"b c\"]\n{good}"), (3, "1 to 32 letters")),
            ("[ada]\nkey = \"SECRET\"\n".to_owned(), (2, "6 characters")),
            ("\n[ada]\n".to_owned(), (2, "no `key`")),
            ("ada = 1\n".to_owned(), (1, "must be a table")),
            ("[ada]\nkey = SECRET\n".to_owned(), (2, "not TOML")),
        ] {
            let (offset, cause) = parse(&text).unwrap_err();
            let line = 1 + text[..offset].matches('\n').count();
            assert!((line, cause.contains(expected.1)) == (expected.0, true), "{text}: {line}: {cause}");
            assert!(!cause.contains("SECRET"), "{cause}");
        }
    }

    #[test]
    fn keys_count_until_they_are_revoked_replaced_or_expired() {
        let now = Timestamp::now();
        let (before, later) = (now - SignedDuration::from_secs(5), now + SignedDuration::from_secs(5));
        let (ada, mut client) = (name("ada"), Client::new(name("ada")));
        let old = key_id(&client.key);
        client.rotate(ada, later);
        let new = key_id(&client.key);
        let mut clients = Clients([(ada, client)].into());
        assert_eq!(clients.key(new, now).map(Key::client), Ok(Some(ada)));
        assert!(clients.key(old, now).is_ok() && clients.key(old, later) == Err(NotAccepted::Replaced));
        assert_eq!(clients.is_accepted(old, later), Ok(()), "a session goes on when its key is replaced");
        clients.0.get_mut(&ada).unwrap().expires = Some(before);
        assert_eq!(clients.key(new, now), Err(NotAccepted::Expired));
        assert_eq!(clients.is_accepted(new, now), Err(NotAccepted::Expired));
        clients.0.clear();
        assert_eq!(clients.key(new, now), Err(NotAccepted::Unknown));
        assert_eq!(clients.is_accepted(new, now), Err(NotAccepted::Unknown));
    }
}
