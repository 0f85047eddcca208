//! Parent control group of the workers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use super::find::Found;
use super::session::{Bounds, SessionGroup};

/// How the name of a server's group begins; the number of its process follows, and which of the process's
/// servers it is.
const PREFIX: &str = "causeway-";
/// The server's own group beneath that, in version 2: a group with limits for those beneath it has no
/// processes of its own.
const SERVER: &str = "server";

/// Why there are no groups.
#[derive(Debug, Error)]
pub enum GroupsError {
    /// There are none with memory.
    #[error("no control group counts memory here")]
    NoMemory,
    /// The groups belong to somebody else.
    #[error(
        "cannot create groups in {folder}: {cause}; start the server as root, or in a group of its own: \
         {UNIT}"
    )]
    NotOurs {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A group of version 2 with processes can have no limits beneath it.
    #[error(
        "the group {folder} contains more than the server, so it cannot have child groups ({cause}); {UNIT}"
    )]
    Crowded {
        /// The group.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// What helps.
const UNIT: &str =
    "run it as a unit of systemd with Delegate=yes, or by `systemd-run --scope -p Delegate=yes`";

/// A server's group; removed when dropped, as far as it is empty.
#[derive(Debug)]
pub struct Parent {
    kind: Kind,
    next: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    Unified(PathBuf),
    Apart { memory: PathBuf, pids: Option<PathBuf> },
}

impl Parent {
    /// Makes it beneath the groups that this process is in. All that are beneath it may use so many bytes of memory
    /// together.
    pub fn make(found: &Found, memory: u64) -> Result<Self, GroupsError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let unified = found.unified.as_deref().map(outside).filter(|folder| has_memory(folder));
        let kind = match (unified, &found.memory) {
            (Some(folder), _) => {
                let group = make_unified(folder, &name)?;
                if found.unified.as_deref() != Some(folder) {
                    // The other server's group is to go with that.
                    let server = group.join(SERVER);
                    make_folder(&server).and_then(|()| join(&server)).map_err(not_ours(&group))?;
                }
                Kind::Unified(group)
            }
            (None, Some(memory)) => Kind::Apart {
                memory: make_apart(memory, &name)?,
                pids: found.pids.as_ref().map(|pids| make_apart(pids, &name)).transpose()?,
            },
            (None, None) => return Err(GroupsError::NoMemory),
        };
        let bounded = match &kind {
            Kind::Unified(group) => fs::write(group.join("memory.max"), memory.to_string()),
            Kind::Apart { memory: group, .. } => {
                fs::write(group.join("memory.limit_in_bytes"), memory.to_string())
            }
        };
        let (Kind::Unified(group) | Kind::Apart { memory: group, .. }) = &kind;
        bounded.map_err(not_ours(group))?;
        Ok(Self { kind, next: AtomicU64::new(0) })
    }

    /// Makes the group of one process.
    pub fn make_group(&self, bounds: Bounds) -> io::Result<SessionGroup> {
        let name = format!("session-{}", self.next.fetch_add(1, Ordering::Relaxed));
        match &self.kind {
            Kind::Unified(parent) => SessionGroup::make_unified(parent.join(name), bounds),
            Kind::Apart { memory, pids } => SessionGroup::make_apart(
                memory.join(&name),
                pids.as_ref().map(|pids| pids.join(&name)),
                bounds,
            ),
        }
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // What still has a process stays, and goes when the next server starts here.
        match &self.kind {
            Kind::Unified(parent) => {
                let _ = fs::remove_dir(parent);
            }
            Kind::Apart { memory, pids } => {
                let _ = fs::remove_dir(memory);
                let _ = pids.as_ref().map(fs::remove_dir);
            }
        }
    }
}

/// The group in which a server was started. A process that a server starts to take its place begins in the server's
/// own group, beneath which no other group may be.
fn outside(folder: &Path) -> &Path {
    let parent = folder.parent().filter(|_| folder.ends_with(SERVER));
    let is_servers = |parent: &&Path| {
        parent.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
    };
    parent.filter(is_servers).and_then(Path::parent).unwrap_or(folder)
}

fn has_memory(folder: &Path) -> bool {
    let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "memory")
}

fn not_ours(folder: &Path) -> impl Fn(io::Error) -> GroupsError {
    let folder = folder.to_owned();
    move |cause| GroupsError::NotOurs { folder: folder.clone(), cause }
}

fn make_apart(folder: &Path, name: &str) -> Result<PathBuf, GroupsError> {
    remove_stale(folder);
    let group = folder.join(name);
    make_folder(&group).map_err(not_ours(folder))?;
    Ok(group)
}

/// A group of the same number may be left by a process that had it before.
fn make_folder(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes the server's group and lets it have limits beneath it. Unless the group above has that already, as
/// that of the whole system has, the server itself must move out of its way.
fn make_unified(folder: &Path, name: &str) -> Result<PathBuf, GroupsError> {
    remove_stale(folder);
    let group = folder.join(name);
    make_folder(&group).map_err(not_ours(folder))?;
    let Err(cause) = delegate(folder).and_then(|()| delegate(&group)) else { return Ok(group) };
    let server = group.join(SERVER);
    let moved = make_folder(&server)
        .and_then(|()| join(&server))
        .and_then(|()| delegate(folder))
        .and_then(|()| delegate(&group));
    match moved {
        Ok(()) => Ok(group),
        Err(_) => {
            // Back to where the server was started, as if nothing had been tried.
            let _ = join(folder);
            let _ = fs::remove_dir(&server);
            let _ = fs::remove_dir(&group);
            Err(GroupsError::Crowded { folder: folder.to_owned(), cause })
        }
    }
}

/// Lets groups beneath `folder` have limits.
fn delegate(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.subtree_control"), "+memory +pids")
}

/// Moves this process, with its threads.
fn join(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

/// Removes the groups of servers that were killed.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let process = process.split('-').next().unwrap_or_default();
        if Path::new("/proc").join(process).exists() {
            continue;
        }
        // A group with a process in it refuses to go.
        for group in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(group.path());
        }
        let _ = fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with what the kernel shows of a group of version 2 that may have limits beneath it.
    fn unified() -> (tempfile::TempDir, Found) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        let found = Found { unified: Some(folder.path().to_owned()), ..Found::default() };
        (folder, found)
    }

    #[test]
    fn version_2_is_taken_where_it_counts_memory() {
        let (folder, found) = unified();
        let other = tempfile::tempdir().unwrap();
        let found = Found { memory: Some(other.path().to_owned()), ..found };
        let parent = Parent::make(&found, 3 << 20).unwrap();
        let group = parent.make_group(Bounds { memory: 1 << 20, threads: 5 }).unwrap();
        let of_server = fs::read_dir(folder.path()).unwrap().flatten().find(|entry| entry.path().is_dir());
        let of_server = of_server.unwrap().path();
        assert_eq!(fs::read_to_string(of_server.join("memory.max")).unwrap(), "3145728", "all together");
        let of_process = of_server.join("session-0");
        let text = |file| fs::read_to_string(of_process.join(file)).unwrap();
        assert_eq!((text("memory.max"), text("pids.max")), ("1048576".to_owned(), "5".to_owned()));
        group.set_memory(1 << 19).unwrap();
        assert_eq!(text("memory.max"), "524288");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
        // What a kernel makes with the folder.
        fs::write(of_process.join("cgroup.procs"), "").unwrap();
        assert_eq!(group.entrances().unwrap().len(), 1);
        fs::write(of_process.join("memory.events"), "oom 1\noom_kill 2\n").unwrap();
        assert_eq!(group.killed_for_memory(), 2);
    }

    #[test]
    fn a_server_that_another_one_starts_has_its_group_beside_that_ones() {
        let (folder, _) = unified();
        let server = folder.path().join(format!("{PREFIX}1-0")).join(SERVER);
        fs::create_dir_all(&server).unwrap();
        assert_eq!(outside(&server), folder.path());
        assert_eq!(outside(folder.path()), folder.path());
        let elsewhere = Path::new("/sys/fs/cgroup/other/server");
        assert_eq!(outside(elsewhere), elsewhere);
        let _parent = Parent::make(&Found { unified: Some(server), ..Found::default() }, 1 << 20).unwrap();
        let own = format!("{PREFIX}{}-", std::process::id());
        let names = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name());
        let own: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&own)).collect();
        let moved = folder.path().join(&own[0]).join(SERVER).join("cgroup.procs");
        assert_eq!((own.len(), fs::read_to_string(moved).unwrap()), (1, "0".to_owned()));
    }

    #[test]
    fn a_group_of_version_2_that_holds_others_is_named() {
        let (folder, found) = unified();
        // As the kernel refuses it while there are processes.
        fs::create_dir(folder.path().join("cgroup.subtree_control")).unwrap();
        let error = Parent::make(&found, 1).unwrap_err();
        assert!(matches!(error, GroupsError::Crowded { .. }), "{error}");
        assert!(error.to_string().contains("Delegate=yes"), "{error}");
    }

    #[test]
    fn without_memory_there_is_no_group() {
        let (folder, found) = unified();
        fs::write(folder.path().join("cgroup.controllers"), "cpu\n").unwrap();
        assert!(matches!(Parent::make(&found, 1), Err(GroupsError::NoMemory)));
    }

    #[test]
    fn groups_of_servers_that_were_killed_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (own, stale) = (format!("{PREFIX}{}-9", std::process::id()), format!("{PREFIX}4294967295-0"));
        for group in [&own, &stale] {
            fs::create_dir_all(folder.path().join(group).join("session-0")).unwrap();
        }
        remove_stale(folder.path());
        assert!(folder.path().join(own).exists() && !folder.path().join(stale).exists());
    }
}
