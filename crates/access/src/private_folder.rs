//! Private runtime folder for sockets and files that other users cannot access.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// How many names are tried in a folder where others may make some, too.
const ATTEMPTS: u32 = 16;

/// A folder that only this user can enter, for as long as the user is there or the machine runs: `causeway`
/// in `$XDG_RUNTIME_DIR`, or where that is no folder of this user `/tmp/causeway-USER`, or with a number behind it where
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
        let text = format!("{} belongs to another user, or others can enter it", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
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
}
