//! Control groups (cgroups) that limit a process's memory and threads.
//!
//! Every process gets one of its own, beneath one of the server's, which lies beneath the group that the
//! server was started in. Of version 2 where that has the memory controller, else of version 1.
//!
//! | module | contents |
//! | --- | --- |
//! | `find` | Control groups of this process: their mount points, and the memory limit that they set |
//! | `parent` | Parent control group of the workers |
//! | `session` | Control group of one process |

mod find;
mod parent;
mod session;

pub use crate::cgroup::find::memory_limit;
pub use find::{Found, find};
pub use parent::Parent;
pub use session::{Bounds, SessionGroup};
