//! Graphs. They live here: nodes, edges and parameters are kept by the client, so that building a graph and
//! asking about it need no server. What an executable graph consists of is sent when it is made
//! ([`executable`]).
//!
//! | contents | module |
//! | --- | --- |
//! | graph store | [`store`] |
//! | clones | [`clones`] |
//! | ancestors of a node | [`ancestors`] |
//! | work of a node | [`work`], [`copying`] |
//! | topological order and phases | [`order`] |
//! | executable graphs | [`executable`], [`build`] |
//! | memory of allocation nodes | [`allocate`], [`memory`] |
//! | backing of its addresses | [`reservation`] |
//! | memory reuse | [`memory_reuse`] |
//! | user objects | [`objects`] |

mod allocate;
mod clones;
mod copying;
pub mod memory;
mod memory_reuse;
pub mod objects;
pub mod order;
pub mod reservation;
mod store;
pub mod work;

pub use store::{Edge, GraphStore, OnServer, Removed, graphs, resolve, resolve_node};
