//! Collective calls in CUDA graphs. By kernels alone: what hosts have to tell each other they tell while the
//! graph is captured, and in the graph the ranks' GPUs meet by words in memory that all have mapped.
//!
//! | Module        | Question it answers                                                            |
//! |---------------|---------------------------------------------------------------------------------|
//! | [`barrier`]      | How do the GPUs of all ranks meet, in a kernel and without their hosts? Pure.    |
//! | [`copies`]    | How does a kernel copy several ranges that other ranks' memory has, too? Pure.   |
//! | [`recording`] | Of which kernels does a call become in a graph?                                   |
//! | [`control`]   | What do the ranks of a group keep for their graphs?                               |
//! | [`watch`]     | How does a kernel hear that a rank has ended for which it waits?                   |
//! | [`round`]     | How do ranks show each other what a call in a graph moves?                         |
//! | [`finish`]    | How do ranks agree on a call in a graph, and how is it captured?                    |

pub mod barrier;
pub mod control;
pub mod copies;
pub mod finish;
pub mod recording;
pub mod round;
pub mod watch;
