//! Command engine of a session: who issues commands, and deferred ones.
//!
//! It issues them in order, defers what cannot be issued yet, and answers. One lock holds the order. The
//! receiving thread holds it while it issues a command; whoever makes a deferred command ready (a thread that
//! receives bulk data, a completion of the back end) calls [`Wake::wake`](super::session::Wake), which issues
//! it at once if the lock is free, and leaves it to the holder otherwise, or to the receiving thread if that
//! looks for such things. No command is issued by two threads at a time, and nobody waits for the GPU while
//! holding the lock.
//!
//! | Module      | Question it answers                                                |
//! |-------------|--------------------------------------------------------------------|
//! | `events`    | What does the engine do with what the link tells it?               |
//! | `commands`  | When is a command issued?                                          |
//! | `execute`   | What carries it out?                                               |
//! | `state`     | What does the engine have, and is anything under way?              |
//! | `queue`     | Which commands wait, and does a stream hold as much as the driver takes? |
//! | `fences`    | What follows a synchronous copy?                                   |
//! | `replay`    | How are commands carried out again that another worker has carried out? |

mod commands;
mod events;
mod execute;
mod fences;
mod queue;
mod replay;
mod state;
#[cfg(test)]
mod tests;

pub use commands::handle;
pub use events::{Events, IdleWork};
pub use state::{Engine, ProtocolError};
