//! Idle release, the broker's part: whether the host has room for a session's device memory, and what it counts for.
//!
//! A worker asks before its memory goes, says when it has gone, asks before it comes back, and says when it has. What is
//! gone counts as none of the device's, and still as the client's.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_access::target::random_bytes;
use causeway_config::Size;
use causeway_sandbox::Jail;
use causeway_wire::handshake::SessionId;
use causeway_wire::status::DeviceStatus;
use rustix::fs::{fstatfs, fstatvfs};
use thiserror::Error;

use super::shared::Shared;
use crate::admission::Origin;
use crate::back_end::GpuChoice;

/// Between two releases of a session lies this at least: each of them is a line in the audit log.
const MIN_STAY: Duration = Duration::from_millis(200);

/// The part of the host's memory, and of a disk, that is left to others: a sixteenth.
const RESERVE: u64 = 16;

/// Where files for device memory are made if there is no image cache.
pub const FOLDER: &str = "/var/tmp";

/// What a file system in memory is called by `statfs`.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Why the host has no room; sentences for people.
#[derive(Debug, Error)]
pub enum Shortage {
    /// Its memory does not suffice.
    #[error(
        "the server's host has {} of memory free, of which {} are reserved, and the session needs up to {}",
        Size(*available), Size(*reserve), Size(*bytes)
    )]
    Memory {
        /// Bytes that are free.
        available: u64,
        /// Those that stay free.
        reserve: u64,
        /// What it takes.
        bytes: u64,
    },
    /// What all sessions may use does not suffice.
    #[error(
        "all sessions of the server may use {} more of its host's memory (--total-memory, or the control group that the server is \
         in), and the session needs up to {}", Size(*left), Size(*bytes)
    )]
    Total {
        /// Bytes that are left.
        left: u64,
        /// What it takes.
        bytes: u64,
    },
    /// What the session may use cannot be raised.
    #[error("cannot raise the limit of the session's memory meanwhile: {0}")]
    Limit(io::Error),
    /// No session has so much.
    #[error(
        "the session claims to need {} of host memory for its device memory, and all GPUs of the server have \
         {}",
        Size(*bytes), Size(*total)
    )]
    TooMuch {
        /// What it is said to take.
        bytes: u64,
        /// The memory of all GPUs.
        total: u64,
    },
    /// The disk does not suffice.
    #[error("the disk of {folder} has {} free, and the session needs {}", Size(*free), Size(*bytes))]
    Disk {
        /// The folder.
        folder: String,
        /// Bytes that are free for it.
        free: u64,
        /// What it takes.
        bytes: u64,
    },
    /// The folder is none of a disk.
    #[error(
        "the files of {0} are in memory, so nothing would be saved; pass a folder on a disk with --cache-dir"
    )]
    NoDisk(String),
    /// No file can be made.
    #[error("cannot create a file for device memory in {folder}: {cause}")]
    File {
        /// The folder.
        folder: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It has come back just now.
    #[error("its device memory was restored a moment ago")]
    TooSoon,
    /// The worker asks at the wrong time.
    #[error("its device memory is already being transferred")]
    Confused,
}

/// The host's memory in bytes, as the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HostMemory {
    total: u64,
    available: u64,
}

impl HostMemory {
    /// What `/proc/meminfo` says; nothing where that makes no sense.
    fn parse(text: &str) -> Option<Self> {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            let kibibytes: u64 =
                line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        Some(Self { total: of("MemTotal")?, available: of("MemAvailable")? })
    }
}

/// Whether the host has room for so many bytes more of a worker's memory, when its groups have so much `left`.
fn check_memory(host: Option<HostMemory>, left: Option<u64>, bytes: u64) -> Result<(), Shortage> {
    if let Some(HostMemory { total, available }) = host {
        let reserve = total / RESERVE;
        if bytes > available.saturating_sub(reserve) {
            return Err(Shortage::Memory { available, reserve, bytes });
        }
    }
    match left {
        Some(left) if bytes > left => Err(Shortage::Total { left, bytes }),
        _ => Ok(()),
    }
}

/// A file without a name, on a disk that has room for so many bytes.
pub fn make_file(folder: &Path, bytes: u64) -> Result<OwnedFd, Shortage> {
    let name = || folder.display().to_string();
    let failed = |cause: io::Error| Shortage::File { folder: name(), cause };
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_TMPFILE).open(folder);
    // Some file systems have only files with names.
    let file = unnamed.or_else(|_| {
        let hash = u64::from_ne_bytes(random_bytes());
        let path = folder.join(format!(".causeway-device-memory-{hash:016x}"));
        let file = options.create_new(true).open(&path)?;
        std::fs::remove_file(&path).map(|()| file)
    });
    let file = file.map_err(failed)?;
    let kind = fstatfs(&file).map_err(|error| failed(error.into()))?.f_type;
    if IN_MEMORY.iter().any(|magic| i64::from(*magic) == kind as i64) {
        return Err(Shortage::NoDisk(name()));
    }
    let space = fstatvfs(&file).map_err(|error| failed(error.into()))?;
    let all = space.f_blocks.saturating_mul(space.f_frsize);
    let free = space.f_bavail.saturating_mul(space.f_frsize).saturating_sub(all / RESERVE);
    if bytes > free { Err(Shortage::Disk { folder: name(), free, bytes }) } else { Ok(file.into()) }
}

/// What the driver keeps beside a program's memory on each GPU, at most: contexts, code, heaps and stacks.
const MAX_OVERHEAD: u64 = 16 << 30;

/// A worker may be in the hands of its client: what it says it needs is no more than it can have on these GPUs.
fn check_plausible(devices: &[DeviceStatus], host_bytes: u64) -> Result<(), Shortage> {
    let memory = |device: &DeviceStatus| device.memory_total.saturating_add(MAX_OVERHEAD);
    match devices.iter().map(memory).reduce(u64::saturating_add) {
        Some(total) if host_bytes > total => Err(Shortage::TooMuch { bytes: host_bytes, total }),
        _ => Ok(()),
    }
}

/// Where a session's device memory is.
#[derive(Debug, Clone, Copy)]
enum State {
    Device {
        since: Option<Instant>,
    },
    /// It may go, or is on its way.
    Leaving,
    Host {
        bytes: u64,
        since: Instant,
    },
}

/// The device memory of one session, as its worker reports it.
#[derive(Debug)]
pub struct MemoryRelease {
    session: SessionId,
    peer: Origin,
    state: State,
}

impl MemoryRelease {
    /// On the device.
    pub fn new(session: SessionId, peer: Origin) -> Self {
        Self { session, peer, state: State::Device { since: None } }
    }

    /// The worker asks whether the memory may go: the file for it, if it wants one.
    ///
    /// # Errors
    /// Why it must stay.
    pub fn may_leave(
        &mut self,
        shared: &Shared,
        jail: &Jail,
        bytes: u64,
        host_bytes: u64,
        needs_file: bool,
    ) -> Result<Option<OwnedFd>, Shortage> {
        match self.state {
            State::Device { since } if since.is_some_and(|since| since.elapsed() < MIN_STAY) => {
                return Err(Shortage::TooSoon);
            }
            State::Device { .. } => {}
            State::Leaving | State::Host { .. } => return Err(Shortage::Confused),
        }
        let file = if needs_file {
            // Of NVIDIA's driver no device memory goes to a disk, whatever a worker says.
            if !matches!(shared.config.gpu, GpuChoice::Cpu | GpuChoice::Auto { allows_software: true }) {
                return Err(Shortage::Confused);
            }
            let folder = shared.config.cache.as_ref().map_or(Path::new(FOLDER), |cache| &cache.folder);
            // The image cache makes its folder when it has something for it.
            let _ = std::fs::create_dir_all(folder);
            Some(make_file(folder, bytes)?)
        } else {
            check_plausible(&shared.gpus.now(&shared.monitor), host_bytes)?;
            let host = std::fs::read_to_string("/proc/meminfo").ok();
            let host = host.as_deref().and_then(HostMemory::parse);
            check_memory(host, jail.memory_left(), host_bytes)?;
            jail.add_memory(self.limit(shared), host_bytes).map_err(Shortage::Limit)?;
            None
        };
        self.state = State::Leaving;
        Ok(file)
    }

    fn limit(&self, shared: &Shared) -> Option<u64> {
        let limits = shared.clients.limits(crate::admission::Source::of(self.peer));
        limits.lowest(|limits| limits.session_memory).map(|(limit, _)| limit)
    }

    /// The worker keeps to its usual memory again.
    fn restore_limit(&self, shared: &Shared, jail: &Jail) {
        if let Err(error) = jail.add_memory(self.limit(shared), 0) {
            tracing::warn!(session = %self.session, "cannot reset the worker's memory limit: {error}");
        }
    }

    /// The memory has gone.
    pub fn has_left(&mut self, shared: &Shared, bytes: u64, time: Duration) {
        if !matches!(self.state, State::Leaving) {
            return;
        }
        let since = Instant::now();
        self.state = State::Host { bytes, since };
        shared.device_memory.suspend(self.session);
        shared.sessions.set_released(self.session, Some((bytes, since)));
        shared.totals.memory_released(time);
        shared.audit.memory_released(self.session, self.peer, bytes, time);
        let (session, seconds) = (self.session, time.as_secs_f64());
        tracing::info!(%session, seconds, "released the device memory of the idle session: {}", Size(bytes));
    }

    /// The memory stays after all.
    pub fn stays(&mut self, shared: &Shared, jail: &Jail) {
        if matches!(self.state, State::Leaving) {
            self.state = State::Device { since: Some(Instant::now()) };
            self.restore_limit(shared, jail);
        }
    }

    /// Whether the device has the memory again, of which the broker divides up `capacity` alone if that is not 0.
    ///
    /// # Errors
    /// Why it has not.
    pub fn may_return(&self, shared: &Shared, capacity: u64) -> Result<(), String> {
        let State::Host { bytes, .. } = self.state else { return Ok(()) };
        if capacity == 0 {
            let devices = shared.gpus.now(&shared.monitor);
            // A session may have memory on all of them; where one of them lacks room, the driver says so.
            let free = |device: &DeviceStatus| device.memory_total.saturating_sub(device.memory_used);
            return match devices.iter().map(free).reduce(u64::saturating_add) {
                Some(free) if free < bytes => Err(format!(
                    "the GPUs have {} of free memory, and the session's device memory is {}",
                    Size(free),
                    Size(bytes)
                )),
                _ => Ok(()),
            };
        }
        shared.device_memory.reclaim(self.session, capacity).map_err(|refused| refused.to_string())
    }

    /// The memory has come back.
    pub fn has_returned(&mut self, shared: &Shared, jail: &Jail, time: Duration) {
        let State::Host { bytes, since } = self.state else { return };
        self.state = State::Device { since: Some(Instant::now()) };
        // It has it in any case.
        let _ = shared.device_memory.reclaim(self.session, 0);
        shared.sessions.set_released(self.session, None);
        self.restore_limit(shared, jail);
        shared.totals.memory_returned(time);
        shared.audit.memory_returned(self.session, self.peer, bytes, time, since.elapsed());
        let (session, seconds) = (self.session, time.as_secs_f64());
        tracing::info!(%session, seconds, "restored the device memory of the session: {}", Size(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_hosts_memory_is_left_to_others() {
        let text = "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n";
        let host = HostMemory::parse(text).unwrap();
        assert_eq!(host, HostMemory { total: 16 << 30, available: 8 << 30 });
        assert_eq!(HostMemory::parse("MemTotal: 7 kB"), None);
        let check = |left, gibibytes: u64| check_memory(Some(host), left, gibibytes << 30);
        assert!(check(None, 7).is_ok() && check(Some(8 << 30), 7).is_ok());
        let refused = check(None, 8).unwrap_err().to_string();
        assert!(refused.contains("has 8G of memory free, of which 1G are reserved"), "{refused}");
        let refused = check(Some(2 << 30), 3).unwrap_err().to_string();
        assert!(refused.contains("may use 2G more") && refused.contains("needs up to 3G"), "{refused}");
        assert!(check_memory(None, None, u64::MAX).is_ok(), "nothing is known");
    }

    #[test]
    fn no_worker_gets_more_of_the_host_than_the_gpus_have() {
        let devices = [DeviceStatus {
            index: 0,
            name: "a GPU".into(),
            uuid: "GPU-0".into(),
            memory_total: 80 << 30,
            memory_used: 0,
            utilisation: None,
        }];
        assert!(check_plausible(&devices, 82 << 30).is_ok() && check_plausible(&[], u64::MAX).is_ok());
        let refused = check_plausible(&devices, 97 << 30).unwrap_err().to_string();
        assert!(refused.contains("need 97G") && refused.contains("have 96G"), "{refused}");
    }

    #[test]
    fn files_for_device_memory_have_no_names_and_are_on_a_disk_with_room() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = File::from(make_file(folder.path(), 1 << 20).unwrap());
        file.set_len(5).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let refused = make_file(folder.path(), 1 << 60).unwrap_err().to_string();
        assert!(refused.contains("needs 1"), "{refused}");
        assert!(matches!(make_file(Path::new("/nowhere"), 1), Err(Shortage::File { .. })));
        if let Ok(in_memory) = tempfile::tempdir_in("/dev/shm") {
            assert!(matches!(make_file(in_memory.path(), 1), Err(Shortage::NoDisk(_))));
        }
    }
}
