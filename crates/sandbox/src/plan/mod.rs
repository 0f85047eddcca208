//! What can be had on this machine, and why not the rest?
//!
//! | Module   | Question it answers                                                    |
//! |----------|------------------------------------------------------------------------|
//! | `facts`  | What do the kernel and this process have?                               |
//! | `decide` | What is tried on a machine with these facts, and why not the rest?      |

mod decide;
mod facts;

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::cgroup::{Bounds, Parent};
use crate::driver_cache::DriverCaches;
use crate::jail::{Jail, JailError, Purpose};
use crate::limits::MOST_THREADS;
use crate::mode::Mode;
use crate::network::EmptyNetwork;
use crate::users::{UserRange, Users};
use crate::{files, nodes};
use facts::Facts;

/// Where NVIDIA's driver makes memory that processes share, such as for events between processes.
const SHARED_MEMORY: &str = "/dev/shm";

/// What a server wants of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// How much of it there must be.
    pub mode: Mode,
    /// The users of workers, where the server is root.
    pub users: UserRange,
    /// Whether each has one of its own, whatever NVIDIA's driver makes of that.
    pub apart: bool,
    /// The most bytes of memory that one process may use.
    pub session_memory: u64,
    /// The file that no worker may read.
    pub key_file: Option<PathBuf>,
    /// Whether workers use NVIDIA's driver, if there is one.
    pub uses_driver: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            users: UserRange::DEFAULT,
            apart: false,
            session_memory: default_session_memory(),
            key_file: None,
            uses_driver: false,
        }
    }
}

/// Three quarters of this machine's memory, in bytes: one session alone cannot use up all of it.
pub fn default_session_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(i64::MAX as u64, |kibibytes| kibibytes * 1024 / 4 * 3)
}

/// A part of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// A user of its own for every worker.
    Users,
    /// Workers reach no files but libraries and devices.
    Files,
    /// Workers make few system calls.
    Calls,
    /// Workers see no network.
    Network,
    /// The memory and threads of a worker are bounded.
    Memory,
    /// The server's memory is hidden from workers.
    Broker,
    /// The key cannot be read by workers.
    Key,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Users => "workers run as the server's user",
            Self::Files => "workers reach every file that their user may open, and processes of their user",
            Self::Calls => "workers may make any system call",
            Self::Network => "workers see the server's network",
            Self::Memory => "a worker's memory is not bounded",
            Self::Broker => "workers of the server's user may read its memory",
            Self::Key => "workers can read the key",
        })
    }
}

/// Why all workers have one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// NVIDIA's MPS serves one user at a time.
    Mps,
    /// NVIDIA's driver shares events between processes of one user only: another one's `cuIpcOpenEventHandle`
    /// fails (`CUDA_ERROR_MAP_FAILED`; driver 580.159 on an H100, 2026-11-24).
    Events,
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mps => "NVIDIA's MPS serves one user at a time",
            Self::Events => "NVIDIA's driver shares events between processes of one user only",
        })
    }
}

/// A part that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{part}: {why}")]
pub struct Missing {
    /// Which.
    pub part: Part,
    /// Why not.
    pub why: String,
}

/// Why a server does not start for its sandbox.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Parts cannot be had, and all of them are required.
    #[error("the whole sandbox is required (--sandbox require), but {}", list(.0))]
    Missing(Vec<Missing>),
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(Missing::to_string).collect::<Vec<_>>().join("; and ")
}

/// The sandbox of a server's processes.
#[derive(Debug)]
pub struct Plan {
    pub(crate) is_on: bool,
    pub(crate) users: Option<Arc<Users>>,
    shared: Option<Shared>,
    /// Groups by which a user of its own reaches device nodes.
    pub(crate) groups: Vec<u32>,
    pub(crate) files: bool,
    pub(crate) calls: bool,
    pub(crate) cards: bool,
    pub(crate) network: Option<Arc<EmptyNetwork>>,
    pub(crate) parent: Option<Parent>,
    pub(crate) bounds: Bounds,
    /// The folder of MPS, which its clients write to.
    pub(crate) mps: Option<PathBuf>,
    /// The folder of memory that processes share, if the driver may need it.
    pub(crate) shared_memory: Option<PathBuf>,
    /// Where the driver keeps what it compiles, if it does.
    pub(crate) driver_caches: Option<DriverCaches>,
    missing: Vec<Missing>,
}

impl Plan {
    /// Decides what there will be, and makes what all processes share. Nothing is changed but the server's
    /// own control group, and its memory is hidden from other processes of its user.
    pub fn make(wanted: &Wanted) -> Result<Self, PlanError> {
        if wanted.mode == Mode::Off {
            return Ok(Self::off());
        }
        let facts = Facts::read();
        let mut decision = decide::decide(&facts, wanted, &files::readable());
        let mut missing = |part, why: String| decision.missing.push(Missing { part, why });
        let parent = Parent::make(&facts.control_groups)
            .map_err(|error| missing(Part::Memory, error.to_string()))
            .ok();
        let network = match decision.empty_network.then(EmptyNetwork::make).transpose() {
            Ok(network) => network.map(Arc::new),
            Err(error) => {
                missing(Part::Network, format!("no empty one can be made: {error}"));
                None
            }
        };
        if let Err(error) = crate::credentials::hide_this_process() {
            missing(Part::Broker, error.to_string());
        }
        if wanted.mode == Mode::Require && !decision.missing.is_empty() {
            return Err(PlanError::Missing(decision.missing));
        }
        Ok(Self {
            is_on: true,
            users: decision.users.map(|range| Users::new(range, decision.shared.is_some())),
            shared: decision.shared,
            groups: nodes::groups(),
            files: decision.files,
            calls: decision.calls,
            cards: facts.has_rdma,
            network,
            parent,
            bounds: Bounds { memory: wanted.session_memory, threads: MOST_THREADS },
            mps: facts.mps,
            shared_memory: wanted.uses_driver.then(|| SHARED_MEMORY.into()),
            driver_caches: wanted.uses_driver.then(|| DriverCaches::of(decision.users.is_some())).flatten(),
            missing: decision.missing,
        })
    }

    /// No sandbox: processes are what the server is.
    pub fn off() -> Self {
        Self {
            is_on: false,
            users: None,
            shared: None,
            groups: Vec::new(),
            files: false,
            calls: false,
            cards: false,
            network: None,
            parent: None,
            bounds: Bounds { memory: u64::MAX, threads: u64::MAX },
            mps: None,
            shared_memory: None,
            driver_caches: None,
            missing: Vec::new(),
        }
    }

    /// The parts that cannot be had.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Why all workers have one user, if they do.
    pub fn shared(&self) -> Option<Shared> {
        self.shared
    }

    /// Prepares what one process gets.
    pub fn jail(self: &Arc<Self>, purpose: Purpose) -> Result<Jail, JailError> {
        Jail::prepare(self, purpose)
    }
}
