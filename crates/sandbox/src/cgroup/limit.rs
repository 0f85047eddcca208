//! Memory limit of this process by its control groups.

use std::fs;
use std::path::Path;

use super::find::Found;

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
