//! Where are sockets and files that no other user may reach?

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;

/// A folder that only this user can enter, for as long as the user is there or the machine runs: `causeway`
/// in `$XDG_RUNTIME_DIR`, or `/tmp/causeway-USER`. It is made if it is not there.
///
/// # Errors
/// When it cannot be made, or what is there belongs to another user or is open to others.
pub fn private_folder() -> io::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("causeway"),
        None => PathBuf::from(format!("/tmp/causeway-{user}")),
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(&folder)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        Ok(folder)
    } else {
        let text = format!("{} belongs to another user, or others can enter it", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}
