//! Graphs on the server: instantiation and launch.
//!
//! | Module | Contents |
//! |---|---|
//! | `build` | Checks of node descriptions (`CUDA_KERNEL_NODE_PARAMS` and others) |
//! | [`build`] | Sends what an executable graph consists of |
//! | [`executable`] | Executable graphs: made, changed, launched |
//! | [`dot`] | A graph as text in the DOT language (`cuGraphDebugDotPrint`) |

pub mod build;
pub mod dot;
pub mod executable;
