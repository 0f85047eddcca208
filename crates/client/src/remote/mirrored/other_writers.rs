//! Writers past the page table: pinned pages, RDMA devices and other ways to write to private memory of this process.
//!
//! Stores and system calls leave their mark in the page table, which [`dirty_pages`](super::dirty_pages)
//! reads. A device, or the kernel on behalf of one, that has looked up a page writes to it later without any
//! mark: io_uring into registered buffers, a network card into a memory region (`ibv_reg_mr`), a disk for a
//! direct read, vfio, a camera. Whether there is one cannot be asked of a page, only of the process:
//!
//! - `VmPin` of `/proc/self/status`, where the kernel counts pages that io_uring and RDMA hold; where sessions
//!   hold some themselves, RDMA devices that the program has opened stand for it;
//! - descriptors that such writing is ordered by: an io_uring with registered buffers or files (libuv, and with
//!   it each process of `torch.distributed`, has one with neither), a file opened with `O_DIRECT`, an `AF_XDP`
//!   socket, a device that is neither a terminal nor one of the kernel's own like `/dev/null`.
//!
//! Asking takes about 20 us and 5 us more for each descriptor, so it is not done at each command. That loses
//! nothing: a process that holds a page for writing has marked it once, when it was looked up. So a page that is
//! found written may be held from then on, and is compared at each command until this module says that
//! nobody is there who could hold it.

use crate::model::device;
use core::ffi::c_int;
use core::time::Duration;
use std::fs;
use std::os::fd::RawFd;
use std::time::Instant;

/// Asking takes at most this part of the time.
const MAX_SCAN_SHARE: u32 = 50;
/// What is asked for the next time at the earliest after this.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(2);

/// Devices that write to no memory on their own.
const HARMLESS: [&str; 12] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/kmsg",
    "/dev/tty",
    "/dev/console",
    "/dev/ptmx",
    "/dev/fuse",
    "/dev/userfaultfd",
    "/dev/log",
];
/// Folders of terminals and of files in memory.
const HARMLESS_FOLDERS: [&str; 4] = ["/dev/pts/", "/dev/shm/", "/dev/mqueue/", "/dev/hugepages/"];

/// What is known of others that write.
#[derive(Debug)]
pub struct OtherWriters {
    /// Whether there may be any.
    check: fn() -> bool,
    /// When it is worth while to ask again.
    next: Option<Instant>,
}

impl Default for OtherWriters {
    fn default() -> Self {
        Self::with_check(may_be_any)
    }
}

impl OtherWriters {
    /// Nothing is known yet; `check` says whether there may be any.
    pub fn with_check(check: fn() -> bool) -> Self {
        Self { check, next: None }
    }

    /// Asks next time, as if long had passed.
    #[cfg(test)]
    pub fn check_again(&mut self) {
        self.next = None;
    }

    /// Whether it is known, from now on, that no holder of pages looked up before can write to them.
    /// `false` where somebody may, and where it is not worth asking again yet.
    pub fn are_none(&mut self) -> bool {
        let started = Instant::now();
        if self.next.is_some_and(|next| started < next) {
            return false;
        }
        let are_none = !(self.check)();
        let now = Instant::now();
        self.next = Some(now + (MAX_SCAN_SHARE * (now - started)).max(MIN_SCAN_INTERVAL));
        are_none
    }
}

/// Whether another holder of pages of this process may write to them.
fn may_be_any() -> bool {
    let are_pinned = || {
        let status = fs::read_to_string("/proc/self/status");
        status.map_or(true, |status| pinned_pages(&status) != Some(0))
    };
    // Sessions over RDMA pin pages of their own.
    let are_held = if device::are_ours_open() { device::are_others_open() } else { are_pinned() };
    are_held || fs::read_dir("/proc/self/fd").map_or(true, |mut all| all.any(is_writer))
}

/// The kibibytes of pages that are held, of what `/proc/self/status` says.
fn pinned_pages(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Whether an entry of `/proc/self/fd` is a descriptor by which memory may be written to.
fn is_writer(entry: std::io::Result<fs::DirEntry>) -> bool {
    let Ok(entry) = entry else { return true };
    let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
        return true;
    };
    // One that another thread has closed meanwhile leads nowhere. What it was used for is over, or else
    // there is another descriptor of the kind.
    let Ok(target) = fs::read_link(entry.path()) else { return false };
    let target = target.to_string_lossy();
    if target.starts_with("socket:") {
        is_xdp(number)
    } else if target.starts_with("anon_inode:[io_uring]") {
        fs::read_to_string(format!("/proc/self/fdinfo/{number}")).map_or(true, |info| has_registered(&info))
    } else {
        writes(&target, || flags(number))
    }
}

/// Whether an io_uring, of which `/proc/self/fdinfo` says this, has registered buffers, whose pages it holds, or
/// files, which may be open for direct reads. It also may if the kernel does not say. Without either it
/// writes as system calls do.
fn has_registered(info: &str) -> bool {
    let has_none =
        |name| info.lines().find_map(|line| line.strip_prefix(name)).is_some_and(|count| count.trim() == "0");
    !(has_none("UserFiles:") && has_none("UserBufs:"))
}

/// Whether memory may be written to by a descriptor of a file or pipe that leads to `target`.
fn writes(target: &str, flags: impl FnOnce() -> c_int) -> bool {
    if target.starts_with("/dev/") {
        let is_harmless = HARMLESS.contains(&target)
            || target.starts_with(device::FOLDER)
            || HARMLESS_FOLDERS.iter().any(|folder| target.starts_with(folder));
        return !is_harmless;
    }
    // Pipes have the flag with another meaning.
    target.starts_with('/') && flags() & libc::O_DIRECT != 0
}

fn flags(descriptor: RawFd) -> c_int {
    // SAFETY: the call reads flags of a number, whatever that is.
    unsafe { libc::fcntl(descriptor, libc::F_GETFL) }.max(0)
}

fn is_xdp(socket: RawFd) -> bool {
    let mut domain: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value has as many bytes as the length says.
    let asked = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut length)
    };
    asked == 0 && domain == libc::AF_XDP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_pages_are_read_from_the_status() {
        assert_eq!(pinned_pages("VmLck:\t       8 kB\nVmPin:\t     128 kB\nVmHWM:\t 9 kB\n"), Some(128));
        assert_eq!(pinned_pages("VmPin:\t       0 kB\n"), Some(0));
        assert_eq!(pinned_pages("VmLck:\t       8 kB\n"), None);
        assert!(pinned_pages(&fs::read_to_string("/proc/self/status").unwrap()).is_some());
    }

    #[test]
    fn descriptors_are_told_apart() {
        let none = || 0;
        for target in ["/dev/vfio/7", "/dev/video0", "/dev/nvidia-fs0", "/dev/null2"] {
            assert!(writes(target, none), "{target}");
        }
        let harmless = [
            "/dev/null",
            "/dev/pts/3",
            "/dev/shm/sem.x",
            "/dev/infiniband/uverbs0",
            "anon_inode:[eventpoll]",
            "/memfd:causeway-pinned (deleted)",
            "/home/user/data",
        ];
        for target in harmless {
            assert!(!writes(target, none), "{target}");
        }
        assert!(writes("/home/user/data", || libc::O_DIRECT | libc::O_RDWR));
        assert!(!writes("pipe:[77]", || libc::O_DIRECT));
        assert!(!is_xdp(0));
    }

    #[test]
    fn an_io_uring_counts_with_what_it_has_registered() {
        let info =
            |files, buffers| format!("SqThread:\t-1\nUserFiles:\t{files}\nUserBufs:\t{buffers}\nPollList:\n");
        assert!(!has_registered(&info("0", "0")));
        assert!(has_registered(&info("0", "3")) && has_registered(&info("12", "0")));
        // While the ring is locked the kernel leaves lines out.
        assert!(has_registered("SqThread:\t-1\nUserFiles:\t0\n") && has_registered(""));
    }

    #[test]
    fn a_file_opened_for_direct_reads_is_found() {
        use std::os::unix::fs::OpenOptionsExt as _;
        let here = || fs::read_dir("/proc/self/fd").unwrap().any(is_writer);
        let path = std::env::current_exe().unwrap();
        // A file system that knows no direct reads has nothing to be found.
        let Ok(direct) = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path) else {
            return;
        };
        assert!(here());
        drop(direct);
    }

    #[test]
    fn asking_is_not_done_all_the_time() {
        let mut writers = OtherWriters::with_check(|| false);
        assert!(writers.are_none());
        writers.next = Some(Instant::now() + Duration::from_secs(1000));
        assert!(!writers.are_none(), "what was known before says nothing of pages that were written since");
        assert!(!OtherWriters::with_check(|| true).are_none());
    }
}
