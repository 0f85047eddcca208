//! The sandbox of worker processes: what a worker may do that has come to run foreign code.
//!
//! A worker executes what a client sends, by way of NVIDIA's driver or of code that was made for it. Whoever
//! finds a way to run code of their own there must find nothing: no file, no other process, no socket, no
//! program, and no more memory than the session's.
//!
//! The broker decides once, when it starts, what can be had on this machine ([`Plan`]), and says what cannot.
//! For every process it starts there is a [`Jail`]: a user and a control group of its own, given back when
//! the process has ended. Confinement happens in three steps, since each has to come as early as it can and
//! no earlier:
//!
//! 1. between `fork` and `exec`, by what the broker holds open ([`BeforeExec`]): control group, limits,
//!    network;
//! 2. before the process makes its second thread ([`Confinement::enter`]): user, capabilities, files;
//! 3. when the GPU's driver has started, which needs more than a session does ([`Confinement::close`]):
//!    system calls.
//!
//! | Module          | Question it answers                                                    |
//! |-----------------|------------------------------------------------------------------------|
//! | `mode`          | What does the server's owner want?                                     |
//! | `plan`          | What can be had on this machine, and why not the rest?                 |
//! | `jail`          | What does one process get of it?                                       |
//! | `users`         | As which user does a process run?                                      |
//! | `cgroup`        | Which control group bounds its memory and threads?                     |
//! | `network`       | Which network does it see?                                             |
//! | `limits`        | What does the kernel count for it besides?                             |
//! | `confinement`   | How does a process confine itself?                                     |
//! | `credentials`   | How does it give up what its user may do?                              |
//! | `files`         | Which files does it reach?                                             |
//! | `calls`         | Which system calls may it make?                                        |
//! | `driver_cache`  | Where does the driver keep what it compiles for it?                     |
//! | `nodes`         | Are the GPU's device nodes there, which nobody can make any more then?  |

mod calls;
mod cgroup;
mod confinement;
mod credentials;
mod driver_cache;
mod files;
mod jail;
mod limits;
mod mode;
mod network;
mod nodes;
mod plan;
mod users;

pub use calls::CallsError;
pub use confinement::{Confinement, ConfinementError};
pub use credentials::{CredentialsError, hide_this_process};
pub use files::FilesError;
pub use jail::{BeforeExec, Jail, JailError, Purpose};
pub use mode::{Mode, UnknownMode};
pub use nodes::{NodesError, make_device_nodes};
pub use plan::{
    Missing, Part, Plan, PlanError, SandboxRequest, Shared, default_session_memory, default_total_memory,
};
pub use users::{BadUsers, User, UserRange};
