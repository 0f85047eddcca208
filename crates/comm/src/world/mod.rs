//! World: this process's part in a job, that is its place on the boards, its socket, what it offers, and what
//! it has of each peer.
//!
//! | module | contents |
//! | --- | --- |
//! | `state` | State of a rank, with the wake-up of the thread that watches copies and the callbacks on disconnected peers |
//! | `join` | Joining and leaving of a job |
//! | `connect` | Connections to peers, on demand |
//! | `send` | Sends: offers of GPU memory, and what the traffic with each peer is bound by |
//! | `receive` | Receives: fetch of announced messages, and the thread that sees their copies end |
//! | `moves` | Migration of this rank to another container |

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
