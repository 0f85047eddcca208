//! Collective calls in CUDA graphs. By kernels alone: what hosts have to tell each other they tell while the
//! graph is captured, and in the graph the ranks' GPUs meet by words in memory that all have mapped.
//!
//! | Module        | Contents                                                               |
//! |---------------|------------------------------------------------------------------------|
//! | [`finish`]    | agreement of the ranks on a call, and its capture                      |
//! | [`recording`] | the kernels that a call becomes in a graph                             |
//! | [`barrier`]   | a kernel in which the GPUs of all ranks meet without their hosts. Pure |
//! | [`copies`]    | a kernel that copies several ranges. Pure                              |
//! | [`control`]   | memory that a group keeps for its graphs, and notification of failures |

pub mod barrier;
pub mod control;
pub mod copies;
pub mod finish;
pub mod recording;
