//! Sandbox facts: what the kernel and this process offer.

use causeway_config::read::PROCESS;
use causeway_config::table::CUDA_MPS_PIPE_DIRECTORY;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, capabilities};

use crate::cgroup::{self, Found};

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
    pub fn read() -> Self {
        let text = |file| fs::read_to_string(file).unwrap_or_default();
        let user = rustix::process::geteuid().as_raw();
        let mps = PROCESS.path(&CUDA_MPS_PIPE_DIRECTORY).unwrap_or_else(|| "/tmp/nvidia-mps".into());
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

/// Whether a folder is one in which MPS is reached. The usual one lies where everybody could make it: only
/// root's counts, and that of the server's user.
fn is_of_mps(folder: &Path, user: u32) -> bool {
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
}
