//! Graphs.
//!
//! | question | module |
//! | --- | --- |
//! | which nodes and edges has a graph | [`structure`] |
//! | what do nodes do, and how is that told and asked | [`nodes`], [`described`], [`memory`] |
//! | which attributes have kernel nodes | [`attributes`] |
//! | the same for the generic form of a node | [`generic`] |
//! | what is launched | [`executable`] |
//! | what lives as long as a graph, and its memory | [`objects`] |

mod attributes;
mod described;
mod executable;
mod generic;
mod memory;
mod nodes;
mod objects;
pub(super) mod structure;

pub use attributes::*;
pub use executable::*;
pub use generic::*;
pub use memory::*;
pub use nodes::*;
pub use objects::*;
pub use structure::*;
