//! Keys of servers and clients, and where they are stored.
//!
//! A key that is not in the server's address is looked for in the file that `--key-file` or
//! `CAUSEWAY_KEY_FILE` names, or else in the user's list of servers' keys and then in the file where a server
//! of this user keeps its own. So whoever owns a server's key file uses that server without typing anything.
//! To prove a key tells it to nobody: trying one at a server that has another is safe.
//!
//! | module | contents |
//! | --- | --- |
//! | `clients` | Client keys: the list of clients that have a key of their own at a server or are invited to enrol one, and their limits |
//! | `invitations` | Invitations: until when they count, and the enrolment of a key that uses one up |
//! | `limits` | Client limits: what one client may have of a server, as the list of clients sets it |
//! | `file` | Key files: default paths, and the check that no other user can read them |

pub mod clients;
pub mod file;
mod invitations;
pub mod limits;

use std::path::PathBuf;

use causeway_config::file::candidates::is_absent;

use crate::target::{Endpoint, Key};
use file::{KeyFileError, Line};

/// The key of a server, as far as it is known. `named` is a key file to use instead of the user's own ones; one
/// that is not there is an error then.
pub fn of(server: &Endpoint, named: Option<PathBuf>) -> Result<Option<Key>, KeyFileError> {
    Ok(key_of(&known_keys(named)?, server))
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
