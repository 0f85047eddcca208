//! Permissions of files with secrets: whether another user can read one.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::{getegid, geteuid, getgroups};

const ROOT: u32 = 0;
/// The bits for users other than the owner.
const NOT_OWNERS: u32 = 0o077;
/// The same without the bit by which the group reads.
const BEYOND_READING_GROUP: u32 = 0o037;

/// A user and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's number.
    pub user: u32,
    /// The numbers of all groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// Those by which the kernel decides what this process may read.
    pub fn of_process() -> Self {
        // More groups than the kernel can list there cannot be; without a list no group counts.
        let further = getgroups().unwrap_or_default();
        let groups = further.into_iter().chain([getegid()]).map(|group| group.as_raw()).collect();
        Self { user: geteuid().as_raw(), groups }
    }
}

/// Whom a file belongs to, and who may do what with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// The owner's number.
    pub owner: u32,
    /// The group's number.
    pub group: u32,
    /// The nine bits of the mode.
    pub mode: u32,
}

impl Permissions {
    /// Those of an open file: of the one behind a symbolic link, too.
    pub fn of(data: &Metadata) -> Self {
        Self { owner: data.uid(), group: data.gid(), mode: data.mode() & 0o777 }
    }

    /// Whether only the owner, and root, can read or write the file.
    pub fn is_owners_alone(self) -> bool {
        self.mode & NOT_OWNERS == 0
    }

    /// Whether the file is root's, and root lets only a group of this user read it: so Kubernetes mounts
    /// a Secret in a pod with `fsGroup`. Root's own group is on a usual machine no such choice, so root has to
    /// be let in by another.
    pub fn is_granted_by_root(self, identity: &Identity) -> bool {
        self.owner == ROOT
            && self.mode & BEYOND_READING_GROUP == 0
            && identity.groups.contains(&self.group)
            && (identity.user != ROOT || self.group != ROOT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_roots_is_private_if_only_a_group_of_ours_can_read_it() {
        let pod = Identity { user: 1000, groups: vec![2000, 1000] };
        let granted = |owner, group, mode, identity: &Identity| {
            Permissions { owner, group, mode }.is_granted_by_root(identity)
        };
        assert!(
            granted(0, 2000, 0o440, &pod) && granted(0, 2000, 0o640, &pod) && granted(0, 1000, 0o400, &pod)
        );
        for loose in [0o444, 0o644, 0o460, 0o660, 0o450, 0o441, 0o442, 0o777] {
            assert!(!granted(0, 2000, loose, &pod), "{loose:o}");
        }
        assert!(!granted(0, 3000, 0o440, &pod), "another group");
        assert!(!granted(1001, 2000, 0o440, &pod) && !granted(1000, 1000, 0o440, &pod), "another owner");
        let arbitrary_user = Identity { user: 1_000_650_000, groups: vec![0] };
        assert!(granted(0, 0, 0o440, &arbitrary_user));
        let root = Identity { user: 0, groups: vec![0, 2000] };
        assert!(granted(0, 2000, 0o440, &root) && !granted(0, 0, 0o640, &root));
    }

    #[test]
    fn a_file_of_an_owner_is_private_without_a_bit_for_others() {
        let alone = |mode| Permissions { owner: 5, group: 5, mode }.is_owners_alone();
        assert!(alone(0o600) && alone(0o400) && !alone(0o640) && !alone(0o604) && !alone(0o610));
    }

    #[test]
    fn this_process_has_a_user_and_a_group() {
        let own = Identity::of_process();
        assert_eq!(own.user, geteuid().as_raw());
        assert!(own.groups.contains(&getegid().as_raw()));
    }
}
