//! Size of a session's staging arena.
//!
//! As large as `CAUSEWAY_SHM_STAGING` says, unless a memory cgroup leaves less. Pages of shared memory are
//! charged to the cgroup of the process that touches them first, and a process over its limit is killed, not
//! refused. So a session whose arena would be too large a part of the limit of either end does without.

use std::fs;
use std::path::{Path, PathBuf};

use super::layout::Layout;
use causeway_config::read::PROCESS;
use causeway_config::table::{SHM_STAGING, SHM_STAGING_DEFAULT};
use causeway_transport::slots::STAGING_LIMITS;

/// The worker makes the arena at most this part of its cgroup's limit, and a client accepts twice as much.
const PART: u64 = 8;

/// What a limit above this means: none.
const UNLIMITED: u64 = 1 << 60;

/// The least limit of the memory cgroups that this process is in, if there is any.
pub fn cgroup_limit() -> Option<u64> {
    limit_below(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The arena that a worker makes, or why it makes none.
pub fn layout() -> Result<Layout, String> {
    let requested = PROCESS.size(&SHM_STAGING).map_err(|error| error.to_string())?;
    let requested = requested.unwrap_or(SHM_STAGING_DEFAULT) as usize;
    bounded(requested, cgroup_limit()).map(Layout::halves)
}

/// The size of the staging arena for a worker that was asked for `requested` bytes, or why there is none.
fn bounded(requested: usize, limit: Option<u64>) -> Result<usize, String> {
    let min = STAGING_LIMITS.0;
    let max = limit.map_or(u64::MAX, |limit| limit / PART);
    if max < min as u64 {
        return Err(format!(
            "the memory cgroup of the server leaves no room for a staging arena: its limit is {} bytes",
            limit.unwrap_or_default()
        ));
    }
    Ok(requested.min(usize::try_from(max).unwrap_or(usize::MAX)).max(min))
}

/// Whether a client may use `bytes` of shared memory.
pub fn client_may_use(bytes: usize, limit: Option<u64>) -> Result<(), String> {
    match limit {
        Some(limit) if bytes as u64 > limit / (PART / 2) => Err(format!(
            "the memory cgroup of this process is limited to {limit} bytes, and a staging arena of {bytes} is too \
             large a part of that; the server makes it smaller with CAUSEWAY_SHM_STAGING"
        )),
        _ => Ok(()),
    }
}

/// The least limit on the way from the root of the hierarchy to the groups that `groups` (`/proc/PID/cgroup`)
/// names.
fn limit_below(root: &Path, groups: &str) -> Option<u64> {
    let mut min: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container the folder of the group itself may not be visible; the root then is the group.
        let mut folder: PathBuf = top.join(group.trim_start_matches('/'));
        loop {
            let limit = fs::read_to_string(folder.join(file)).ok().and_then(|text| text.trim().parse().ok());
            if let Some(limit) = limit.filter(|limit| *limit < UNLIMITED) {
                min = Some(min.map_or(limit, |min| min.min(limit)));
            }
            if folder == top || !folder.pop() {
                break;
            }
        }
    }
    min
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000000\n");
        write("a/b/memory.max", "max\n");
        write("memory/x/memory.limit_in_bytes", "500\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let limit = |groups| limit_below(root.path(), groups);
        assert_eq!(limit("0::/a/b\n"), Some(1_000_000));
        assert_eq!(limit("4:cpu,memory:/x\n0::/a/b\n"), Some(500));
        assert_eq!(limit("4:memory:/\n3:cpu:/a\n0::/\n"), None);
        assert_eq!(limit("4:memory:/not/visible\n"), None);
        assert_eq!(limit("nonsense"), None);
    }

    #[test]
    fn arenas_are_a_small_part_of_a_limit() {
        assert_eq!(bounded(256 << 20, None), Ok(256 << 20));
        assert_eq!(bounded(256 << 20, Some(1 << 30)), Ok(128 << 20));
        assert!(bounded(256 << 20, Some(4 << 20)).unwrap_err().contains("cgroup"));
        assert_eq!(client_may_use(256 << 20, Some(1 << 30)), Ok(()));
        assert!(client_may_use(257 << 20, Some(1 << 30)).is_err());
        assert_eq!(client_may_use(1 << 40, None), Ok(()));
    }
}
