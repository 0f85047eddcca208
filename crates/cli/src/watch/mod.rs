//! `causeway top`, `sessions` and `drain`: servers, and what their sessions do.
//!
//! | module | contents |
//! | --- | --- |
//! | `query` | Servers that are watched: which are meant, and why one cannot be |
//! | `ranks` | `causeway ranks`: messages and bytes of running MPI ranks by channel, and channels and GPUDirect switched on and off |
//! | `rates` | Rates of sessions between two status replies |
//! | `table` | Table of sessions: the columns that fit a width |
//! | `sessions` | `causeway sessions`: the sessions of a server |
//! | `top` | `causeway top`: a live view of the sessions of servers |
//! | `screen` | Terminal layout of `causeway top` |
//! | `by` | Sums of open sessions by owner: for `causeway sessions --by` |
//! | `drain` | `causeway drain`: end of a server once its sessions have ended or moved |
//! | `moves` | `causeway move`, `checkpoint` and `restore`: sessions that go to another server, or into a file and back |
//! | `checkpoint_file` | Checkpoint file: the state of a session, behind the address at which its program looks for it |
//! | `json` | JSON of servers and their sessions |

mod by;
mod checkpoint_file;
pub mod drain;
mod json;
pub mod moves;
mod query;
pub mod ranks;
mod rates;
mod screen;
pub mod sessions;
mod table;
pub mod top;

pub use table::{bytes, short};
