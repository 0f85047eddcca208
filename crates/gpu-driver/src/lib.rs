//! The real driver: NVIDIA's `libcuda.so.1`, loaded at run time.
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | The calls of the declaration list, a module for each subject |
//! | `gpu` | What the worker's engine needs besides the calls of the declaration list |
//! | `driver` | The back end of one session: its state |
//! | `load` | Opening the driver library and starting it |
//! | `functions` | Typed function pointers of the driver library, made from the declaration list |
//! | `context` | Which contexts exist, and which one a thread's calls mean |
//! | `graphs` | Parts of the graphs that the client has named, as the driver calls them, and linkers that a client has made |
//! | `resources` | Objects that the client has named: parts of devices, which green contexts use, and textures and surfaces |
//! | `jit` | Options of the compiler and the linker: from what a client sent to what the driver takes, and back |
//! | `fatbin` | What a fat binary holds, as far as the driver's back end must know before the driver sees it |
//! | `block_hasher` | Block hashes of device memory, computed by a kernel of ours in the session's context |
//! | `waits` | Waiting for the GPU without blocking threads that have other things to do |
//! | `events` | Events: a pool of our own, and those of the program that are waited for |
//! | `stream_gates` | Streams: the context to which each belongs, and stops in one, for host functions |
//! | `window` | Addresses that are kept for what the client chooses addresses for: in this process, and with the driver |
//! | `staging` | Pinned host memory for copies, kept for reuse |
//! | `pinned` | Host memory that the GPU reaches by itself |
//! | `registered` | Host memory that devices know: of this process, and of others, such as memory shared with the client |
//! | `output` | What kernels print |
//! | `suspend` | Checkpoints of this process by the driver: all of its device memory, contexts included, goes to the host's memory and comes back at the same addresses |
//! | `monitor` | NVIDIA's management library, loaded at run time |
//! | `reservations` | Reservations of addresses by NVIDIA's driver: where they are to lie, so that they are the same in every process |
//! | `locks` | The locks of this crate, in the order in which a thread may take them: `causeway_sync::ranked` checks it in debug builds |
//!
//! Handles have been checked before they come here; addresses in device memory are checked by the driver and
//! the GPU.

mod block_hasher;
mod calls;
mod context;
mod driver;
mod events;
mod fatbin;
mod functions;
mod gpu;
mod graphs;
mod jit;
mod load;
mod locks;
pub mod monitor;
mod output;
mod pinned;
mod registered;
pub mod reservations;
mod resources;
mod staging;
mod stream_gates;
mod suspend;
mod waits;
mod window;

pub use driver::Driver;
pub use load::LoadError;
