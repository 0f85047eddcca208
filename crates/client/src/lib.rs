//! Causeway's `libcuda.so.1`: the CUDA driver API, carried out by a server.
//!
//! Every name of `cuda.h` is exported. A call is answered here (*local*), appended to a batch of commands
//! (*posted*), or waited for (*called*); the declaration list in `causeway-api` says which, and `abi::stubs`
//! holds the exported symbols made from it. From the outside in:
//!
//! | Room | Question it answers |
//! |---|---|
//! | `abi` | What does the program see? Symbols, checks of arguments, sequences of calls. |
//! | `nvidia` | What does NVIDIA's runtime ask for that `cuda.h` does not have? |
//! | `submit` | How does a command get its place, and what goes before it? |
//! | `remote` | How do commands, bytes and replies travel? |
//! | `model` | What has the program made? |
//!
//! Beside them lie small modules that all of them use:
//!
//! | Module | Question it answers |
//! |---|---|
//! | `arguments` | How is read and written what the program passes by address? |
//! | `process` | What happens at fork and at exit? |
//! | `guard` | What must not leave the library? |
//! | [`environment`] | Which variables mean something? |
//! | `log`, `statistics` | What does the user learn? |
//! | `disk_cache` | What is kept on disk? |

mod abi;
mod arguments;
mod disk_cache;
pub mod environment;
mod guard;
mod locks;
mod log;
mod model;
mod nvidia;
mod process;
mod remote;
mod report_file;
mod statistics;
mod submit;
mod trace;

/// Tells who loads a `libcuda.so.1` and wants NVIDIA's that this is not it.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_client_marker() {}
