//! Graphs. They live here: nodes, edges and parameters are kept by the client, so that building a graph and
//! asking about it need no server. What an executable graph consists of is sent when it is made
//! ([`executable`]).
//!
//! | module | contents |
//! | --- | --- |
//! | `store` | Graph store: graphs, nodes and edges |
//! | `clones` | Graph clones, and the node of a clone for a node of the original |
//! | `work` | Work of graph nodes: between the structures of `cuda.h`, in which the program gives and gets it, and the session's own |
//! | `copying` | Copies of nodes: as `cuda.h` describes them, from places that the session knows |
//! | `order` | Topological order of the nodes of a graph, and the phase of each: client or server |
//! | `allocate` | Allocation nodes: address and memory of a new one, its ancestors, and the memory of theirs that it can reuse |
//! | `memory` | Memory of allocation nodes |
//! | `reservation` | Addresses that a graph has for its memory, and the memory there, which there is while it is needed |
//! | `memory_reuse` | Memory reuse among nodes of a graph: those of which one has been freed before the other is reached |
//! | `objects` | User objects: things of the program that live as long as they are referenced, a graph for instance |

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
