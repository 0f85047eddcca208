//! Confinement: the steps with which a process restricts itself.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::calls::{self, CallsError};
use crate::credentials::{self, CredentialsError};
use crate::files::{self, FilesError};
use crate::limits;

/// What a process that the broker has started does to itself. It comes from the broker before anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The process id of the broker, with which this process ends.
    pub broker: u32,
    /// The user to become, and the group of the same number.
    pub user: Option<u32>,
    /// Further groups of that user: those by which it reaches the device nodes.
    pub groups: Vec<u32>,
    /// Whether files are kept from it.
    pub files: bool,
    /// Folders that it may write to all the same.
    pub writable: Vec<PathBuf>,
    /// Whether system calls are kept from it, once its driver has started.
    pub calls: bool,
    /// Whether there are RDMA devices, whose libraries ask the kernel of them.
    pub uses_rdma: bool,
    /// Whether the process's memory is hidden from other processes of its user.
    pub hidden: bool,
}

/// Why a process is not confined as it should be.
#[derive(Debug, Error)]
pub enum ConfinementError {
    /// What a thread gives up, the others would keep.
    #[error("this worker has {0} threads where it should have one, so that it cannot be confined")]
    Threads(usize),
    /// The number of threads is not known.
    #[error("a worker cannot count its threads, so that it cannot be confined: {0}")]
    Uncounted(io::Error),
    /// The kernel would end other processes before this one.
    #[error("a worker cannot offer itself for when memory runs out (/proc/self/oom_score_adj): {0}")]
    NotOffered(io::Error),
    /// It keeps what its user may do.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// It reaches files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// It may make any system call.
    #[error(transparent)]
    Calls(#[from] CallsError),
}

impl Confinement {
    /// Gives up all but what a driver needs to start. The calling thread must be the only one of its process.
    pub fn enter(&self) -> Result<(), ConfinementError> {
        let threads = std::fs::read_dir("/proc/self/task").map_err(ConfinementError::Uncounted)?.count();
        if threads != 1 {
            return Err(ConfinementError::Threads(threads));
        }
        limits::prefer_for_oom_kill().map_err(ConfinementError::NotOffered)?;
        credentials::gain_nothing()?;
        // Files are named while the process still reaches them all.
        if self.files {
            files::restrict(&self.writable)?;
        }
        credentials::give_up(self.user, &self.groups)?;
        if self.hidden {
            credentials::hide_this_process()?;
        } else {
            credentials::show_this_process()?;
        }
        Ok(credentials::die_with(self.broker)?)
    }

    /// Gives up the system calls that a session does not need, in all threads. Nothing can be started, opened
    /// or traced from here on.
    pub fn close(&self) -> Result<(), ConfinementError> {
        if self.calls {
            calls::restrict(self.uses_rdma)?;
        }
        Ok(())
    }
}
