//! The server: a broker that accepts clients, and one worker process for each of them.
//!
//! Broker and workers are one program. The [`broker`] listens, authenticates and starts workers; it never touches a
//! GPU. A [`worker`] serves one client process, so that a GPU fault, a crash or a leak ends with its owner.
//! One process more, the monitor, answers everybody who only asks how the GPUs are; it is started with the first such question.
//! And whoever asks what the server's machine is like (`causeway doctor --on`) gets a process for that question alone.

pub mod back_end;
pub mod broker;
pub mod cache;
mod diagnosis;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod monitor;
pub mod worker;
