//! Pools of servers, whose GPUs are given to one program or job at a time.
//!
//! A pool is a folder: `servers` lists the servers, a line for each, `leases` has a file for each lease, and `lock` is locked
//! for the moment in which one is chosen. On a file system that machines share it is one pool for all of them. No process
//! serves it: nothing has to run, and leases outlive every restart.
//!
//! | module | contents |
//! | --- | --- |
//! | `reference` | Pools in a list of servers: `pool:NAME` and `pool:NAME:GPUS` |
//! | `choice` | Choice of GPUs for a lease: which of those that are free |
//! | `lease` | Leases: who has which GPUs of a pool, as files |
//! | `state` | State of a pool's servers: how many GPUs each offers |
//! | `error` | Errors of pools |

mod choice;
mod error;
mod lease;
mod reference;
mod state;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};

pub use choice::Gpu;
pub use error::PoolError;
pub use lease::{Holder, Lease};
pub use reference::{Reference, reference};
pub use state::{ServerState, query};

use reference::{PREFIX, is_name, is_word};

/// The folder with the pools that have a name.
const POOLS: &str = "/etc/causeway/pools";

/// Whoever may write to the pool's folder must not have us write elsewhere.
const NO_LINK: i32 = libc::O_NOFOLLOW;

/// How long another command may choose.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long is waited until it is looked again whether a GPU is free.
const PAUSE: Duration = Duration::from_millis(500);

/// Who wants GPUs.
#[derive(Debug)]
pub struct Request {
    /// Who will hold them.
    pub holder: Holder,
    /// The user.
    pub user: String,
    /// How many.
    pub gpus: usize,
}

/// A lease that was taken. That of a process ends with this, and with the process and all that it has started; that of a
/// job stays.
#[derive(Debug)]
pub struct Held {
    /// What it is.
    pub lease: Lease,
    /// The file that a process has locked.
    of_process: Option<(PathBuf, File)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.of_process {
            // One that stays counts as ended, since no process has it locked.
            let _ = fs::remove_file(path);
        }
    }
}

/// A pool.
#[derive(Debug)]
pub struct Pool {
    name: String,
    folder: PathBuf,
}

impl Pool {
    /// The pool of a name, or in a folder.
    ///
    /// # Errors
    /// When the name makes no sense, or nothing lists its servers.
    pub fn of(name: &str) -> Result<Self, PoolError> {
        Self::within(Path::new(POOLS), name)
    }

    fn within(pools: &Path, name: &str) -> Result<Self, PoolError> {
        if !is_name(name) {
            return Err(PoolError::Name(name.to_owned()));
        }
        let pool = Self { name: name.to_owned(), folder: pools.join(name) };
        if pool.list().is_file() {
            return Ok(pool);
        }
        let others = names_in(pools);
        Err(PoolError::Unknown { name: pool.name.clone(), path: pool.list(), others })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn list(&self) -> PathBuf {
        self.folder.join("servers")
    }

    fn failed(&self, path: &Path) -> impl Fn(io::Error) -> PoolError {
        let (name, path) = (self.name.clone(), path.to_owned());
        move |cause| PoolError::File { name: name.clone(), path: path.clone(), cause }
    }

    /// Its servers, as the list names them.
    ///
    /// # Errors
    /// When the list cannot be read, is empty, or has a line that names no one server by its address alone.
    pub fn servers(&self) -> Result<Vec<String>, PoolError> {
        let path = self.list();
        let text = fs::read_to_string(&path).map_err(self.failed(&path))?;
        let wrong = |text: String| PoolError::List { name: self.name.clone(), text };
        let mut servers = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let server = line.split('#').next().unwrap_or_default().trim();
            let at = || format!("{}:{}", path.display(), number + 1);
            if server.contains('@') && !server.starts_with("unix:") {
                // Everybody who uses the pool reads the list.
                return Err(wrong(format!(
                    "{} has a connect string: write HOST:PORT, and keep the key in a key file (`causeway key add`)",
                    at()
                )));
            }
            if server.contains([',', ' ', '=']) || server.starts_with(PREFIX) {
                return Err(wrong(format!("{}: `{server}` is no server: write one on each line", at())));
            }
            if !server.is_empty() && !servers.iter().any(|known| known == server) {
                servers.push(server.to_owned());
            }
        }
        if servers.is_empty() {
            return Err(wrong(format!("{} lists no server", path.display())));
        }
        Ok(servers)
    }

    /// The leases that count.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn leases(&self) -> Result<Vec<Lease>, PoolError> {
        let found = self.found()?;
        found.into_iter().filter(|found| !found.has_ended).map(|found| self.intact(found)).collect()
    }

    /// A lease whose file makes sense: GPUs of one that does not are never given to others.
    fn intact(&self, found: lease::Found) -> Result<Lease, PoolError> {
        found.lease.ok_or_else(|| PoolError::List {
            name: self.name.clone(),
            text: format!("{} is no lease: remove it if its job has ended", found.path.display()),
        })
    }

    fn found(&self) -> Result<Vec<lease::Found>, PoolError> {
        let folder = self.leases_folder();
        match lease::read(&folder) {
            Ok(found) => Ok(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.failed(&folder)(error)),
        }
    }

    fn leases_folder(&self) -> PathBuf {
        self.folder.join("leases")
    }

    /// Acquires GPUs, and waits so long until enough are free. `query` asks servers how they are. A job that has a lease already
    /// keeps it.
    ///
    /// # Errors
    /// When no server can be used, too few GPUs are free in time, or the pool cannot be changed by this user.
    pub fn acquire(
        &self,
        request: &Request,
        query: impl Fn(&[String]) -> Vec<ServerState>,
        wait: Duration,
    ) -> Result<Held, PoolError> {
        if matches!(&request.holder, Holder::Job(job) if !is_word(job)) {
            let text =
                format!("`{}` is no name for a job: use letters, digits, `-`, `_` and `.`", request.holder);
            return Err(PoolError::List { name: self.name.clone(), text });
        }
        let deadline = Instant::now() + wait;
        loop {
            // No lock is held meanwhile.
            let states = query(&self.servers()?);
            let taken = self.try_acquire(request, &states);
            let is_over = Instant::now() + PAUSE >= deadline;
            match taken {
                Err(PoolError::NotFree { .. } | PoolError::Silent { .. }) if !is_over => {
                    std::thread::sleep(PAUSE);
                }
                taken => return taken,
            }
        }
    }

    fn try_acquire(&self, request: &Request, states: &[ServerState]) -> Result<Held, PoolError> {
        let usable: Vec<(String, u32)> = states
            .iter()
            .filter_map(|state| Some((state.server.clone(), state.devices.clone().ok()?)))
            .collect();
        let reasons: Vec<String> = states.iter().filter_map(ServerState::reason).collect();
        let name = || self.name.clone();
        let _lock = self.lock()?;
        let leases = self.without_ended()?;
        let is_of_job =
            |lease: &&Lease| matches!(lease.holder, Holder::Job(_)) && lease.holder == request.holder;
        if let Some(known) = leases.iter().find(is_of_job) {
            if known.gpus.len() == request.gpus {
                return Ok(Held { lease: known.clone(), of_process: None });
            }
            let text = format!("{} has {} GPUs already", known.holder, known.gpus.len());
            return Err(PoolError::List { name: name(), text });
        }
        if usable.is_empty() {
            return Err(PoolError::Silent { name: name(), reasons });
        }
        let taken: HashSet<Gpu> = leases.iter().flat_map(|lease| lease.gpus.iter().cloned()).collect();
        let Some(gpus) = choice::choose(&usable, &taken, request.gpus) else {
            let all: usize = usable.iter().map(|(_, devices)| *devices as usize).sum();
            let is_usable = |gpu: &&Gpu| usable.iter().any(|(server, _)| *server == gpu.server);
            let free = all.saturating_sub(taken.iter().filter(is_usable).count());
            let holders = leases.iter().map(description).collect();
            return Err(PoolError::NotFree {
                name: name(),
                free,
                all,
                requested: request.gpus,
                holders,
                reasons,
            });
        };
        let (on, devices) = choice::visible_devices(&usable, &gpus);
        let devices: Vec<String> = devices.iter().map(u32::to_string).collect();
        let lease = Lease {
            holder: request.holder.clone(),
            user: request.user.replace(char::is_control, "?"),
            since: Timestamp::now().to_string(),
            gpus,
            on: on.join(","),
            devices: devices.join(","),
        };
        let folder = self.leases_folder();
        let locked = lease.write(&folder).map_err(self.failed(&folder))?;
        let is_process = matches!(lease.holder, Holder::Process { .. });
        let of_process = is_process.then(|| (folder.join(lease.holder.file_name()), locked));
        Ok(Held { lease, of_process })
    }

    /// Ends the lease of a job; says whether it had one.
    ///
    /// # Errors
    /// When the pool cannot be changed by this user.
    pub fn release(&self, job: &str) -> Result<bool, PoolError> {
        let ended = self.release_where(|holder| matches!(holder, Holder::Job(name) if name == job))?;
        Ok(!ended.is_empty())
    }

    /// Ends the leases of all jobs whose names begin so and are not among these; says which.
    ///
    /// # Errors
    /// When the pool cannot be changed by this user.
    pub fn release_unless_among(
        &self,
        prefix: &str,
        jobs: &HashSet<String>,
    ) -> Result<Vec<String>, PoolError> {
        let has_ended = |name: &String| name.starts_with(prefix) && !jobs.contains(name);
        self.release_where(|holder| matches!(holder, Holder::Job(name) if has_ended(name)))
    }

    fn release_where(&self, ends: impl Fn(&Holder) -> bool) -> Result<Vec<String>, PoolError> {
        let _lock = self.lock()?;
        let mut ended = Vec::new();
        for lease in self.without_ended()?.into_iter().filter(|lease| ends(&lease.holder)) {
            let path = self.leases_folder().join(lease.holder.file_name());
            fs::remove_file(&path).map_err(self.failed(&path))?;
            ended.push(lease.holder.to_string());
        }
        Ok(ended)
    }

    /// The leases that count, with the files of others removed.
    fn without_ended(&self) -> Result<Vec<Lease>, PoolError> {
        let folder = self.leases_folder();
        fs::create_dir_all(&folder).map_err(self.failed(&folder))?;
        let mut leases = Vec::new();
        for found in self.found()? {
            if found.has_ended {
                // Another user's may stay: it does not count.
                let _ = fs::remove_file(&found.path);
            } else {
                leases.push(self.intact(found)?);
            }
        }
        Ok(leases)
    }

    /// Keeps other commands from changing the pool.
    fn lock(&self) -> Result<File, PoolError> {
        let path = self.folder.join("lock");
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o666)
            .custom_flags(NO_LINK)
            .open(&path);
        let file = opened.map_err(self.failed(&path))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(self.failed(&path)(error.into())),
            }
        }
    }
}

/// Who has how many GPUs, for people.
fn description(lease: &Lease) -> String {
    format!("{} has {} ({}, since {})", lease.user, lease.gpus.len(), lease.holder, lease.since)
}

/// The pools of a folder.
fn names_in(pools: &Path) -> Vec<String> {
    let entries = fs::read_dir(pools).into_iter().flatten().flatten();
    let pools = entries.filter(|entry| entry.path().join("servers").is_file());
    let mut names: Vec<_> = pools.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The pools of this machine that have a name.
pub fn names() -> Vec<String> {
    names_in(Path::new(POOLS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(folder: &Path, list: &str) -> Pool {
        fs::create_dir_all(folder.join("lab")).unwrap();
        fs::write(folder.join("lab/servers"), list).unwrap();
        Pool::within(folder, "lab").unwrap()
    }

    fn states(servers: &[String]) -> Vec<ServerState> {
        let state = |server: &String| ServerState {
            server: server.clone(),
            devices: if server == "down:1" { Err("it is down".into()) } else { Ok(2) },
        };
        servers.iter().map(state).collect()
    }

    fn job(name: &str, gpus: usize) -> Request {
        Request { holder: Holder::Job(name.into()), user: "ada".into(), gpus }
    }

    fn take(pool: &Pool, name: &str, gpus: usize) -> Result<String, String> {
        let held =
            pool.acquire(&job(name, gpus), states, Duration::ZERO).map_err(|error| error.to_string())?;
        Ok(format!("{} {}", held.lease.on, held.lease.devices))
    }

    #[test]
    fn gpus_are_leased_once_and_released() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path(), "# the lab's\na:1\nb:1 # new\n\na:1\n");
        assert_eq!(pool.servers().unwrap(), ["a:1", "b:1"]);
        assert_eq!(take(&pool, "slurm-1", 2).unwrap(), "a:1 0,1");
        assert_eq!(take(&pool, "slurm-1", 2).unwrap(), "a:1 0,1", "what it has already");
        assert!(take(&pool, "slurm-1", 1).unwrap_err().contains("has 2 GPUs already"));
        assert_eq!(take(&pool, "slurm-2", 1).unwrap(), "b:1 0");
        let error = take(&pool, "slurm-3", 2).unwrap_err();
        assert!(error.contains("1 of 4 GPUs free") && error.contains("ada has 2 (job slurm-1"), "{error}");
        assert!(pool.release("slurm-1").unwrap() && !pool.release("slurm-1").unwrap());
        assert_eq!(take(&pool, "slurm-3", 3).unwrap(), "a:1,b:1 0,1,3");
        let alive = HashSet::from(["slurm-2".to_owned()]);
        assert_eq!(pool.release_unless_among("pbs-", &alive).unwrap(), [""; 0]);
        assert_eq!(pool.release_unless_among("slurm-", &alive).unwrap(), ["job slurm-3"]);
        assert_eq!(pool.leases().unwrap().len(), 1);
    }

    #[test]
    fn the_lease_of_a_process_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path(), "a:1\n");
        let request = |number| Request {
            holder: Holder::Process { number, host: "node".into() },
            user: "ada".into(),
            gpus: 2,
        };
        let held = pool.acquire(&request(1), states, Duration::ZERO).unwrap();
        let text = fs::read(pool.leases_folder().join(held.lease.holder.file_name())).unwrap();
        let error = pool.acquire(&request(2), states, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("process 1 on node"), "{error}");
        // As if the process had been killed: the file stays, and no process has it locked.
        drop(held);
        fs::write(pool.leases_folder().join("process-1@node"), text).unwrap();
        drop(pool.acquire(&request(2), states, Duration::ZERO).unwrap());
        assert_eq!(pool.leases().unwrap(), []);
        assert!(!pool.leases_folder().join("process-1@node").exists());
    }

    #[test]
    fn what_is_wrong_with_a_pool_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let lab = pool(folder.path(), "down:1\n");
        let error = Pool::within(folder.path(), "lap").unwrap_err().to_string();
        assert!(error.contains("no pool `lap`") && error.ends_with("there are lab"), "{error}");
        let error = take(&lab, "slurm-1", 1).unwrap_err();
        assert!(error.contains("no server") && error.contains("down:1: it is down"), "{error}");
        for (list, text) in [
            ("causeway://secret@a:1\n", "servers:1 has a connect string"),
            ("a,b\n", "`a,b` is no server"),
            ("# none\n", "lists no server"),
        ] {
            let error = pool(folder.path(), list).servers().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let lab = pool(folder.path(), "a:1\ndown:1\n");
        let error = take(&lab, "slurm-1", 3).unwrap_err();
        assert!(error.contains("2 of 2 GPUs free") && error.contains("not usable: down:1"), "{error}");
        assert!(take(&lab, "a/b", 1).unwrap_err().contains("no name for a job"));
        fs::create_dir_all(lab.leases_folder()).unwrap();
        fs::write(lab.leases_folder().join("job-x"), "?").unwrap();
        assert!(take(&lab, "slurm-1", 1).unwrap_err().contains("job-x is no lease"));
    }
}
