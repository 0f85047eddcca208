//! Keys of servers and clients, and where they are stored.
//!
//! A key that is not in the server's address is looked for in the file that `--key-file` or
//! `CAUSEWAY_KEY_FILE` names, or else in the user's list of servers' keys and then in the file where a server
//! of this user keeps its own. So the owner of a server's key file uses that server without typing anything.
//! Proving a key does not reveal it: trying one at a server that has another is safe.
//!
//! | module | contents |
//! | --- | --- |
//! | `clients` | Client keys: the list of clients that have a key of their own at a server or are invited to enrol one, and their limits |
//! | `invitations` | Invitations: until when they count, and the enrolment of a key that uses one up |
//! | `groups` | Groups: clients and local users that share limits, as the list of clients names them |
//! | `limits` | Client limits: what one client may have of a server, as the list of clients sets it |
//! | `values` | Values of the list of clients: from TOML, with what is wrong and where |
//! | `percentages` | Percentages of a GPU: what part of it a peer has by the shares of the list of clients, where several use it at the same time and not in turn |
//! | `file` | Key files: default paths, and the check that no other user can read them |

pub mod clients;
pub mod file;
pub mod groups;
mod invitations;
pub mod limits;
mod percentages;
mod values;

use std::path::{Path, PathBuf};

use causeway_config::file::candidates::is_absent;
use causeway_config::read::PROCESS;
use causeway_config::table::KEY_FILE;

use crate::target::{Endpoint, Key, Target};
use file::{KeyFileError, Line};

/// The key of a server, as far as it is known. `named` is a key file to use instead of the user's own ones; one
/// that is not there is an error then.
pub fn of(server: &Endpoint, named: Option<PathBuf>) -> Result<Option<Key>, KeyFileError> {
    Ok(key_of(&known_keys(named)?, server))
}

/// In which of the files a server's key is that is used for it, for people; nothing for a key that came in another way.
pub fn origin(server: &Target) -> Option<String> {
    let key = server.key.as_ref()?;
    let named = PROCESS.of_server(server.name.as_deref()).path(&KEY_FILE);
    let own = [file::list_path(), file::default_path()].into_iter().filter_map(Result::ok);
    named.into_iter().chain(own).find_map(|path| origin_in(&path, &server.endpoint, key))
}

/// The line of a file that has a server's key.
fn origin_in(path: &Path, server: &Endpoint, key: &Key) -> Option<String> {
    let lines = file::read(path).ok()?;
    let used = lines
        .iter()
        .find(|line| line.key == *key && line.server.as_ref().is_none_or(|of_server| of_server == server))?;
    Some(match &used.server {
        Some(server) => format!("the line of {server} in {}", path.display()),
        None => path.display().to_string(),
    })
}

/// All keys that are known here, the ones to try first in front.
fn known_keys(named: Option<PathBuf>) -> Result<Vec<Line>, KeyFileError> {
    if let Some(named) = named {
        return file::read(&named);
    }
    let mut known = Vec::new();
    for path in [file::list_path(), file::default_path()] {
        // Without a home there are none.
        let Ok(path) = path else { continue };
        match file::read(&path) {
            Ok(lines) => known.extend(lines),
            Err(KeyFileError::Io { cause, .. }) if is_absent(&path, &cause) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(known)
}

/// The key of a server: that of its own line, or else one that serves for any.
fn key_of(known: &[Line], server: &Endpoint) -> Option<Key> {
    let own = known.iter().find(|line| line.server.as_ref() == Some(server));
    let any = || known.iter().find(|line| line.server.is_none());
    own.or_else(any).map(|line| line.key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_has_a_key_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let [own, any, other] = [(); 3].map(|()| Key::generate());
        let server = Endpoint::Tcp { host: "a".into(), port: 1 };
        let lines = [
            Line { server: None, key: any.clone() },
            Line { server: Some(server.clone()), key: own.clone() },
        ];
        file::write(&path, &lines).unwrap();
        let shown = path.display();
        assert_eq!(origin_in(&path, &server, &own), Some(format!("the line of a:1 in {shown}")));
        assert_eq!(origin_in(&path, &server, &any), Some(shown.to_string()));
        assert_eq!(origin_in(&path, &server, &other), None);
        let elsewhere = Endpoint::Tcp { host: "b".into(), port: 1 };
        assert_eq!(origin_in(&path, &elsewhere, &own), None);
        assert_eq!(origin_in(&folder.path().join("none"), &server, &own), None);
    }
}
