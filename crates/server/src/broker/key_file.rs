//! Where is the key, and is it really secret?

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use causeway_fabric::{Key, KeyError};
use thiserror::Error;

/// Why a key file is not used.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// There is no home directory to look in.
    #[error("there is no HOME to keep the key in: name a file with --key-file")]
    NoHome,
    /// The file cannot be read or made.
    #[error("the key file {path} cannot be {action}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// Others can read the key.
    #[error(
        "the key file {path} can be read by others (mode {mode:03o}): run `chmod 600 {path}`; if others \
         may have read it, delete it and a new key is made"
    )]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to somebody else.
    #[error("the key file {path} belongs to user {owner}, not to the user that runs the server ({user})")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The owner's number.
        owner: u32,
        /// Our number.
        user: u32,
    },
    /// The file holds no key.
    #[error("the key file {path} holds no key: {cause}; delete it and a new key is made")]
    NoKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: KeyError,
    },
}

/// Where the key is kept unless another file is named: `causeway/key` in `$XDG_CONFIG_HOME` or `~/.config`.
pub fn default_path() -> Result<PathBuf, KeyFileError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| variable("HOME").map(|home| home.join(".config")));
    Ok(folder.ok_or(KeyFileError::NoHome)?.join("causeway").join("key"))
}

/// Reads the key in `path`, or makes one where there is none; the second value says that it is new. The
/// file must belong to the user who runs this and be closed to everybody else.
pub fn load_or_create(path: &Path) -> Result<(Key, bool), KeyFileError> {
    match read(path) {
        Err(KeyFileError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            let new = create(path)?;
            // Another server may have been faster; then its key is the one that counts.
            let key = read(path)?;
            Ok((key.clone(), key == new))
        }
        read => read.map(|key| (key, false)),
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> KeyFileError {
    let path = path.to_owned();
    move |cause| KeyFileError::Io { path: path.clone(), action, cause }
}

fn read(path: &Path) -> Result<Key, KeyFileError> {
    let failed = failed(path, "read");
    let file = fs::File::open(path).map_err(&failed)?;
    let data = file.metadata().map_err(&failed)?;
    let user = rustix::process::geteuid().as_raw();
    if data.uid() != user {
        return Err(KeyFileError::NotOurs { path: path.to_owned(), owner: data.uid(), user });
    }
    if data.mode() & 0o077 != 0 {
        return Err(KeyFileError::NotPrivate { path: path.to_owned(), mode: data.mode() & 0o777 });
    }
    let mut text = String::new();
    file.take(1024).read_to_string(&mut text).map_err(&failed)?;
    text.trim().parse().map_err(|cause| KeyFileError::NoKey { path: path.to_owned(), cause })
}

fn create(path: &Path) -> Result<Key, KeyFileError> {
    let failed = failed(path, "created");
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(&failed)?;
    }
    // The file gets its name when it is complete, and only if there is none of that name.
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let key = Key::generate();
    let written =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(format!("{}\n", key.to_text()).as_bytes())?;
            file.sync_all()?;
            match fs::hard_link(&draft, path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        });
    // A draft that cannot be removed holds a key that nobody uses.
    let _ = fs::remove_file(&draft);
    written.map_err(&failed)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("key");
        let (key, new) = load_or_create(&path).unwrap();
        assert!(new);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(&path).unwrap(), (key, false));
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = load_or_create(&path).unwrap_err();
        assert!(error.to_string().contains("mode 640") && error.to_string().contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(load_or_create(&path), Err(KeyFileError::NoKey { .. })));
    }
}
