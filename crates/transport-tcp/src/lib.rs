//! The transport over TCP: frames on one connection, transfers on several others, the bulk lanes.
//!
//! | Module      | Question it answers                                                         |
//! |-------------|-----------------------------------------------------------------------------|
//! | `messages`  | How do the frames of a link travel?                                          |
//! | `lanes`     | How is a large copy striped over several connections?                        |
//! | `schedule`  | Which lane sends what next, and what again when a lane has died?              |

mod lanes;
mod messages;
mod schedule;

pub use lanes::{DialLanes, NoLane};
pub use messages::parts;
pub use schedule::LaneError;
