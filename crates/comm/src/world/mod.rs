//! World: this process's part in a job, that is its place on the boards, its socket, what it offers, and what
//! it has of each peer.
//!
//! | Module    | Contents                                                                        |
//! |-----------|---------------------------------------------------------------------------------|
//! | `state`   | what a rank keeps of its job                                                    |
//! | `join`    | joining and leaving a job, and what is printed at the end                       |
//! | `connect` | connections to the peers to which it hands messages over                        |
//! | `send`    | what it offers to others, and what the traffic with each is bound by            |
//! | `receive` | the fetch of what others have sent word of, and the thread that sees copies end |
//! | `moves`   | how it follows its process into another container                               |

mod connect;
mod join;
mod moves;
mod receive;
mod send;
mod state;

pub use crate::transfer::state_words::ControlSlots;
pub use connect::Presence;
pub use join::WorldError;
pub use moves::MoveFailed;
pub use state::{Listener, World};
