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
//! | `idle`      | What does the receiving thread poll for meanwhile?                 |
//! | `commands`  | When is a command issued?                                          |
//! | `issue`     | In which context, and behind what, is a command carried out?       |
//! | `execute`   | What carries it out?                                               |
//! | `background`| How are slow commands carried out?                                 |
//! | `messages`  | What does a frame of the client ask for?                           |
//! | `parts`     | What does the engine have?                                         |
//! | `queue`     | Which commands wait, and does a stream hold as much as the driver takes? |
//! | `fences`    | What follows a synchronous copy?                                   |
//! | `quiet`     | Is anything under way, or does anything hold the device's memory?  |
//! | `replay`    | How are commands carried out again that another worker has carried out? |
//! | `retired`   | When is memory of other servers unmapped?                          |

mod background;
mod commands;
mod events;
mod execute;
mod fences;
mod idle;
mod issue;
mod messages;
mod parts;
mod queue;
mod quiet;
mod replay;
mod retired;
#[cfg(test)]
mod tests;

pub use events::Events;
pub use idle::IdleWork;
pub use messages::handle;
pub use parts::{Engine, ProtocolError};
