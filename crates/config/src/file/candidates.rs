//! Paths of configuration files, their order, and who may own them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{ConfigFileError, SourceLocation};
use super::keys::ADDRESS;
use super::permissions::{Identity, Permissions};
use super::section::Section;
use super::text::{Entry, Value};
use crate::table::{CONFIG, ON};

/// The folder of the machine's files: all that end in `.toml` are read, but for [`CLIENT_LIST`].
pub const OF_SYSTEM: &str = "/etc/causeway";

/// The file with the keys of a server's clients, beside the server's own key. Where that is in [`OF_SYSTEM`] this is no
/// configuration: only the server's user may read it, and every other program of the machine goes on without.
pub const CLIENT_LIST: &str = "clients.toml";

/// The most bytes of a file that are read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The folder of this user's configuration: `causeway` in `$XDG_CONFIG_HOME` or `~/.config`; none without a
/// home directory.
pub fn of_user() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    Some(folder.or_else(|| variable("HOME").map(|home_dir| home_dir.join(".config")))?.join("causeway"))
}

/// The files of this process, the one that counts first in front: that of the user, then those of the
/// machine, the last by name first. `CAUSEWAY_CONFIG` names one file instead of them all, or none.
pub fn of_process() -> Vec<Candidate> {
    match std::env::var_os(CONFIG.name) {
        Some(named) if named.is_empty() => Vec::new(),
        Some(named) => vec![Candidate { path: named.into(), must_be_there: true }],
        None => default(of_user(), Path::new(OF_SYSTEM)),
    }
}

/// A file that may be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// Whether the user has named it.
    pub must_be_there: bool,
}

/// The files of a user's folder and of the machine's.
fn default(user: Option<PathBuf>, system: &Path) -> Vec<Candidate> {
    let entries = fs::read_dir(system).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_configuration = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "toml")
            && path.file_name() != Some(CLIENT_LIST.as_ref())
    };
    let mut of_system: Vec<_> = entries.filter(is_configuration).collect();
    of_system.sort_unstable_by(|one, other| other.cmp(one));
    let of_user = user.map(|folder| folder.join("config.toml"));
    let candidate = |path| Candidate { path, must_be_there: false };
    of_user.into_iter().chain(of_system).map(candidate).collect()
}

/// A file that is there.
pub struct Found {
    /// Where it is.
    pub file: Arc<PathBuf>,
    /// What is in it.
    pub text: String,
    data: Metadata,
}

/// Reads a file; nothing where there is none and none must be.
pub fn read(candidate: &Candidate) -> Result<Option<Found>, ConfigFileError> {
    let file = Arc::new(std::path::absolute(&candidate.path).unwrap_or_else(|_| candidate.path.clone()));
    let error = |text: String| ConfigFileError {
        location: SourceLocation { file: Arc::clone(&file), line: None },
        section: None,
        text,
    };
    let failed = |cause: io::Error| error(format!("the configuration file cannot be read: {cause}"));
    let open = match File::open(&*file) {
        Ok(open) => open,
        Err(cause) if is_absent(&file, &cause) && !candidate.must_be_there => return Ok(None),
        Err(cause) => return Err(failed(cause)),
    };
    let data = open.metadata().map_err(failed)?;
    if data.is_dir() {
        return Err(error("the configuration file is a folder".to_owned()));
    }
    if data.mode() & 0o002 != 0 {
        // It says where the data of programs go.
        let path = file.display();
        return Err(error(format!("every user can write to the configuration file: run `chmod o-w {path}`")));
    }
    let mut text = String::new();
    let read = open.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(error(format!("the configuration file has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(Some(Found { file, text, data }))
}

/// Whether a failure to open a file says that there is none for this user: it is not there, or it is in a place where
/// this user may not look whether it is. Programs in containers often run as a user whose home is another's.
pub fn is_absent(path: &Path, cause: &io::Error) -> bool {
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        // A file that is there and cannot be read is an error.
        io::ErrorKind::PermissionDenied => {
            fs::symlink_metadata(path).is_err_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
        }
        _ => false,
    }
}

impl Found {
    /// What is wrong with an entry that holds a server's key: others must not be able to read it.
    pub fn exposed_key(&self, entry: &Entry) -> Option<ConfigFileError> {
        let is_address = match entry.section {
            Section::Server(_) => entry.key == ADDRESS,
            Section::Client => ON.key().is_some_and(|on| on == entry.key),
            Section::Serve => false,
        };
        let permissions = Permissions::of(&self.data);
        let is_private =
            permissions.is_owners_alone() || permissions.is_granted_by_root(&Identity::of_process());
        if !is_address || !entry.values.iter().any(has_key) || is_private {
            return None;
        }
        let mode = permissions.mode;
        let text = format!(
            "{} {} has a key in it, and the file can be read by others (mode {mode:03o}): run `chmod 600 {}`, or \
             keep the key with `causeway key add` and write the address without it; if others may have read it, delete \
             the key file on the server, which makes a new key",
            entry.section,
            entry.key,
            self.file.display()
        );
        Some(ConfigFileError { location: entry.location.clone(), section: Some(entry.section.clone()), text })
    }
}

/// Whether one of these addresses is a connect string with a key in front of its host.
fn has_key(addresses: &Value) -> bool {
    let Value::Text(addresses) = addresses else { return false };
    addresses.split(',').map(str::trim).any(|address| !address.starts_with("unix:") && address.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_users_file_is_first_and_then_the_last_of_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["10-site.toml", "20-lab.toml", "notes.txt", "20-lab.toml.bak", CLIENT_LIST, "key"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = default(Some("/home/u/.config/causeway".into()), folder.path());
        let names: Vec<_> = found.iter().map(|candidate| candidate.path.display().to_string()).collect();
        let system = folder.path().display();
        let expected = [
            "/home/u/.config/causeway/config.toml".to_owned(),
            format!("{system}/20-lab.toml"),
            format!("{system}/10-site.toml"),
        ];
        assert_eq!(names, expected);
        assert_eq!(default(None, Path::new("/nowhere")), []);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_what_is_not_there_only_if_it_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let read_at = |path: PathBuf, must_be_there| read(&Candidate { path, must_be_there });
        let missing = folder.path().join("missing.toml");
        assert!(read_at(missing.clone(), false).is_ok_and(|found| found.is_none()));
        let text = |found: Result<Option<Found>, ConfigFileError>| {
            found.err().expect("it cannot be read").to_string()
        };
        assert!(text(read_at(missing, true)).contains("missing.toml: the configuration file cannot be read"));
        assert!(text(read_at(folder.path().into(), false)).ends_with("is a folder"));
        let path = folder.path().join("c.toml");
        fs::write(&path, vec![b'#'; MAX_FILE_BYTES as usize + 1]).unwrap();
        assert!(text(read_at(path.clone(), false)).contains("more than 1048576 bytes"));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(text(read_at(path.clone(), false)).contains("cannot be read"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o646)).unwrap();
        assert!(text(read_at(path, false)).contains("every user can write"));
    }

    #[test]
    fn file_in_a_folder_that_cannot_be_searched_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        let path = closed.join("c.toml");
        fs::write(&path, "").unwrap();
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(!is_absent(&path, &denied), "it is there");
        assert!(!is_absent(&path, &io::ErrorKind::InvalidData.into()));
        assert!(is_absent(&path, &io::ErrorKind::NotADirectory.into()));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        // Root may look everywhere.
        if fs::metadata(&path).is_err() {
            assert!(is_absent(&path, &denied));
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
}
