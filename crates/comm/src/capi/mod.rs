//! The functions of `libcauseway_comm.so`, for programs in C. `mpi/causeway_comm.h` declares and describes
//! them.
//!
//! A process has one part in one job at a time.
//!
//! | Module       | Question it answers                                                      |
//! |--------------|--------------------------------------------------------------------------|
//! | `state`      | What does the library keep?                                              |
//! | `job`        | How does a program take part in a job?                                   |
//! | `memory`     | What is an address of, and how are bytes copied?                         |
//! | `send`       | How is a message sent?                                                   |
//! | `receive`    | How is one received?                                                     |
//! | `open`       | How do ranks use each other's memory where it lies?                      |
//! | `unexpected` | Where are messages that probes took out?                                 |
//! | `team`       | How do kernels come to communicate?                                      |
//! | `verbs`      | How do kernels come to post to a network card?                           |
//! | `collective` | How do they make collective calls?                                       |
//! | `version`    | Is the library the one that a program was built for?                     |

mod collective;
mod job;
mod memory;
mod open;
mod receive;
mod send;
mod state;
mod team;
mod unexpected;
mod verbs;
mod version;

pub(crate) use state::{fail, world};
