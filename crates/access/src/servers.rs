//! Server lists: as users write them, and as configuration files have them.
//!
//! One grammar for `--on`, `CAUSEWAY_ON` and `on` in configuration files: names and addresses with commas between
//! them. A name is one of a `[servers.NAME]` of the files, which counts before a host of that name. [`LOCAL`] stands
//! for the GPUs of the machine itself and [`SOFTWARE`] for the software GPU: who can start a server puts the address
//! of one in their place.

use std::path::PathBuf;

use causeway_config::file::{Named, Settings, SourceLocation, keys as words};
use causeway_config::read::{PROCESS, files};
use causeway_config::table::KEY_FILE;
use causeway_config::unknown;
use thiserror::Error;

use crate::keys::{self, file::KeyFileError};
use crate::target::{DEFAULT_PORT, Target, TargetError};

/// What stands in a list for the GPUs of the machine itself.
pub const LOCAL: &str = words::LOCAL;

/// What stands in a list for the software GPU.
pub const SOFTWARE: &str = words::SOFTWARE;

/// The variable that names a key file.
pub const KEY_FILE_VARIABLE: &str = KEY_FILE.name;

/// Why the servers of a list cannot be used.
#[derive(Debug, Error)]
pub enum ServersError {
    /// An address makes no sense.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The address of a named server makes no sense.
    #[error("{location}: [servers.{name}] address cannot be used: {cause}")]
    Named {
        /// The server's name.
        name: String,
        /// Where its address stands.
        location: SourceLocation,
        /// What is wrong with it.
        cause: TargetError,
    },
    /// A key file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// A GPU of the machine itself is wanted, and nobody serves it.
    #[error(
        "`{0}` is provided by `causeway run` while a program runs: start it with `causeway run --on {0} -- \
         PROGRAM`; a host of that name is `{0}:{DEFAULT_PORT}`"
    )]
    Here(String),
}

/// The parts of a list, each of which stands for one server.
pub fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// The servers of a list, with their keys as far as these are known. `named` is a key file to use instead of those
/// that variables, configuration files and the user's folder name; one that is not there is an error then.
///
/// # Errors
/// For the first that is no server, an empty one among them.
pub fn servers(list: &str, named: Option<PathBuf>) -> Result<Vec<Target>, ServersError> {
    parts(list).map(|part| server(files(), part, named.clone())).collect()
}

fn server(settings: &Settings, part: &str, key_file: Option<PathBuf>) -> Result<Target, ServersError> {
    let mut target = match settings.server(part) {
        Some(named) => named_target(named)?,
        None if part == LOCAL || part == SOFTWARE => return Err(ServersError::Here(part.to_owned())),
        None => part.parse()?,
    };
    if target.lacks_key() {
        let of_server = || PROCESS.of_server(target.name.as_deref()).path(&KEY_FILE);
        target.key = keys::of(&target.endpoint, key_file.or_else(of_server))?;
    }
    Ok(target)
}

/// The server of a name. One without an address is an error that the reader of the files has reported.
fn named_target(named: Named<'_>) -> Result<Target, ServersError> {
    let location = || named.location().cloned().expect("a server with an address says it somewhere");
    let wrong = |cause| ServersError::Named { name: named.name.to_owned(), location: location(), cause };
    let mut target: Target = named.address().ok_or(TargetError::Empty)?.parse().map_err(wrong)?;
    if named.is_clear() {
        target.request_clear();
    }
    target.name = Some(named.name.to_owned());
    Ok(target)
}

/// What to say besides "this host is not known" of what may be a misspelt name: the names of the configuration
/// files. Nothing where there are none, or where it can be no name but a host's.
pub fn names_instead(host: &str) -> Option<String> {
    names_instead_of(host, &files().servers().map(|named| named.name).collect::<Vec<_>>())
}

/// The same for the names of some files. A word that is nearly one of them, or [`LOCAL`] or [`SOFTWARE`], is taken for it.
fn names_instead_of(host: &str, names: &[&str]) -> Option<String> {
    if host.contains(['.', ':']) || names.contains(&host) {
        return None;
    }
    let distance = |name: &str| unknown::distance(host, name);
    // Of a short name two letters are too much of it.
    let is_close = |name: &&&str| distance(name) <= if name.len() > 4 { 2 } else { 1 };
    let close: Vec<_> =
        [SOFTWARE, LOCAL].iter().chain(names).filter(is_close).map(|name| format!("`{name}`")).collect();
    match (close.is_empty(), names.is_empty()) {
        (false, _) => Some(format!("is {} meant?", close.join(" or "))),
        (true, false) => Some(format!("the configuration files name {}", names.join(", "))),
        (true, true) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::file::{Line, write};
    use crate::target::{Endpoint, Key};
    use causeway_config::file::candidates::Candidate;
    use causeway_wire::handshake::Protection;

    #[test]
    fn a_server_has_the_key_of_its_line_or_one_for_any() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let [own, any, given] = [(); 3].map(|()| Key::generate());
        let server = Some(Endpoint::Tcp { host: "a".into(), port: 1 });
        write(&path, &[Line { server: None, key: any.clone() }, Line { server, key: own.clone() }]).unwrap();
        let list = format!("a:1, b:1?clear,causeway://{}@a:1,c:1?insecure-no-key,unix:/x", *given.to_text());
        let keys = servers(&list, Some(path)).unwrap().into_iter().map(|server| server.key);
        assert_eq!(keys.collect::<Vec<_>>(), [Some(own), Some(any), Some(given), None, None]);
    }

    #[test]
    fn a_misspelt_name_is_recognized() {
        assert_eq!(names_instead_of("sofware", &[]).as_deref(), Some("is `software` meant?"));
        assert_eq!(names_instead_of("gpubox", &["gpu-box", "other"]).as_deref(), Some("is `gpu-box` meant?"));
        let names = names_instead_of("elsewhere", &["gpu-box", "a"]);
        assert_eq!(names.as_deref(), Some("the configuration files name gpu-box, a"));
        for known in ["gpu-box", "host.lab", "elsewhere.lab:1"] {
            assert_eq!(names_instead_of(known, &["gpu-box"]), None);
        }
        assert_eq!(names_instead_of("node7", &[]), None);
    }

    #[test]
    fn a_file_that_was_named_must_be_there_if_it_is_needed() {
        let nowhere = || Some(PathBuf::from("/nonexistent/key"));
        assert!(matches!(servers("a", nowhere()), Err(ServersError::File(_))));
        assert!(servers("unix:@x,a?insecure-no-key", nowhere()).is_ok());
    }

    #[test]
    fn a_name_of_the_files_counts_before_a_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        let text = "[servers.box]\naddress = \"box.lab:9\"\nclear = true\n[servers.bad]\naddress = \"a:b\"\n\
                    [servers.near]\naddress = \"unix:@near\"\n";
        std::fs::write(&path, text).unwrap();
        let settings = Settings::read(&[Candidate { path, must_be_there: true }]);
        assert_eq!(settings.errors, []);
        let found = |part: &str| server(&settings, part, Some("/nonexistent/key".into()));
        let near = found("near").unwrap();
        assert_eq!(near, Target { name: Some("near".into()), ..Target::unix("@near") });
        assert_eq!((near.to_string(), near.reference()), ("near (unix:@near)".into(), "near".into()));
        let named = named_target(settings.server("box").unwrap()).unwrap();
        let expected = Target::tcp("box.lab", 9, Protection::Authenticated, None);
        assert_eq!(named, Target { name: Some("box".into()), ..expected });
        assert!(found("box").unwrap_err().to_string().contains("/nonexistent/key"), "it needs a key");
        let error = found("bad").unwrap_err().to_string();
        assert!(
            error.contains("c.toml:5: [servers.bad] address cannot be used: `b` in `a:b` is no port"),
            "{error}"
        );
        assert_eq!(found("other?insecure-no-key").unwrap().name, None);
        assert!(matches!(found("local"), Err(ServersError::Here(_))));
        assert!(matches!(found("software:7690"), Err(ServersError::File(_))), "a host of that name");
    }
}
