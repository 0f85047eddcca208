//! Graphs.
//!
//! | contents | module |
//! | --- | --- |
//! | nodes and edges of a graph | [`structure`] |
//! | node parameters | [`nodes`], [`described`], [`memory`] |
//! | attributes of kernel nodes | [`attributes`] |
//! | the same for the generic form of a node | [`generic`] |
//! | executable graphs | [`executable`] |
//! | user objects, and graph memory | [`objects`] |

mod described;
mod executable;
mod generic;
mod memory;
mod nodes;
pub(super) mod structure;

pub use executable::*;
pub use generic::*;
pub use memory::*;
pub use nodes::*;
pub use structure::*;
