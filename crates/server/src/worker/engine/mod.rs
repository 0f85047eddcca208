//! Command engine of a session: who issues commands, and deferred ones.
//!
//! It issues them in order, defers what cannot be issued yet, and answers. One lock holds the order. The
//! receiving thread holds it while it issues a command; the thread that makes a deferred command ready (one that
//! receives bulk data, a completion of the back end) calls [`Wake::wake`](super::session::Wake), which issues
//! it at once if the lock is free, and leaves it to the holder otherwise, or to the receiving thread if that
//! looks for such things. No command is issued by two threads at a time, and no thread waits for the GPU while
//! holding the lock.
//!
//! | module | contents |
//! | --- | --- |
//! | `events` | Link events that the engine handles, and what its receiving thread polls while the client is silent |
//! | `commands` | Commands: the frames of the client in which they come; whether one is issued now or queued; and its issue: context, order and reply |
//! | `execute` | Command dispatch: which part of the engine executes a command, or whether the back end does |
//! | `state` | State of a session's engine: its parts, whether anything is under way or holds device memory, and memory of other servers that is unmapped later |
//! | `event_renewal` | Event renewal: the native event of a record that must not wait for an earlier one |
//! | `queue` | Deferred commands by stream, and the progress of each stream |
//! | `fences` | What a synchronous copy has brought to the device is there for all that comes after it, in whichever stream |

mod commands;
mod event_renewal;
mod events;
mod execute;
mod fences;
mod queue;
mod state;
#[cfg(test)]
mod tests;

pub use commands::handle;
pub use events::{Events, IdleWork};
pub use state::{Engine, ProtocolError};
