//! Confinement: the steps with which a process restricts itself, and its credentials (user, groups,
//! capabilities).

use std::io;
use std::path::PathBuf;

use rustix::process::{
    DumpableBehavior, Gid, Signal, Uid, getppid, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use thiserror::Error;

use crate::calls::{self, CallsError};
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
    #[error("this worker has {0} threads where it should have one, so it cannot be confined")]
    Threads(usize),
    /// The number of threads is not known.
    #[error("a worker cannot count its threads, so it cannot be confined: {0}")]
    Uncounted(io::Error),
    /// The kernel would end other processes before this one.
    #[error("a worker cannot set its OOM score (/proc/self/oom_score_adj): {0}")]
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
        gain_nothing()?;
        // Files are named while the process still reaches them all.
        if self.files {
            files::restrict(&self.writable)?;
        }
        give_up(self.user, &self.groups)?;
        if self.hidden {
            hide_this_process()?;
        } else {
            show_this_process()?;
        }
        Ok(die_with(self.broker)?)
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

/// Why a process keeps what it should give up.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// A system call failed.
    #[error("a worker cannot {what}: {cause}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// The broker ended while its worker started.
    #[error("the server ended while this worker started")]
    BrokerExited,
}

fn refused(what: &'static str) -> impl Fn(rustix::io::Errno) -> CredentialsError {
    move |cause| CredentialsError::Refused { what, cause: cause.into() }
}

/// Keeps other processes of this user from tracing this one and from reading its memory.
pub fn hide_this_process() -> Result<(), CredentialsError> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(refused("hide its memory"))
}

/// Lets the processes of this user that are not confined look at this one again, which a change of user ends.
fn show_this_process() -> Result<(), CredentialsError> {
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(refused("show itself"))
}

/// No program that this process starts gets more rights than it has itself.
fn gain_nothing() -> Result<(), CredentialsError> {
    set_no_new_privs(true).map_err(refused("promise to gain no rights"))
}

/// Gives up every capability, now and for programs that are started, and becomes `user` if one is given, with
/// a group of the same number and `groups` besides. The calling thread must be the only one.
pub fn give_up(user: Option<u32>, groups: &[u32]) -> Result<(), CredentialsError> {
    let before = capabilities(None).map_err(refused("ask for its capabilities"))?;
    if before.effective.contains(CapabilitySet::SETPCAP) {
        clear_bounding_set()?;
    }
    if let Some(number) = user {
        let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
        let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
        set_thread_groups(&groups).map_err(refused("leave the server's groups"))?;
        set_thread_res_gid(group, group, group).map_err(refused("get a group of its own"))?;
        set_thread_res_uid(user, user, user).map_err(refused("get a user of its own"))?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(refused("give up its capabilities"))?;
    clear_ambient_capability_set().map_err(refused("give up its ambient capabilities"))
}

fn clear_bounding_set() -> Result<(), CredentialsError> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no capability of this number, and none above it.
            Err(rustix::io::Errno::INVAL) => break,
            Err(cause) => return Err(refused("give up capabilities of programs that it might start")(cause)),
        }
    }
    Ok(())
}

/// Ends this process when the thread that started it ends. The kernel forgets that with every change of user.
fn die_with(broker: u32) -> Result<(), CredentialsError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(refused("ask to end with the server"))?;
    let parent = getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    // It may have ended before the line above.
    if i64::from(parent) == i64::from(broker) { Ok(()) } else { Err(CredentialsError::BrokerExited) }
}
