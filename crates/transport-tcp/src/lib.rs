//! The transport over TCP: frames on one connection, transfers on several others, the bulk lanes.
//!
//! | module | contents |
//! | --- | --- |
//! | `messages` | Frames of a link over TCP |
//! | `commands` | The connection for commands, and how another one takes its place when it is lost |
//! | `lanes` | Bulk lanes: TCP connections over which large copies are striped |
//! | `schedule` | Lane scheduler: which lane sends what next, and retransmission when a lane has died |

mod commands;
mod lanes;
mod messages;
mod schedule;

pub use commands::{DialLanes, NotOpened};
pub use lanes::NoLane;
pub use messages::{TcpOptions, parts};
pub use schedule::LaneError;
