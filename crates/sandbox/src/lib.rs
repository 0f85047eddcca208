//! The sandbox of worker processes: what a worker may do that has come to run foreign code.
//!
//! A worker executes what a client sends, through NVIDIA's driver or of code that was made for it. Whoever
//! finds a way to run code of their own there must find nothing: no file, no other process, no socket, no
//! program, and no more memory than the session's.
//!
//! The broker decides once, when it starts, what can be had on this machine ([`Plan`]), and says what cannot.
//! For every process it starts there is a [`Jail`]: a user and a control group of its own, released when
//! the process has ended. Confinement happens in three steps, since each has to come as early as it can and
//! no earlier:
//!
//! 1. between `fork` and `exec`, by what the broker holds open ([`BeforeExec`]): control group, limits,
//!    network;
//! 2. before the process makes its second thread ([`Confinement::enter`]): user, capabilities, files;
//! 3. when the GPU's driver has started, which needs more than a session does ([`Confinement::close`]):
//!    system calls.
//!
//! | module | contents |
//! | --- | --- |
//! | `jail` | Jail: the sandbox of one process |
//! | `plan` | Sandbox plan: the parts that are available on this machine, and why others are not |
//! | `confinement` | Confinement: the steps with which a process restricts itself, and its credentials (user, groups, capabilities) |
//! | `users` | Users of processes, and the compile cache of NVIDIA's driver that each of them has |
//! | `cgroup` | Control groups (cgroups) that limit a process's memory and threads |
//! | `limits` | Limits of a process: resource limits (rlimits) besides memory, and an empty network namespace |
//! | `files` | File system access (Landlock): the files that a process may open |
//! | `calls` | System call filter (seccomp) |
//! | `nodes` | Device nodes of the GPU, which must exist before the sandbox forbids to make them |

mod calls;
mod cgroup;
mod confinement;
mod files;
mod jail;
mod limits;
mod nodes;
mod plan;
mod users;

pub use crate::confinement::{CredentialsError, hide_this_process};
pub use calls::CallsError;
pub use confinement::{Confinement, ConfinementError};
pub use files::FilesError;
pub use jail::{BeforeExec, Jail, JailError, Purpose};
pub use nodes::{NodesError, make_device_nodes};
pub use plan::{
    Missing, Mode, Part, Plan, PlanError, SandboxRequest, Shared, UnknownMode, default_session_memory,
    default_total_memory,
};
pub use users::{BadUsers, User, UserRange};
