//! Heartbeat of workers.
//!
//! A worker that hangs looks like one that computes: its process is there, and its kernel goes on
//! acknowledging what its client sends. So the broker asks it now and then over the control socket. The
//! thread that attends to that socket answers, with how many steps the thread that handles commands has made.
//! One that does not answer at all is stopped or has lost a lock for ever, and is ended; one whose commands
//! do not go on may wait for a kernel that runs for hours, so that it is the user who says what happens.
//!
//! | Module       | Question it answers                                              |
//! |--------------|------------------------------------------------------------------|
//! | [`progress`] | How many steps has the thread that handles commands made?        |
//! | [`watchdog`] | When is a worker asked, and what is to be done about its answers? |

pub mod progress;
pub mod watchdog;

pub use progress::{Progress, ProgressCounter};
pub use watchdog::{Finding, HeartbeatTimeouts, HungAction, HungWorker, Step, Watchdog};
