//! Connectivity check of two processes.
//!
//! The same command runs in both of them at the same time. They look for each other as the ranks of a job do,
//! so that what is found is what such ranks would have, and not what somebody has thought of containers.
//!
//! | Module   | Question it answers                                       |
//! |----------|-----------------------------------------------------------|
//! | `rendezvous`   | How do two processes come together that agreed on a word? |
//! | `facts`  | What does a process tell the other of its GPU and cards?  |

mod facts;
mod rendezvous;

pub use facts::Facts;
pub use rendezvous::{DoctorError, Found, rendezvous};
