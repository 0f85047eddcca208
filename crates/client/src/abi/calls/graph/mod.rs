//! Graphs.
//!
//! | module | contents |
//! | --- | --- |
//! | `structure` | Graphs, their nodes and their edges |
//! | `nodes` | Graph node calls: add, get and set parameters, in graphs and in executable graphs |
//! | `described` | Node parameters in the structures of `cuda.h`, converted to the graph's own |
//! | `memory` | Memory of graphs: nodes that allocate and free it, its attributes, and user objects |
//! | `generic` | Nodes of any kind, described by one structure |
//! | `executable` | Executable graphs |

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
