//! How does a process that the broker has started get its task and its client, and how does it reach the
//! broker afterwards?
//!
//! | Module     | Question it answers                                                                        |
//! |------------|--------------------------------------------------------------------------------------------|
//! | `task`     | What is such a process for?                                                                |
//! | `confined` | How does it confine itself?                                                                |
//! | `start`    | A client that waits for an answer: how is it let in, or turned away?                       |
//! | `serve`   | What does the broker say to a worker while that works?                                     |
//! | `exchange` | How does a worker export something by way of the broker, and take it?                            |
//! | `callers`  | What comes from the worker of another server?                                              |
//! | `error`    | Why can a worker not begin its work?                                                       |

mod callers;
mod confined;
mod error;
mod exchange;
mod serve;
mod start;
mod task;

pub use callers::{Arrival, IncomingPeer};
pub use error::WorkerError;
pub use exchange::{Decision, Exchange};
pub use start::WorkerStart;
pub use task::Prepared;
pub(crate) use task::Task;
