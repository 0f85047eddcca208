//! Access control: keys for network clients, users and groups for Unix sockets.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

use causeway_access::Key;
use causeway_access::keys::file::{self, KeyFileError};

use crate::admission::Origin;
use crate::locks::{Mutex, rank};

/// What a caller over a network must prove.
#[derive(Debug, Clone)]
pub enum Access {
    /// That it holds the key in this file, which is made if it is not there. What happens to the file counts
    /// from the next caller on: another key takes its place, and where it is deleted a new one is made.
    KeyFile(PathBuf),
    /// That it holds this key.
    Key(Key),
    /// Nothing: whoever reaches the server may use it.
    NoKey,
}

/// The key of a running server.
#[derive(Debug)]
pub struct ServerKey {
    access: Access,
    /// That of the file as it was when it was read last.
    read: Mutex<rank::Leaf, Option<(Version, Key)>>,
}

/// What tells one version of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    inode: u64,
    changed: (i64, i64),
}

impl Version {
    /// Also tells whether others may read the file, since changing that changes the time.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let data = fs::metadata(path)?;
        Ok(Self { inode: data.ino(), changed: (data.ctime(), data.ctime_nsec()) })
    }
}

impl ServerKey {
    /// The key that `access` asks for; a file is read now.
    pub fn new(access: Access) -> Result<Self, KeyFileError> {
        let key = Self { access, read: Mutex::new(None) };
        key.current()?;
        Ok(key)
    }

    /// The key that counts now; nothing where none is asked for.
    pub fn current(&self) -> Result<Option<Key>, KeyFileError> {
        let path = match &self.access {
            Access::NoKey => return Ok(None),
            Access::Key(key) => return Ok(Some(key.clone())),
            Access::KeyFile(path) => path,
        };
        let mut read = self.read.lock();
        // Before it is read: should it change meanwhile, it is read again for the next caller.
        let version = Version::of(path).ok();
        if let (Some((known, key)), Some(version)) = (&*read, version)
            && *known == version
        {
            return Ok(Some(key.clone()));
        }
        let (key, new) = file::load_or_create(path)?;
        match &*read {
            Some((_, before)) if *before != key => {
                tracing::warn!(file = %path.display(), new, "the key has been replaced; clients with the old one are refused");
            }
            Some(_) => {}
            None => {
                tracing::info!(file = %path.display(), new, "the key is now in a file that others cannot \
                    read");
            }
        }
        // A file that was made just now is read once more.
        *read = version
            .map(|version| (version, key.clone()))
            .or_else(|| Some((Version::of(path).ok()?, key.clone())));
        Ok(Some(key))
    }
}

/// Which users of this host may use the server at its Unix sockets, beside the one that runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedUsers {
    /// By their numbers.
    pub users: BTreeSet<u32>,
    /// All that are in these groups.
    pub groups: BTreeSet<u32>,
}

impl AllowedUsers {
    /// Whether anybody but the server's own user may.
    pub fn others(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Whether the process at the other end may, by what the kernel says of it.
    pub fn admits(&self, stream: &UnixStream, origin: Origin) -> bool {
        let Origin::Host { user, group, .. } = origin else { return false };
        let own = rustix::process::geteuid().as_raw();
        let groups = || further_groups(stream).unwrap_or_default();
        self.admits_user(own, user, || [group].into_iter().chain(groups()))
    }

    fn admits_user<G: IntoIterator<Item = u32>>(
        &self,
        own: u32,
        user: u32,
        groups: impl FnOnce() -> G,
    ) -> bool {
        user == own
            || self.users.contains(&user)
            || (!self.groups.is_empty() && groups().into_iter().any(|group| self.groups.contains(&group)))
    }
}

/// The groups of the process at the other end beside its first, as they were when it connected.
fn further_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes into the vector, which has them.
        let status = unsafe {
            let groups = groups.as_mut_ptr().cast();
            libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups, &mut bytes)
        };
        let count = bytes as usize / size_of::<u32>();
        let error = io::Error::last_os_error();
        match status {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel has said how many there are.
            _ if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0)
            }
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_that_is_replaced_or_deleted_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = ServerKey::new(Access::KeyFile(path.clone())).unwrap();
        let first = key.current().unwrap().unwrap();
        assert_eq!(key.current().unwrap(), Some(first.clone()));
        fs::remove_file(&path).unwrap();
        let second = key.current().unwrap().unwrap();
        assert_ne!(first, second);
        assert_eq!(file::load(&path).unwrap(), second);
        let third = Key::generate();
        file::write(&path, &[file::Line { server: None, key: third.clone() }]).unwrap();
        assert_eq!(key.current().unwrap(), Some(third));
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(key.current(), Err(KeyFileError::NotPrivate { .. })));
    }

    #[test]
    fn users_and_groups_are_let_in_by_name_only() {
        let allowed = |users: &[u32], groups: &[u32]| AllowedUsers {
            users: users.iter().copied().collect(),
            groups: groups.iter().copied().collect(),
        };
        let admits = |allowed: &AllowedUsers, user, groups: [u32; 2]| allowed.admits_user(5, user, || groups);
        let nobody = allowed(&[], &[]);
        assert!(admits(&nobody, 5, [1, 2]) && !admits(&nobody, 0, [5, 5]) && !nobody.others());
        let some = allowed(&[7], &[9]);
        assert!(
            admits(&some, 7, [1, 2])
                && admits(&some, 8, [1, 9])
                && !admits(&some, 9, [7, 8])
                && some.others()
        );
    }

    #[test]
    fn the_kernel_says_in_which_groups_the_other_end_is() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut told = further_groups(&one).unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        told.sort_unstable();
        own.sort_unstable();
        assert_eq!(told, own);
    }
}
