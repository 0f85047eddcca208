//! Control groups of this process: their mount points, and the memory limit that they set.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the groups that this process is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// That of version 2.
    pub unified: Option<PathBuf>,
    /// That of version 1 whose hierarchy counts memory.
    pub memory: Option<PathBuf>,
    /// That of version 1 whose hierarchy counts threads.
    pub pids: Option<PathBuf>,
}

/// One line of `/proc/self/mountinfo` that is of a hierarchy of groups.
struct Hierarchy<'a> {
    /// The group that is seen at `at`.
    root: &'a str,
    at: &'a str,
    /// The controllers of version 1; nothing in version 2.
    controllers: Option<&'a str>,
}

/// Finds them in the texts of `/proc/self/cgroup` and `/proc/self/mountinfo` (proc(5), cgroups(7)).
pub fn find(groups: &str, mounts: &str) -> Found {
    let hierarchies: Vec<Hierarchy<'_>> = mounts.lines().filter_map(hierarchy).collect();
    let mut found = Found::default();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let has = |list: &str, name: &str| list.split(',').any(|controller| controller == name);
        if controllers.is_empty() {
            found.unified = folder(&hierarchies, group, |of| of.controllers.is_none());
        }
        let of_version_1 = |name: &str| {
            folder(&hierarchies, group, |of| of.controllers.is_some_and(|controllers| has(controllers, name)))
        };
        if has(controllers, "memory") {
            found.memory = of_version_1("memory");
        }
        if has(controllers, "pids") {
            found.pids = of_version_1("pids");
        }
    }
    found
}

fn hierarchy(line: &str) -> Option<Hierarchy<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, at) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    match (after.next()?, after.nth(1)) {
        ("cgroup2", _) => Some(Hierarchy { root, at, controllers: None }),
        ("cgroup", Some(controllers)) => Some(Hierarchy { root, at, controllers: Some(controllers) }),
        _ => None,
    }
}

/// Where a group is seen; nothing where only others are, as in a container that was moved.
fn folder(
    hierarchies: &[Hierarchy<'_>],
    group: &str,
    is_right: impl Fn(&Hierarchy<'_>) -> bool,
) -> Option<PathBuf> {
    hierarchies.iter().filter(|hierarchy| is_right(hierarchy)).find_map(|hierarchy| {
        let relative = Path::new(group).strip_prefix(hierarchy.root).ok()?;
        let is_plain = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_plain.then(|| Path::new(hierarchy.at).join(relative))
    })
}

/// What a limit of version 1 above this means: none.
const UNLIMITED: u64 = 1 << 60;

/// The least limit of memory of the groups that this process is in, and of those above them that are seen; nothing
/// where there is none.
pub fn memory_limit(found: &Found) -> Option<u64> {
    let unified = found.unified.iter().map(|folder| (folder, "memory.max"));
    let apart = found.memory.iter().map(|folder| (folder, "memory.limit_in_bytes"));
    unified.chain(apart).filter_map(|(folder, file)| min_of_parents(folder, file)).min()
}

fn min_of_parents(folder: &Path, file: &str) -> Option<u64> {
    // The group at the top of a hierarchy has no such file.
    let limit = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    folder.ancestors().filter_map(limit).filter(|limit| *limit < UNLIMITED).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = "\
30 24 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 24 0:27 / /sys/fs/cgroup/pids rw,relatime shared:10 - cgroup cgroup rw,pids
32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
33 24 0:29 / /proc rw,relatime - proc proc rw
";

    #[test]
    fn groups_of_both_versions_are_found_side_by_side() {
        let found = find("8:pids:/\n4:memory:/a/b\n1:cpu:/\n0::/c\n", VERSION_1);
        assert_eq!(found.memory.unwrap(), Path::new("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(found.pids.unwrap(), Path::new("/sys/fs/cgroup/pids"));
        assert_eq!(found.unified.unwrap(), Path::new("/sys/fs/cgroup/unified/c"));
    }

    #[test]
    fn in_a_container_the_group_may_be_the_root_that_is_seen() {
        let mounts = "36 25 0:31 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/docker/x", mounts).unified.unwrap(), Path::new("/sys/fs/cgroup/"));
        assert_eq!(find("0::/docker/x/y", mounts).unified.unwrap(), Path::new("/sys/fs/cgroup/y"));
        assert_eq!(find("0::/other", mounts), Found::default());
        let mounts = "36 25 0:31 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        assert_eq!(find("0::/../other", mounts), Found::default());
    }

    #[test]
    fn controllers_may_share_a_hierarchy() {
        let mounts = "30 24 0:26 / /g rw - cgroup cgroup rw,memory,pids\n";
        let found = find("3:memory,pids:/a\n", mounts);
        assert_eq!((found.memory.clone(), found.unified), (found.pids, None));
        assert_eq!(found.memory.unwrap(), Path::new("/g/a"));
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("pod/container");
        fs::create_dir_all(&group).unwrap();
        let set = |path: &str, text: &str| fs::write(folder.path().join(path), text).unwrap();
        let found = Found { unified: Some(group), ..Found::default() };
        assert_eq!(memory_limit(&found), None);
        set("pod/container/memory.max", "max\n");
        assert_eq!(memory_limit(&found), None);
        set("pod/memory.max", "4194304\n");
        set("pod/container/memory.max", "8388608\n");
        assert_eq!(memory_limit(&found), Some(4 << 20));
        let apart = Found { memory: found.unified, ..Found::default() };
        set("pod/container/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_limit(&apart), None);
        set("pod/container/memory.limit_in_bytes", "1048576\n");
        assert_eq!(memory_limit(&apart), Some(1 << 20));
        assert_eq!(memory_limit(&Found::default()), None);
    }
}
