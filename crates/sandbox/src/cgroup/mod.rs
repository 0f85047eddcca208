//! Control groups (cgroups) that limit a process's memory and threads.
//!
//! Every process gets one of its own, beneath one of the server's, which lies beneath the group that the
//! server was started in. Of version 2 where that has the memory controller, else of version 1.
//!
//! | Module    | Contents |
//! |-----------|----------|
//! | `find`    | Groups of this process, their mount points and memory limit |
//! | `parent`  | Parent group of the workers |
//! | `session` | Group of one process |

mod find;
mod parent;
mod session;

pub use crate::cgroup::find::memory_limit;
pub use find::{Found, find};
pub use parent::Parent;
pub use session::{Bounds, SessionGroup};
