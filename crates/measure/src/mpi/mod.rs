//! Measurements of messages between the GPUs of two ranks, by channel and placement.
//!
//! The measuring is done by an ordinary MPI program with the loops of the OSU benchmarks (`mpi/bench`), which
//! prints a row for each figure. A *target* is one way to start it: on which GPU, in which containers, with
//! which channels. Each run starts the program once for every target, in turn, so that what disturbs the
//! machine disturbs all of them alike.
//!
//! | module | contents |
//! | --- | --- |
//! | `results` | Results of messages on every target |
//! | `report` | Report of messages: a table and a panel for each quantity and kind of memory, with a column or a line for each target |
//! | `study` | Study: the best channel for each range of sizes |

pub mod report;
pub mod results;
pub mod study;
