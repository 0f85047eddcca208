//! Causeway's `libcuda.so.1`: the CUDA driver API, carried out by a server.
//!
//! Every name of `cuda.h` is exported. A call is answered here (*local*), appended to a batch of commands
//! (*posted*), or waited for (*called*); the declaration list in `causeway-api` says which, and `stubs` holds the
//! exported symbols made from it. From the outside in:
//!
//! | Module | Question it answers |
//! |---|---|
//! | `entry` | What does every call go through? |
//! | `calls` | What does a call do that is not simply sent? |
//! | `session` | How do commands leave, and how do replies come back? |
//! | `handles`, `context`, `stream`, `event`, `module` | What is known here of the program's objects? |
//! | `memory`, `host_memory`, `copy` | What is an address, and how do bytes move? |
//! | `host_writes` | In which order do copies from devices write to the program's memory? |
//! | `pipeline` | Into which pieces is a copy cut, and how are they carried? |
//! | `visible` | How do kernels reach memory of the program? |
//! | `address`, `pool` | Which memory is given out without asking the server, and when again? |
//! | `virtual_memory`, `ipc`, `exchange` | What does the program map itself, and share with other processes? |
//! | `launch` | What does a kernel get? |
//! | `image`, `jit`, `linker` | Where does code come from, and how does the server get it? |
//! | `capture` | Which streams are being captured, and how does their work become nodes of a graph? |
//! | `graph` | What is a graph made of, and how is it launched? |
//! | `private` | What does NVIDIA's runtime ask for that `cuda.h` does not have? |
//! | `process` | What happens at fork and at exit? |
//! | [`environment`] | Which variables mean something? |

mod address;
mod array;
mod calls;
mod capture;
mod completion;
mod context;
mod copy;
mod dedup;
mod device;
mod entry;
pub mod environment;
mod event;
mod exchange;
mod graph;
mod handles;
mod host_memory;
mod host_writes;
mod image;
mod ipc;
mod jit;
mod kept;
mod launch;
mod linker;
mod log;
mod memory;
mod module;
mod pipeline;
mod pool;
mod private;
mod process;
mod registered;
mod session;
mod statistics;
mod stream;
mod virtual_memory;
mod visible;

/// The exported symbols, made from the declaration list.
#[allow(clippy::undocumented_unsafe_blocks)]
mod stubs {
    causeway_api_macros::stubs!();
}

/// Tells who loads a `libcuda.so.1` and wants NVIDIA's that this is not it.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_client_marker() {}
