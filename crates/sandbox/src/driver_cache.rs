//! Compile cache of NVIDIA's driver, for a confined process.
//!
//! Processes with users of their own cannot write to one folder, nor should they: what one leaves there
//! another would run. So each user has one, which a later session finds that gets the same user.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};

/// The folder with those of users that only workers have.
const OF_WORKERS: &str = "/var/cache/causeway/cuda";

/// The folders of all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverCaches {
    /// A folder for each user in this one.
    Each(PathBuf),
    /// This folder for all, which have the server's user.
    One(PathBuf),
}

impl DriverCaches {
    /// Those of a server; `own_users`: its processes have users of their own. Nothing where the driver is
    /// told to keep nothing, or knows of no place.
    pub fn of(own_users: bool) -> Option<Self> {
        let variable = |name| std::env::var_os(name);
        if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") {
            return None;
        }
        if own_users {
            return Some(Self::Each(OF_WORKERS.into()));
        }
        let path = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        // As NVIDIA documents it.
        let folder = path("CUDA_CACHE_PATH").or_else(|| Some(path("HOME")?.join(".nv/ComputeCache")));
        folder.map(Self::One)
    }

    /// The folder of one user, made if it is not there. Where it cannot be made, the driver compiles each
    /// time.
    pub fn folder_of(&self, user: Option<u32>) -> Option<PathBuf> {
        let folder = match (self, user) {
            (Self::Each(folders), Some(user)) => folders.join(user.to_string()),
            (Self::Each(folder) | Self::One(folder), _) => folder.clone(),
        };
        make(&folder, user).ok().map(|()| folder)
    }
}

fn make(folder: &Path, user: Option<u32>) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Ok(()) => user.map_or(Ok(()), |user| chown(folder, Some(user), Some(user))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn each_user_has_a_folder_that_nobody_else_enters() {
        let folder = tempfile::tempdir().unwrap();
        let caches = DriverCaches::Each(folder.path().join("cuda"));
        let own = rustix::process::geteuid().as_raw();
        // Only root gives folders away.
        let user = if own == 0 { 2_100_000_000 } else { own };
        let made = caches.folder_of(Some(user)).unwrap();
        assert_eq!(made, folder.path().join("cuda").join(user.to_string()));
        let found = std::fs::metadata(&made).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (user, 0o700));
        assert_eq!(caches.folder_of(Some(user)), Some(made), "it is found again");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(DriverCaches::One(folder.path().join("file/cache")).folder_of(None), None);
    }
}
