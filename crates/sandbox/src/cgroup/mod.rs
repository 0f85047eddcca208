//! Control groups (cgroups) that limit a process's memory and threads.
//!
//! Every process gets one of its own, beneath one of the server's, which lies beneath the group that the
//! server was started in. Of version 2 where that has the memory controller, else of version 1.
//!
//! | Module    | Question it answers                                          |
//! |-----------|--------------------------------------------------------------|
//! | `find`    | Which groups is this process in, and where are they seen?     |
//! | `limit`   | How much memory may this process use?                         |
//! | `parent`  | Beneath which group do those of the processes lie?            |
//! | `session` | What is the group of one process?                             |

mod find;
mod limit;
mod parent;
mod session;

pub use find::{Found, find};
pub use limit::memory_limit;
pub use parent::Parent;
pub use session::{Bounds, SessionGroup};
