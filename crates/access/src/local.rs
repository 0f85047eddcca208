//! Servers of this host: names of their sockets, private runtime folder, and the system service of the
//! machine.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::keys::file;
use crate::target::Target;

/// What the names of all sockets of servers begin with. A server cannot make a client speak to any other
/// socket.
pub const SOCKET_PREFIX: &str = "causeway-";

/// What the names of sockets in folders end with.
pub const SOCKET_SUFFIX: &str = ".sock";

/// Whether the last part of a path, or an abstract name without its `@`, is what a server calls a socket.
pub fn is_socket_name(name: &str) -> bool {
    let number =
        name.strip_prefix(SOCKET_PREFIX).map(|rest| rest.strip_suffix(SOCKET_SUFFIX).unwrap_or(rest));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// What this machine's kernel calls its current life; empty when it cannot be read.
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// How many names are tried in a folder where others may make some, too.
const ATTEMPTS: u32 = 16;

/// A folder that only this user can enter, for as long as the user is there or the machine runs: `causeway`
/// in `$XDG_RUNTIME_DIR`, or where that is no folder of this user `/tmp/causeway-UID`, or with a number behind it where
/// somebody else has taken the name. It is made if it is not there.
///
/// # Errors
/// Why the first of them cannot be used, where none can.
pub fn private_folder() -> io::Result<PathBuf> {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    first_of(candidates(runtime.as_deref(), Path::new("/tmp")))
}

fn candidates(runtime: Option<&Path>, shared: &Path) -> impl Iterator<Item = PathBuf> {
    let name = format!("causeway-{}", rustix::process::getuid().as_raw());
    let shared = shared.to_owned();
    let numbered = (0..ATTEMPTS).map(move |number| match number {
        0 => shared.join(&name),
        _ => shared.join(format!("{name}-{number}")),
    });
    runtime.map(|runtime| runtime.join("causeway")).into_iter().chain(numbered)
}

fn first_of(candidates: impl Iterator<Item = PathBuf>) -> io::Result<PathBuf> {
    let mut failure = None;
    for folder in candidates {
        match own(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => _ = failure.get_or_insert(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// Makes a folder if it is not there, and checks that it is this user's alone.
fn own(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        // The process's own mask may have taken rights of this user away.
        Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(0o700))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = std::fs::symlink_metadata(folder)?;
    let is_own = found.uid() == rustix::process::getuid().as_raw();
    if found.is_dir() && is_own && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        let text = format!("{} belongs to another user or is accessible to others", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

/// Where the packaged service listens for programs of its machine.
const SOCKET: &str = "/run/causeway/server.sock";

/// Where it keeps its key.
const KEY_FILE: &str = "/etc/causeway/key";

/// The service, for a command without a named server: where it runs, and root asks, or a user who has neither a
/// server nor a key of its own.
pub fn machine_service() -> Option<Target> {
    let requires_service = is_root() || !has_own_key();
    (requires_service && runs(Path::new(SOCKET))).then(|| Target::unix(SOCKET))
}

/// The key file of the server of this machine, where nobody names one: that of the service, where root asks and it
/// runs, or where it is there and this user has made none; otherwise nothing.
pub fn service_key_file() -> Option<PathBuf> {
    let key_file = PathBuf::from(KEY_FILE);
    let own = file::default_path().is_ok_and(|own| own.exists());
    let is_meant = if own { is_root() && runs(Path::new(SOCKET)) } else { true };
    (is_meant && key_file.exists()).then_some(key_file)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn has_own_key() -> bool {
    [file::list_path(), file::default_path()].into_iter().flatten().any(|path| path.exists())
}

/// Whether somebody listens there whom this user may ask.
fn runs(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_folder_is_taken_where_one_is_not_private() {
        let place = tempfile::tempdir().unwrap();
        let (runtime, shared) = (place.path().join("missing"), place.path());
        let found = || first_of(candidates(Some(&runtime), shared)).unwrap();
        let first = found();
        assert!(first.parent() == Some(shared) && found() == first);
        // As somebody else's would be, it cannot be told from one that others write to.
        std::fs::set_permissions(&first, Permissions::from_mode(0o777)).unwrap();
        let second = found();
        assert!(second != first && second.parent() == Some(shared));
        std::fs::create_dir(&runtime).unwrap();
        assert_eq!(found(), runtime.join("causeway"));
        let none = first_of(candidates(None, &place.path().join("none")));
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_service_runs_where_somebody_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.sock");
        assert!(!runs(&path));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(runs(&path));
        drop(listener);
        assert!(!runs(&path), "its socket is still there");
    }
}
