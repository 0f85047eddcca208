//! Leases: who has which GPUs of a pool, as files.
//!
//! A lease is a file of lines `KEY=VALUE`, which the plugin for Slurm reads, too. That of a job ends when it is released.
//! That of a process ends with it: the process has the file locked, and whatever it starts does, so that the kernel ends the
//! lease however they end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use super::choice::Gpu;

/// Who holds GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A job of a batch system, which releases them.
    Job(String),
    /// A process, and those that it starts.
    Process {
        /// Its number.
        number: u32,
        /// Its host.
        host: String,
    },
}

impl Holder {
    /// This process.
    pub fn this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().replace('/', "-");
        Self::Process { number: std::process::id(), host }
    }

    /// The lease's file.
    pub fn file_name(&self) -> String {
        match self {
            Self::Job(job) => format!("{JOB}{job}"),
            Self::Process { number, host } => format!("{PROCESS}{number}@{host}"),
        }
    }

    fn of_file(name: &str) -> Option<Self> {
        if let Some(job) = name.strip_prefix(JOB) {
            return Some(Self::Job(job.to_owned()));
        }
        let (number, host) = name.strip_prefix(PROCESS)?.split_once('@')?;
        Some(Self::Process { number: number.parse().ok()?, host: host.to_owned() })
    }
}

impl core::fmt::Display for Holder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Job(job) => write!(f, "job {job}"),
            Self::Process { number, host } => write!(f, "process {number} on {host}"),
        }
    }
}

const JOB: &str = "job-";
const PROCESS: &str = "process-";

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: Holder,
    /// The user who asked for it.
    pub user: String,
    /// Since when, in the form of RFC 3339.
    pub since: String,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// What `CAUSEWAY_ON` is to be: the servers of these GPUs.
    pub on: String,
    /// What `CUDA_VISIBLE_DEVICES` is to be: the GPUs among the devices of these servers.
    pub devices: String,
}

impl Lease {
    fn text(&self) -> String {
        let gpus: String =
            self.gpus.iter().map(|gpu| format!("gpu={} {}\n", gpu.index, gpu.server)).collect();
        let Self { user, since, on, devices, .. } = self;
        format!("user={user}\nsince={since}\n{gpus}on={on}\ndevices={devices}\n")
    }

    fn parse(holder: Holder, text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
        };
        let gpu = |line: &str| {
            let (index, server) = line.split_once(' ')?;
            Some(Gpu { server: server.to_owned(), index: index.parse().ok()? })
        };
        let gpus =
            text.lines().filter_map(|line| line.strip_prefix("gpu=")).map(gpu).collect::<Option<_>>()?;
        Some(Self {
            holder,
            user: value("user")?,
            since: value("since")?,
            gpus,
            on: value("on")?,
            devices: value("devices")?,
        })
    }

    /// Writes the lease into the folder, at once as a whole. The file that is returned is locked, where a process holds it.
    pub fn write(&self, folder: &Path) -> io::Result<File> {
        let path = folder.join(self.holder.file_name());
        let new = folder.join(format!(".{}", self.holder.file_name()));
        // What an earlier command has left, or a link that somebody has put there.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        if let Holder::Process { .. } = self.holder {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // What the process starts holds it, too.
            fcntl_setfd(&file, FdFlags::empty())?;
        }
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        // Unlike a new name, which would replace the lease of a process of that number in another container.
        let linked = fs::hard_link(&new, &path);
        fs::remove_file(&new)?;
        linked.map(|()| file)
    }
}

/// A file that is there for a lease.
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// The lease; nothing where the file makes no sense.
    pub lease: Option<Lease>,
    /// Whether its process has ended.
    pub has_ended: bool,
}

/// The leases of a folder, by their files' names.
pub fn read(folder: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(holder) = path.file_name().and_then(|name| Holder::of_file(name.to_str()?)) else {
            continue;
        };
        let is_process = matches!(holder, Holder::Process { .. });
        let file = match File::open(&path) {
            Ok(file) => file,
            // It was released meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let has_ended = is_process && flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        let lease = Lease::parse(holder, &io::read_to_string(file)?);
        found.push(Found { path, lease, has_ended });
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: Holder) -> Lease {
        let gpus = [0, 3].map(|index| Gpu { server: "box:8308".into(), index });
        Lease {
            holder,
            user: "ada".into(),
            since: "2027-01-01T00:00:00Z".into(),
            gpus: gpus.into(),
            on: "box:8308".into(),
            devices: "0,3".into(),
        }
    }

    #[test]
    fn leases_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let of_job = lease(Holder::Job("slurm-7".into()));
        let of_process = lease(Holder::Process { number: 5, host: "node-1".into() });
        of_job.write(folder.path()).unwrap();
        let held = of_process.write(folder.path()).unwrap();
        fs::write(folder.path().join("job-bad"), "user=x\n").unwrap();
        fs::write(folder.path().join(".job-unfinished"), "").unwrap();
        let found = read(folder.path()).unwrap();
        let leases: Vec<_> = found.iter().map(|found| (found.lease.clone(), found.has_ended)).collect();
        assert_eq!(leases, [(None, false), (Some(of_job), false), (Some(of_process.clone()), false)]);
        let error = of_process.write(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "another process holds it");
        drop(held);
        let ended: Vec<_> = read(folder.path()).unwrap().iter().map(|found| found.has_ended).collect();
        assert_eq!(ended, [false, false, true], "a process that has ended holds nothing");
    }
}
