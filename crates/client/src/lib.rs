//! Causeway's `libcuda.so.1`: the CUDA driver API, carried out by a server.
//!
//! Every name of `cuda.h` is exported. A call is answered here (*local*), appended to a batch of commands
//! (*posted*), or waited for (*called*); the declaration list, `crates/api/list`, says which, and `abi::stubs`
//! holds the exported symbols made from it. The
//! modules, the large ones from the outside in, and then small ones that all of them use:
//!
//! | module | contents |
//! | --- | --- |
//! | `abi` | What the program sees: the exported symbols, the checks of their arguments, and the sequences that a call consists of |
//! | `nvidia` | Tables that NVIDIA's runtime and libraries ask the driver for and that `cuda.h` does not have |
//! | `submit` | Command submission: CUDA operations as commands to the server |
//! | `remote` | The servers: sessions with them, and what travels there and back |
//! | `model` | The client's picture of what the program has made |
//! | `arguments` | Pointer arguments of the C functions: reading inputs, writing outputs |
//! | `process` | The life of this library in its process: before `cuInit`, in use, in a forked child, after exit |
//! | `call_gate` | Gate of the program's calls, closed while the process forks together with its session |
//! | `guard` | Panic boundary of the C functions |
//! | `environment` | Environment variables and configuration files of this library |
//! | `log` | Lines on the program's standard error, each beginning with `causeway:` |
//! | `statistics` | Counts of what the program did, written as JSON to the file that `CAUSEWAY_STATS` names |
//! | `files` | Files of the library: the cache folder, from which old files are evicted, and reports, which only the program's user may read |
//! | `locks` | The locks of this library, in the order in which a thread may take them: `causeway_sync::ranked` checks it in debug builds |
//! | `trace` | Trace recorder |

mod abi;
mod arguments;
mod call_gate;
pub mod environment;
mod files;
mod guard;
mod locks;
mod log;
mod model;
mod nvidia;
mod process;
mod remote;
mod statistics;
mod submit;
mod trace;

/// Tells who loads a `libcuda.so.1` and wants NVIDIA's that this is not it.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_client_marker() {}

/// Tells libraries beside this one whether kernels of all servers and the program have the same pages of the host's memory,
/// so that one can poll what the other writes: 1, or 0 where a server has a mirror.
#[unsafe(no_mangle)]
pub extern "C" fn causeway_client_shares_memory() -> core::ffi::c_int {
    let shares =
        std::panic::catch_unwind(|| remote::session::all().all(remote::session::Session::shares_memory));
    shares.unwrap_or(false).into()
}
