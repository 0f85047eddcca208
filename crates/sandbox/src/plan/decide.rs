//! Sandbox plan: facts of the kernel and this process, and which parts are used on such a machine and why not
//! the others.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use causeway_config::read::PROCESS;
use causeway_config::table::{CUDA_MPS_PIPE_DIRECTORY, MPS_PIPE_DIRECTORY_DEFAULT};
use rustix::thread::{CapabilitySet, capabilities};

use crate::cgroup::{self, Found};
use crate::files;
use crate::plan::request::{Missing, Part, SandboxRequest, Shared};
use crate::users::UserRange;

/// What the decision about the sandbox needs to know of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The effective user of the server.
    pub user: u32,
    /// Its effective capabilities.
    pub capabilities: CapabilitySet,
    /// The users that there are, as `/proc/self/uid_map` says: the first of a range, and how many.
    pub users: Vec<(u32, u32)>,
    /// The groups that there are, likewise.
    pub groups: Vec<(u32, u32)>,
    /// Whether the kernel has Landlock, and it is switched on.
    pub has_landlock: bool,
    /// Whether the kernel can filter system calls.
    pub has_seccomp: bool,
    /// Whether this machine has an RDMA device.
    pub has_rdma: bool,
    /// Whether NVIDIA's driver is loaded.
    pub has_nvidia: bool,
    /// The folder in which NVIDIA's MPS is reached, if it runs.
    pub mps: Option<PathBuf>,
    /// The control groups that the server is in.
    pub control_groups: Found,
}

impl Facts {
    /// Those of this machine and this process.
    pub fn read(mps: PathBuf) -> Self {
        let text = |file| fs::read_to_string(file).unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        Self {
            user,
            // A kernel that does not say grants none that could be used.
            capabilities: capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective),
            users: ranges(&text("/proc/self/uid_map")),
            groups: ranges(&text("/proc/self/gid_map")),
            has_landlock: has_landlock(),
            has_seccomp: has_seccomp(),
            has_rdma: fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()),
            has_nvidia: Path::new("/proc/driver/nvidia/version").exists(),
            mps: is_of_mps(&mps, user).then_some(mps),
            control_groups: cgroup::find(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo")),
        }
    }
}

/// The folder in which MPS is reached, if it runs.
pub fn mps_folder(requested: &SandboxRequest) -> PathBuf {
    let named = requested.mps.clone().or_else(|| PROCESS.path(&CUDA_MPS_PIPE_DIRECTORY));
    named.unwrap_or_else(|| MPS_PIPE_DIRECTORY_DEFAULT.into())
}

/// Whether a folder is one in which MPS is reached. The usual one lies where everybody could make it: only
/// root's counts, and that of the server's user.
pub fn is_of_mps(folder: &Path, user: u32) -> bool {
    let is_trusted = |found: fs::Metadata| found.uid() == 0 || found.uid() == user;
    folder.join("control").exists() && fs::symlink_metadata(folder).is_ok_and(is_trusted)
}

/// The ranges in a text like that of `/proc/self/uid_map`: the first number here, that outside, and how many.
fn ranges(map: &str) -> Vec<(u32, u32)> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (first, _, count) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
        Some((first, count))
    };
    map.lines().filter_map(range).collect()
}

fn has_landlock() -> bool {
    /// `LANDLOCK_CREATE_RULESET_VERSION` (`linux/landlock.h`).
    const VERSION: libc::c_long = 1;
    // SAFETY: with this flag the call takes neither memory nor length, and only answers with a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0_usize, 0_usize, VERSION) > 0 }
}

fn has_seccomp() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the four bytes of a local and changes nothing.
    let status =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    status == 0 && Path::new("/proc/self/status").exists()
}

/// What is to be tried. The control groups and the network are known to work only when they have been made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// The users of the processes; those of the server if none are given.
    pub users: Option<UserRange>,
    /// Why all processes have the first of them, if they do.
    pub shared: Option<Shared>,
    /// Whether files are kept from the processes.
    pub files: bool,
    /// Whether system calls are.
    pub calls: bool,
    /// Whether they get an empty network.
    pub empty_network: bool,
    /// What there will not be.
    pub missing: Vec<Missing>,
}

/// Decides. `readable` are the files that processes may read.
pub fn decide(facts: &Facts, requested: &SandboxRequest, readable: &[PathBuf]) -> Decision {
    let mut decision = Decision::default();
    let mut missing = |part, why: String| decision.missing.push(Missing { part, why });
    match users(facts, requested.users) {
        Ok(range) => decision.users = Some(range),
        Err(why) => missing(Part::Users, why),
    }
    if !facts.has_landlock {
        missing(
            Part::Files,
            "the kernel has no Landlock (Linux 5.13), or it is not switched on (lsm=)".to_owned(),
        );
    }
    if !facts.has_seccomp {
        missing(Part::Calls, "the kernel does not filter system calls (CONFIG_SECCOMP_FILTER)".to_owned());
    }
    // Another user does not read the key, whatever Landlock lets through.
    let beneath = requested.key_file.as_ref().and_then(|key| files::holds(readable, key));
    if let (Some(key), Some(folder), None) = (&requested.key_file, beneath, decision.users) {
        let (key, folder) = (key.display(), folder.display());
        missing(
            Part::Key,
            format!("the key file {key} is in {folder}, where workers read libraries: move it"),
        );
    }
    if !facts.has_rdma {
        if facts.capabilities.contains(CapabilitySet::SYS_ADMIN) {
            decision.empty_network = true;
        } else {
            missing(Part::Network, "creating an empty one needs CAP_SYS_ADMIN, which root has".to_owned());
        }
    }
    decision.files = facts.has_landlock;
    decision.calls = facts.has_seccomp;
    if decision.users.is_some() && !requested.apart {
        decision.shared = shared(facts, requested.uses_driver);
    }
    decision
}

/// Why processes share a user.
fn shared(facts: &Facts, uses_driver: bool) -> Option<Shared> {
    match (uses_driver, &facts.mps) {
        (true, Some(_)) => Some(Shared::Mps),
        (true, None) if facts.has_nvidia => Some(Shared::Events),
        _ => None,
    }
}

/// The users that processes get, or why they have none of their own.
fn users(facts: &Facts, requested: UserRange) -> Result<UserRange, String> {
    if facts.user != 0 {
        return Err("the server is not root".to_owned());
    }
    let changes = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !facts.capabilities.contains(changes) {
        return Err("the server is root without CAP_SETUID and CAP_SETGID".to_owned());
    }
    let has = |map: &[(u32, u32)]| {
        let ends_within = |(first, count): &(u32, u32)| {
            *first <= requested.first() && u64::from(requested.last()) < u64::from(*first) + u64::from(*count)
        };
        map.iter().any(ends_within)
    };
    if has(&facts.users) && has(&facts.groups) {
        Ok(requested)
    } else {
        Err(format!("this container has no users {requested}: give others with --worker-users"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_somebody_trusted_is_that_of_mps() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert!(!is_of_mps(folder.path(), own), "nothing is there");
        fs::write(folder.path().join("control"), "").unwrap();
        assert!(is_of_mps(folder.path(), own));
        assert_eq!(is_of_mps(folder.path(), own + 1), own == 0, "another user's");
    }

    #[test]
    fn maps_of_users_are_ranges() {
        assert_eq!(ranges("         0          0 4294967295\n"), [(0, u32::MAX)]);
        assert_eq!(ranges("0 1000 1\n1 100000 65536\nnonsense\n"), [(0, 1), (1, 65536)]);
    }

    fn root() -> Facts {
        Facts {
            user: 0,
            capabilities: CapabilitySet::all(),
            users: vec![(0, u32::MAX)],
            groups: vec![(0, u32::MAX)],
            has_landlock: true,
            has_seccomp: true,
            has_rdma: false,
            has_nvidia: false,
            mps: None,
            control_groups: Found::default(),
        }
    }

    fn requested() -> SandboxRequest {
        SandboxRequest { key_file: Some("/root/key".into()), ..SandboxRequest::default() }
    }

    fn parts(decision: &Decision) -> Vec<Part> {
        decision.missing.iter().map(|one| one.part).collect()
    }

    #[test]
    fn root_on_a_new_kernel_has_everything() {
        let decision = decide(&root(), &requested(), &[]);
        assert_eq!(decision.missing, []);
        assert_eq!(decision.users, Some(UserRange::DEFAULT));
        assert!(decision.files && decision.calls && decision.empty_network && decision.shared.is_none());
    }

    #[test]
    fn each_part_that_cannot_be_had_is_named() {
        let none = CapabilitySet::empty();
        let user = Facts { user: 1000, capabilities: none, ..root() };
        assert_eq!(parts(&decide(&user, &requested(), &[])), [Part::Users, Part::Network]);
        let old = Facts { has_landlock: false, has_seccomp: false, ..root() };
        let decision = decide(&old, &requested(), &[]);
        assert_eq!(parts(&decision), [Part::Files, Part::Calls]);
        assert!(!decision.files && !decision.calls);
        let bare = Facts { capabilities: none, ..root() };
        assert_eq!(parts(&decide(&bare, &requested(), &[])), [Part::Users, Part::Network]);
    }

    #[test]
    fn users_must_exist_in_the_container() {
        let container = Facts { users: vec![(0, 65536)], groups: vec![(0, 65536)], ..root() };
        let decision = decide(&container, &requested(), &[]);
        assert_eq!((parts(&decision), decision.users), (vec![Part::Users], None));
        assert!(decision.missing[0].to_string().contains("--worker-users"), "{}", decision.missing[0]);
        let users = UserRange::new(60_000, 65_535).unwrap();
        assert_eq!(decide(&container, &SandboxRequest { users, ..requested() }, &[]).users, Some(users));
        let users = UserRange::new(60_000, 65_536).unwrap();
        assert_eq!(decide(&container, &SandboxRequest { users, ..requested() }, &[]).users, None);
    }

    #[test]
    fn cards_need_the_servers_network() {
        let decision = decide(&Facts { has_rdma: true, ..root() }, &requested(), &[]);
        assert!(!decision.empty_network && decision.missing.is_empty());
    }

    #[test]
    fn a_key_among_the_libraries_is_secret_from_other_users_only() {
        let requested = SandboxRequest { key_file: Some("/usr/share/key".into()), ..requested() };
        let readable = [PathBuf::from("/usr")];
        assert_eq!(parts(&decide(&root(), &requested, &readable)), []);
        let user = Facts { user: 1000, ..root() };
        assert_eq!(parts(&decide(&user, &requested, &readable)), [Part::Users, Part::Key]);
    }

    #[test]
    fn processes_share_a_user_where_nvidias_driver_serves_unless_they_are_to_be_apart() {
        let driver = Facts { has_nvidia: true, ..root() };
        let mps = Facts { mps: Some("/tmp/nvidia-mps".into()), ..driver.clone() };
        let requested = SandboxRequest { uses_driver: true, ..requested() };
        let shared = |facts: &Facts, requested: &SandboxRequest| decide(facts, requested, &[]).shared;
        assert_eq!(shared(&driver, &requested), Some(Shared::Events));
        assert_eq!(shared(&mps, &requested), Some(Shared::Mps));
        assert_eq!(shared(&root(), &requested), None, "no driver");
        assert_eq!(
            shared(&mps, &SandboxRequest { uses_driver: false, ..requested.clone() }),
            None,
            "the software GPU"
        );
        assert_eq!(shared(&mps, &SandboxRequest { apart: true, ..requested.clone() }), None);
        assert_eq!(shared(&Facts { user: 1000, ..mps }, &requested), None, "there are no users to share");
    }
}
