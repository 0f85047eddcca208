//! Jail: the sandbox of one process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::cgroup::SessionGroup;
use crate::confinement::Confinement;
use crate::limits;
use crate::limits::EmptyNetwork;
use crate::plan::Plan;
use crate::users::User;

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It executes what clients send, or answers them: everything is kept from it that it does not need.
    Clients,
    /// It says what this machine is like to processes like it, and tries system calls and files for that. It
    /// does nothing that a client could choose.
    Diagnosis,
}

/// Why a process gets no jail.
#[derive(Debug, Error)]
pub enum JailError {
    /// As many processes run as there are users for them.
    #[error(
        "all users for workers are in use: wait for a session to end, or provide more with \
        --worker-users"
    )]
    NoUser,
    /// Its control group cannot be made.
    #[error("cannot create a control group for a worker: {0}")]
    Group(io::Error),
}

/// What one process has until it ends. Dropped then, for its user and its group to be used again.
#[derive(Debug)]
pub struct Jail {
    // Dropped first, with all that still runs there: nobody must get the user before.
    group: Option<SessionGroup>,
    user: Option<User>,
    driver_cache: Option<PathBuf>,
    purpose: Purpose,
    plan: Arc<Plan>,
}

impl Plan {
    /// Prepares what one process gets.
    pub fn jail(self: &Arc<Self>, purpose: Purpose) -> Result<Jail, JailError> {
        Jail::prepare(self, purpose)
    }
}

impl Jail {
    fn prepare(plan: &Arc<Plan>, purpose: Purpose) -> Result<Self, JailError> {
        let user = plan.users.as_ref().map(|users| users.take().ok_or(JailError::NoUser)).transpose()?;
        let number = user.as_ref().map(User::number);
        let group = plan.parent.as_ref().map(|parent| parent.make_group(plan.bounds)).transpose();
        Ok(Self {
            group: group.map_err(JailError::Group)?,
            user,
            driver_cache: plan.driver_caches.as_ref().and_then(|caches| caches.folder_of(number)),
            purpose,
            plan: Arc::clone(plan),
        })
    }

    /// What happens between `fork` and `exec`.
    pub fn before_exec(&self) -> Result<BeforeExec, JailError> {
        let entrances = self.group.as_ref().map_or(Ok(Vec::new()), SessionGroup::entrances);
        Ok(BeforeExec {
            is_on: self.plan.is_on,
            has_user: self.user.is_some() && self.plan.shared().is_none(),
            entrances: entrances.map_err(JailError::Group)?,
            network: self.plan.network.clone(),
        })
    }

    /// The variables that the process gets besides.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        self.driver_cache.iter().map(|folder| ("CUDA_CACHE_PATH", folder.clone())).collect()
    }

    /// What the process does to itself; nothing where there is no sandbox.
    pub fn confinement(&self) -> Option<Confinement> {
        let plan = &self.plan;
        plan.is_on.then(|| Confinement {
            broker: std::process::id(),
            user: self.user.as_ref().map(User::number),
            groups: plan.groups.clone(),
            files: plan.files,
            writable: self.driver_cache.iter().chain(&plan.mps).chain(&plan.shared_memory).cloned().collect(),
            calls: plan.calls && self.purpose == Purpose::Clients,
            uses_rdma: plan.uses_rdma,
            // What a process may learn of itself depends on whether others may, too.
            hidden: self.purpose == Purpose::Clients,
        })
    }

    /// Has the process use no more than so many bytes of memory, where it might use more. False where its memory is not
    /// bounded.
    pub fn limit_memory(&self, bytes: u64) -> io::Result<bool> {
        let Some(group) = &self.group else { return Ok(false) };
        if bytes < self.plan.bounds.memory {
            group.set_memory(bytes)?;
        }
        Ok(true)
    }

    /// Has the process use no more than so many bytes of memory, or what it may use anyway, and `more` besides for a while.
    /// Where it uses more already than that the limit stays as it is.
    pub fn add_memory(&self, limit: Option<u64>, more: u64) -> io::Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let bytes = limit.unwrap_or(u64::MAX).min(self.plan.bounds.memory).saturating_add(more);
        if more == 0 && group.used_memory().is_some_and(|used| used >= bytes) {
            return Ok(());
        }
        group.raise_memory(bytes)
    }

    /// How many bytes of memory the groups above that of the process may still use, as far as that is limited.
    pub fn memory_left(&self) -> Option<u64> {
        self.group.as_ref()?.memory_left_above()
    }

    /// Whether the kernel has killed the process because its memory was used up.
    pub fn ran_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.killed_for_memory() > 0)
    }
}

/// What a new process does before it becomes the worker's program.
#[derive(Debug)]
pub struct BeforeExec {
    is_on: bool,
    has_user: bool,
    entrances: Vec<File>,
    network: Option<Arc<EmptyNetwork>>,
}

impl BeforeExec {
    /// Joins its groups, takes its limits and leaves the network. Async-signal-safe: it may run between
    /// `fork` and `exec`.
    pub fn apply(&self) -> io::Result<()> {
        if !self.is_on {
            return Ok(());
        }
        for entrance in &self.entrances {
            rustix::io::write(entrance.as_fd(), b"0")?;
        }
        limits::set()?;
        if self.has_user {
            limits::limit_threads()?;
        }
        self.network.as_ref().map_or(Ok(()), |network| network.enter())
    }
}
