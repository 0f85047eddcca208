//! Unix groups of this host: what the list of clients names, and in which a local user is.
//!
//! The user's groups are those of the user database, and not those of a process, which can leave some of its own: so a
//! user cannot leave a group to get around its limits. The database may be a directory service that takes its time;
//! nothing is locked meanwhile.

use std::collections::HashMap;
use std::ffi::CString;
use std::time::{Duration, Instant};

use nix::unistd::{Group, Uid, User, getgrouplist};

use crate::locks::{Mutex, rank};

/// For how long the groups of a user count who comes again.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Users whose groups are kept. With more of them all are asked for again.
const MAX_USERS: usize = 4096;

/// The number of a group that is named, or given as a number.
///
/// # Errors
/// Why it cannot be used; for people.
pub fn group_number(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("this machine has no group `{name}`")),
        Err(cause) => Err(format!("the group `{name}` cannot be looked up: {cause}")),
    }
}

/// The groups of a user; none of one who is in no database.
fn groups_of(user: u32) -> nix::Result<Vec<u32>> {
    let Some(user) = User::from_uid(Uid::from_raw(user))? else { return Ok(Vec::new()) };
    let name = CString::new(user.name).map_err(|_| nix::Error::EINVAL)?;
    Ok(getgrouplist(&name, user.gid)?.into_iter().map(|group| group.as_raw()).collect())
}

/// The groups of the users who have come.
#[derive(Debug, Default)]
pub struct UserGroups(Mutex<rank::Leaf, HashMap<u32, (Instant, Vec<u32>)>>);

impl UserGroups {
    /// The database is asked again for the groups of a user who has come, if that was long ago.
    pub fn refresh(&self, user: u32) {
        let is_new = |known: &(Instant, _)| known.0.elapsed() < MAX_AGE;
        if !self.0.lock().get(&user).is_some_and(is_new) {
            self.read(user);
        }
    }

    /// Whether a user is in a group.
    pub fn is_in(&self, user: u32, group: u32) -> bool {
        let known = self.0.lock().get(&user).map(|(_, groups)| groups.contains(&group));
        known.unwrap_or_else(|| self.read(user).contains(&group))
    }

    /// Asks the database. Where it does not answer, what it said before counts.
    fn read(&self, user: u32) -> Vec<u32> {
        let read = groups_of(user);
        let mut known = self.0.lock();
        if known.len() >= MAX_USERS && !known.contains_key(&user) {
            known.clear();
        }
        let groups = read.unwrap_or_else(|error| {
            tracing::error!("the groups of user {user} cannot be looked up: {error}");
            known.get(&user).map(|(_, groups)| groups.clone()).unwrap_or_default()
        });
        known.insert(user, (Instant::now(), groups.clone()));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_in_its_group_and_in_no_other() {
        assert_eq!((group_number("root"), group_number("4711")), (Ok(0), Ok(4711)));
        let error = group_number("no-such-group").unwrap_err();
        assert!(error.contains("this machine has no group `no-such-group`"), "{error}");
        let groups = UserGroups::default();
        groups.refresh(0);
        assert!(groups.is_in(0, 0) && !groups.is_in(0, 4711));
        assert!(!groups.is_in(u32::MAX - 1, 0), "a user who is in no database");
    }
}
