//! World: this process's part in a job. Its place on the boards, its socket, what it offers, and what it has
//! of each peer.
//!
//! | Module    | Question it answers                                                    |
//! |-----------|------------------------------------------------------------------------|
//! | `state`   | What does a rank keep of its job?                                      |
//! | `join`    | How does a rank take part in its job, and what does it tell at the end? |
//! | `connect`   | How does a rank come to the peers to which it hands messages over?     |
//! | `disconnect_listeners` | Who hears at once that a peer has gone?                              |
//! | `moves`   | How does a rank go on in another container?                            |
//! | `send`    | What does a rank offer to others, until when, and what is the traffic bound by? |
//! | `receive` | How does a rank get what others have sent it word of?                  |
//! | `watch`   | Who sees that a copy is over, whatever the program does meanwhile?     |
//! | `completion` | How do those who begin copies and that thread wait for each other?  |

mod completion;
mod connect;
mod disconnect_listeners;
mod join;
mod moves;
mod receive;
mod send;
mod state;
mod watch;

pub use crate::transfer::state_words::ControlSlots;
pub use connect::Presence;
pub use disconnect_listeners::Listener;
pub use join::WorldError;
pub use moves::MoveFailed;
pub use state::World;
