//! Measurements of messages between the GPUs of two ranks, by channel and placement.
//!
//! The measuring is done by an ordinary MPI program with the loops of the OSU benchmarks (`mpi/bench`), which
//! prints a row for each figure. A *target* is one way to start it: on which GPU, in which containers, with
//! which channels. Each run starts the program once for every target, in turn, so that what disturbs the
//! machine disturbs all of them alike.
//!
//! | Module      | Question it answers                                       |
//! |-------------|-----------------------------------------------------------|
//! | [`results`] | What has been measured on which target?                   |
//! | [`report`]  | How do people and programs read it?                       |
//! | [`study`]   | Which channel is best for which sizes?                    |

pub mod report;
pub mod results;
pub mod study;
