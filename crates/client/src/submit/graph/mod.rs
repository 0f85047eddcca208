//! Graphs on the server: instantiation and launch.
//!
//! | module | contents |
//! | --- | --- |
//! | `build` | Graphs on the server: checks of node descriptions (`CUDA_KERNEL_NODE_PARAMS` and others), what an executable graph consists of, and the backing of graph memory |
//! | `executable` | Executable graphs: instantiation, launch and destruction |
//! | `dot` | A graph as text in the DOT language (`cuGraphDebugDotPrint`) |

pub mod build;
pub mod dot;
pub mod executable;
