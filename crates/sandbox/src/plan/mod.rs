//! Sandbox plan: the parts that are available on this machine, and why others are not.
//!
//! | module | contents |
//! | --- | --- |
//! | `decide` | Sandbox plan: facts of the kernel and this process, and which parts are used on such a machine and why not the others |
//! | `request` | Sandbox request: mode (off, best effort or required), limits, the parts that can be requested, and why one is missing |

mod decide;
mod request;

pub use request::{
    Missing, Mode, Part, SandboxRequest, Shared, UnknownMode, default_session_memory, default_total_memory,
};

use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::cgroup::{Bounds, Parent};
use crate::limits::EmptyNetwork;
use crate::limits::MAX_THREADS;
use crate::plan::decide::{Facts, is_of_mps, mps_folder};
use crate::users::DriverCaches;
use crate::users::{User, Users};
use crate::{files, nodes};

/// Where NVIDIA's driver makes memory that processes share, such as for events between processes.
const SHARED_MEMORY: &str = "/dev/shm";

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
    pub(crate) uses_rdma: bool,
    pub(crate) network: Option<Arc<EmptyNetwork>>,
    pub(crate) parent: Option<Parent>,
    pub(crate) bounds: Bounds,
    /// The folder of MPS, which its clients write to; of a server without a sandbox, also where it may be later.
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
    pub fn make(requested: &SandboxRequest) -> Result<Self, PlanError> {
        if requested.mode == Mode::Off {
            return Ok(Self { mps: Some(mps_folder(requested)), ..Self::off() });
        }
        let facts = Facts::read(mps_folder(requested));
        let mut decision = decide::decide(&facts, requested, &files::readable());
        let mut missing = |part, why: String| decision.missing.push(Missing { part, why });
        let parent = Parent::make(&facts.control_groups, requested.total_memory)
            .map_err(|error| missing(Part::Memory, error.to_string()))
            .ok();
        let network = match decision.empty_network.then(EmptyNetwork::make).transpose() {
            Ok(network) => network.map(Arc::new),
            Err(error) => {
                missing(Part::Network, format!("cannot create an empty one: {error}"));
                None
            }
        };
        if let Err(error) = crate::confinement::hide_this_process() {
            missing(Part::Broker, error.to_string());
        }
        if requested.mode == Mode::Require && !decision.missing.is_empty() {
            return Err(PlanError::Missing(decision.missing));
        }
        Ok(Self {
            is_on: true,
            users: decision.users.map(|range| Users::new(range, decision.shared.is_some())),
            shared: decision.shared,
            groups: nodes::groups(),
            files: decision.files,
            calls: decision.calls,
            uses_rdma: facts.has_rdma,
            network,
            parent,
            bounds: Bounds { memory: requested.session_memory, threads: MAX_THREADS },
            mps: facts.mps,
            shared_memory: requested.uses_driver.then(|| SHARED_MEMORY.into()),
            driver_caches: requested
                .uses_driver
                .then(|| DriverCaches::of(decision.users.is_some()))
                .flatten(),
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
            uses_rdma: false,
            network: None,
            parent: None,
            bounds: Bounds { memory: u64::MAX, threads: u64::MAX },
            mps: None,
            shared_memory: None,
            driver_caches: None,
            missing: Vec::new(),
        }
    }

    /// Whether NVIDIA's MPS runs now, and processes reach it.
    pub fn has_mps(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        self.mps.as_ref().is_some_and(|folder| is_of_mps(folder, user))
    }

    /// The parts that cannot be had.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The users of the processes that run.
    pub fn users_taken(&self) -> Vec<u32> {
        self.users.as_ref().map(|users| users.taken()).unwrap_or_default()
    }

    /// Keeps users from new processes that those of another server have, each until it is dropped.
    pub fn reserve_users(&self, numbers: &[u32]) -> Vec<User> {
        let own = self.users.as_ref().filter(|_| self.shared.is_none());
        own.map(|users| users.reserve(numbers)).unwrap_or_default()
    }

    /// Why all workers have one user, if they do.
    pub fn shared(&self) -> Option<Shared> {
        self.shared
    }
}
