//! The transport over TCP: frames on one connection, transfers on several others, the bulk lanes.
//!
//! | Module      | Question it answers                                                         |
//! |-------------|-----------------------------------------------------------------------------|
//! | `messages`  | How do the frames of a link travel?                                          |
//! | `commands`  | On which connection, and how does another one take its place?                |
//! | `dial`      | How does the end that connects open further connections?                     |
//! | `lanes`     | How is a large copy striped over several connections?                        |
//! | `schedule`  | Which lane sends what next, and what again when a lane has died?              |

mod commands;
mod dial;
mod lanes;
mod messages;
mod schedule;

pub use dial::{DialLanes, NotOpened};
pub use lanes::NoLane;
pub use messages::{TcpOptions, parts};
pub use schedule::LaneError;
