//! Users of processes, and the compile cache of NVIDIA's driver that each of them has.
//!
//! A server that is root gives every process a user of its own: what one of them could reach by being
//! somebody, another cannot. The lowest free number is taken, so that what the driver keeps per user is found
//! again.
//!
//! Processes with users of their own cannot write to one folder, nor should they: what one leaves there
//! another would run. So each user has one, which a later session finds that gets the same user.

use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;

/// Numbers of users, and of groups, which nobody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRange {
    first: u32,
    last: u32,
}

/// Why a text is no [`UserRange`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a range of users: {cause}; give FIRST-LAST, unused user IDs, for example {}",
    UserRange::DEFAULT
)]
pub struct BadUsers {
    text: String,
    cause: &'static str,
}

impl UserRange {
    /// Above what distributions, systemd (61184 to 65519; containers up to 1879048191), `/etc/subuid` and
    /// SSSD (up to 2000200000) give away, below systemd's foreign users (from 2147352576 on) and the numbers
    /// that some file systems take as negative ones. See <https://systemd.io/UIDS-GIDS> and sssd-ldap(5),
    /// `ldap_idmap_range_max`.
    pub const DEFAULT: Self = Self { first: 2_100_000_000, last: 2_100_004_095 };

    /// The users from `first` to `last`; nothing if there are none, or if root is among them or the number
    /// that means no user.
    pub fn new(first: u32, last: u32) -> Option<Self> {
        (0 < first && first <= last && last < u32::MAX).then_some(Self { first, last })
    }

    /// The lowest number.
    pub fn first(self) -> u32 {
        self.first
    }

    /// The highest number.
    pub fn last(self) -> u32 {
        self.last
    }
}

impl FromStr for UserRange {
    type Err = BadUsers;

    fn from_str(text: &str) -> Result<Self, BadUsers> {
        let bad = |cause| BadUsers { text: text.to_owned(), cause };
        let (first, last) = text.split_once('-').ok_or(bad("there is no `-`"))?;
        let number =
            |text: &str| text.trim().parse().map_err(|_| bad("both ends must be numbers below 2^32"));
        Self::new(number(first)?, number(last)?)
            .ok_or(bad("it must begin above 0, end at 4294967294 at most, and not end before it begins"))
    }
}

impl fmt::Display for UserRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Gives users of a range to processes.
#[derive(Debug)]
pub struct Users {
    range: UserRange,
    /// Whether all processes share the first one.
    is_shared: bool,
    taken: Mutex<BTreeSet<u32>>,
}

impl Users {
    /// Those of a range; `is_shared`: all processes get the first one.
    pub fn new(range: UserRange, is_shared: bool) -> Arc<Self> {
        Arc::new(Self { range, is_shared, taken: Mutex::default() })
    }

    /// The lowest user that nobody has; nothing when all are taken.
    pub fn take(self: &Arc<Self>) -> Option<User> {
        if self.is_shared {
            return Some(User { number: self.range.first, of: None });
        }
        let mut taken = self.taken.lock();
        let number = (self.range.first..=self.range.last).find(|number| !taken.contains(number))?;
        taken.insert(number);
        Some(User { number, of: Some(Arc::clone(self)) })
    }

    /// Those that processes have.
    pub fn taken(&self) -> Vec<u32> {
        self.taken.lock().iter().copied().collect()
    }

    /// Takes these, which processes of another server have; of those that are in the range and free, each until it is
    /// dropped.
    pub fn reserve(self: &Arc<Self>, numbers: &[u32]) -> Vec<User> {
        let mut taken = self.taken.lock();
        let in_range = |number: &&u32| (self.range.first..=self.range.last).contains(*number);
        let free = numbers.iter().filter(in_range).filter(|number| taken.insert(**number));
        free.map(|number| User { number: *number, of: Some(Arc::clone(self)) }).collect()
    }
}

/// The user of one process; released when dropped.
#[derive(Debug)]
pub struct User {
    number: u32,
    of: Option<Arc<Users>>,
}

impl User {
    /// The number of the user and of its group.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(users) = &self.of {
            users.taken.lock().remove(&self.number);
        }
    }
}

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
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_lowest_free_user_is_taken_and_given_back() {
        let users = Users::new(UserRange::new(7, 8).unwrap(), false);
        let (first, second) = (users.take().unwrap(), users.take().unwrap());
        assert_eq!((first.number(), second.number()), (7, 8));
        assert!(users.take().is_none());
        drop(first);
        assert_eq!(users.take().unwrap().number(), 7);
    }

    #[test]
    fn users_of_another_server_are_given_to_nobody() {
        let users = Users::new(UserRange::new(7, 9).unwrap(), false);
        let first = users.take().unwrap();
        let reserved = users.reserve(&[7, 8, 12]);
        assert_eq!((first.number(), users.taken()), (7, vec![7, 8]));
        assert_eq!(users.take().unwrap().number(), 9);
        drop(reserved);
        assert_eq!(users.take().unwrap().number(), 8);
    }

    #[test]
    fn a_shared_user_is_everybodys() {
        let users = Users::new(UserRange::new(7, 7).unwrap(), true);
        let numbers = [users.take(), users.take()].map(|user| user.unwrap().number());
        assert_eq!(numbers, [7, 7]);
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        assert_eq!("5-9".parse(), Ok(UserRange::new(5, 9).unwrap()));
        assert_eq!(UserRange::DEFAULT.to_string().parse(), Ok(UserRange::DEFAULT));
        for text in ["", "5", "0-9", "9-5", "5-4294967295", "-1-5", "a-b"] {
            assert!(text.parse::<UserRange>().unwrap_err().to_string().contains("FIRST-LAST"), "{text}");
        }
    }

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
