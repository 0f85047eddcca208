//! Which key is a server's, and where is it kept?
//!
//! A key that is not in the server's address is looked for in the file that `--key-file` or
//! `CAUSEWAY_KEY_FILE` names, or else in the user's list of servers' keys and then in the file where a server
//! of this user keeps its own. So whoever owns a server's key file uses that server without typing anything.
//! To prove a key tells it to nobody: trying one at a server that has another is safe.
//!
//! | Module   | Question it answers                              |
//! |----------|--------------------------------------------------|
//! | [`mod@file`] | Where are keys kept, and are they really secret? |

pub mod file;

use causeway_config::read::PROCESS;
use causeway_config::table::KEY_FILE;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::target::{Endpoint, Key, Target, TargetError};
use file::{KeyFileError, Line};

/// The variable that names a key file.
pub const VARIABLE: &str = KEY_FILE.name;

/// Why the servers of a list cannot be used.
#[derive(Debug, Error)]
pub enum ServersError {
    /// An address makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A key file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
}

/// The servers of a list with commas between them, with their keys as far as these are known. `named` is a
/// key file to use instead of the user's own ones; one that is not there is an error then.
pub fn servers(list: &str, named: Option<PathBuf>) -> Result<Vec<Target>, ServersError> {
    let mut servers = Target::list(list)?;
    if servers.iter().any(Target::lacks_key) {
        let keys = known_keys(named)?;
        for server in servers.iter_mut().filter(|server| server.lacks_key()) {
            server.key = key_of(&keys, &server.endpoint);
        }
    }
    Ok(servers)
}

/// The key file that the environment names.
pub fn named_by_environment() -> Option<PathBuf> {
    PROCESS.path(&KEY_FILE)
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
            Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {}
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
    fn a_server_has_the_key_of_its_line_or_one_for_any() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let [own, any, given] = [(); 3].map(|()| Key::generate());
        let server = Some(Endpoint::Tcp { host: "a".into(), port: 1 });
        file::write(&path, &[Line { server: None, key: any.clone() }, Line { server, key: own.clone() }])
            .unwrap();
        let list = format!("a:1,b:1?clear,causeway://{}@a:1,c:1?insecure-no-key,unix:/x", *given.to_text());
        let keys = servers(&list, Some(path)).unwrap().into_iter().map(|server| server.key);
        assert_eq!(keys.collect::<Vec<_>>(), [Some(own), Some(any), Some(given), None, None]);
    }

    #[test]
    fn a_file_that_was_named_must_be_there_if_it_is_needed() {
        let nowhere = || Some(PathBuf::from("/nonexistent/key"));
        assert!(matches!(servers("a", nowhere()), Err(ServersError::File(_))));
        assert!(servers("unix:@x,a?insecure-no-key", nowhere()).is_ok());
    }
}
