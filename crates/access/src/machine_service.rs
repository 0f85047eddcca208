//! The system service of this machine, as the packages install it: its socket and its key.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::keys::file;
use crate::target::Target;

/// Where the packaged service listens for programs of its machine.
const SOCKET: &str = "/run/causeway/server.sock";

/// Where it keeps its key.
const KEY_FILE: &str = "/etc/causeway/key";

/// The service, for a command that is told of no server: where it runs, and root asks, or a user who has neither a
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
