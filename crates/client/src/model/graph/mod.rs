//! Graphs. They live here: nodes, edges and parameters are kept by the client, so that building a graph and
//! asking about it need no server. What an executable graph consists of is sent when it is made
//! ([`executable`]).
//!
//! | question | module |
//! | --- | --- |
//! | which graphs and nodes are there, and how are they joined | [`store`] |
//! | how is a graph copied | [`clones`] |
//! | what comes before a node | [`ancestors`] |
//! | what does a node do | [`work`], [`copying`] |
//! | in which order are nodes carried out, and by whom | [`order`] |
//! | what is launched, and what may change of it | [`executable`], [`build`] |
//! | where does memory of allocation nodes come from, and who has it | [`allocate`], [`memory`] |
//! | when is there memory at its addresses | [`reservation`] |
//! | which nodes have the same memory | [`memory_reuse`] |
//! | what lives as long as a graph | [`objects`] |

mod allocate;
mod ancestors;
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
