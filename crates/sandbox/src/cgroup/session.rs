//! Control group of one process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the removal of a group is tried: the kernel counts a process that has ended a moment longer.
const ATTEMPTS: u32 = 50;
/// The time between two of them.
const REMOVE_RETRY_DELAY: Duration = Duration::from_millis(2);

/// What a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory, with what the kernel keeps for the process.
    pub memory: u64,
    /// Threads and processes.
    pub threads: u64,
}

/// The group of one process. What still runs in it is killed, and it is removed, when this is dropped.
#[derive(Debug)]
pub struct SessionGroup {
    folders: Vec<PathBuf>,
    is_unified: bool,
}

impl SessionGroup {
    pub(super) fn make_unified(folder: PathBuf, bounds: Bounds) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        let group = Self { folders: vec![folder.clone()], is_unified: true };
        write(&folder, "memory.max", &bounds.memory.to_string())?;
        write(&folder, "pids.max", &bounds.threads.to_string())?;
        // Absent on kernels without swap; then memory is all there is.
        write_if_there(&folder, "memory.swap.max", "0")?;
        // A worker without one of its threads is none.
        write_if_there(&folder, "memory.oom.group", "1")?;
        Ok(group)
    }

    pub(super) fn make_apart(memory: PathBuf, pids: Option<PathBuf>, bounds: Bounds) -> io::Result<Self> {
        let mut group = Self { folders: Vec::new(), is_unified: false };
        fs::create_dir(&memory)?;
        group.folders.push(memory.clone());
        write(&memory, "memory.limit_in_bytes", &bounds.memory.to_string())?;
        // Memory and swap together; absent on kernels that do not count swap.
        write_if_there(&memory, "memory.memsw.limit_in_bytes", &bounds.memory.to_string())?;
        if let Some(pids) = pids {
            fs::create_dir(&pids)?;
            group.folders.push(pids.clone());
            write(&pids, "pids.max", &bounds.threads.to_string())?;
        }
        Ok(group)
    }

    /// The files that a process writes `0` to, to join.
    pub fn entrances(&self) -> io::Result<Vec<File>> {
        self.folders
            .iter()
            .map(|folder| File::options().write(true).open(folder.join("cgroup.procs")))
            .collect()
    }

    /// Bounds its memory anew.
    pub fn set_memory(&self, bytes: u64) -> io::Result<()> {
        let Some(folder) = self.folders.first() else { return Ok(()) };
        if self.is_unified {
            return write(folder, "memory.max", &bytes.to_string());
        }
        write(folder, "memory.limit_in_bytes", &bytes.to_string())?;
        write_if_there(folder, "memory.memsw.limit_in_bytes", &bytes.to_string())
    }

    /// Bounds its memory anew, where it may be more than before.
    pub fn raise_memory(&self, bytes: u64) -> io::Result<()> {
        if let (Some(folder), false) = (self.folders.first(), self.is_unified) {
            // Memory and swap together are never less than memory; where they are lowered this fails, and comes once more.
            let _ = write_if_there(folder, "memory.memsw.limit_in_bytes", &bytes.to_string());
        }
        self.set_memory(bytes)
    }

    /// How many bytes of memory it uses.
    pub fn used_memory(&self) -> Option<u64> {
        used(self.folders.first()?)
    }

    /// How many bytes the groups above may still use, as far as they are limited. Pages of files that were not used
    /// lately count as free.
    pub fn memory_left_above(&self) -> Option<u64> {
        let left = |group: &Path| {
            let limit = number(group, "memory.max").or_else(|| number(group, "memory.limit_in_bytes"))?;
            Some(limit.saturating_sub(used(group)?))
        };
        self.folders.first()?.ancestors().skip(1).filter_map(left).min()
    }

    /// How many of its processes the kernel has killed because the memory was used up.
    pub fn killed_for_memory(&self) -> u64 {
        let file = if self.is_unified { "memory.events" } else { "memory.oom_control" };
        let text = self.folders.first().and_then(|folder| fs::read_to_string(folder.join(file)).ok());
        text.as_deref().and_then(kills).unwrap_or(0)
    }
}

impl Drop for SessionGroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            kill_all(folder, self.is_unified);
            for _ in 0..ATTEMPTS {
                match fs::remove_dir(folder) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(REMOVE_RETRY_DELAY)
                    }
                    // Removed, or never to be: the next server that starts here tries again.
                    _ => break,
                }
            }
        }
    }
}

fn kill_all(folder: &Path, is_unified: bool) {
    // Linux 5.14 and later have the file.
    if is_unified && fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for member in
        members.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw)
    {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(member, rustix::process::Signal::KILL);
    }
}

fn write(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = folder.join(file);
    fs::write(&path, text)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn write_if_there(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    if folder.join(file).exists() { write(folder, file, text) } else { Ok(()) }
}

/// The number in a group's file; nothing for `max`.
fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// Bytes of memory that a group uses, without pages of files that were not used lately.
fn used(group: &Path) -> Option<u64> {
    let used = number(group, "memory.current").or_else(|| number(group, "memory.usage_in_bytes"))?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let inactive = statistics.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some(used.saturating_sub(inactive.unwrap_or(0)))
}

/// The count in a text such as `oom_kill_disable 0\nunder_oom 0\noom_kill 3`.
fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{Parent, find};

    #[test]
    fn kills_are_counted_in_both_versions() {
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(kills("low 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 1\n"), Some(1));
        assert_eq!(kills("under_oom 0\n"), None);
    }

    #[test]
    fn what_groups_above_may_still_use_counts_without_idle_pages_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("pod/session");
        fs::create_dir_all(&group).unwrap();
        let set = |path: &str, text: &str| fs::write(folder.path().join(path), text).unwrap();
        let session = SessionGroup { folders: vec![group], is_unified: true };
        set("pod/session/memory.current", "5\n");
        set("pod/session/memory.max", "6\n");
        assert_eq!((session.used_memory(), session.memory_left_above()), (Some(5), None));
        set("pod/memory.max", "100\n");
        set("pod/memory.current", "80\n");
        set("pod/memory.stat", "anon 7\ninactive_file 30\nactive_file 9\n");
        assert_eq!(session.memory_left_above(), Some(50));
        set("memory.max", "max\n");
        set("memory.current", "99\n");
        assert_eq!(session.memory_left_above(), Some(50));
        session.raise_memory(70).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("pod/session/memory.max")).unwrap(), "70");
        // Nothing runs there that could be killed.
        set("pod/session/cgroup.procs", "");
    }

    #[test]
    fn a_process_that_wants_more_memory_than_its_group_has_is_killed() {
        let read = |file| fs::read_to_string(file).unwrap_or_default();
        let found = find(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let parent = match Parent::make(&found, 1 << 40) {
            Ok(parent) => parent,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        let group = parent.make_group(Bounds { memory: 32 << 20, threads: 16 }).unwrap();
        let folders = group.folders.clone();
        let join: String =
            folders.iter().map(|folder| format!("echo 0 > {}/cgroup.procs; ", folder.display())).collect();
        let run = |bytes: u32| {
            let script = format!("{join} head -c {bytes} /dev/zero | tail | wc -c");
            std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap()
        };
        assert_eq!(String::from_utf8_lossy(&run(1 << 20).stdout).trim(), (1 << 20).to_string());
        assert_eq!(group.killed_for_memory(), 0);
        run(256 << 20);
        assert!(group.killed_for_memory() > 0);
        drop(group);
        assert!(folders.iter().all(|folder| !folder.exists()));
        drop(parent);
        assert!(folders.iter().all(|folder| !folder.parent().unwrap().exists()));
    }
}
