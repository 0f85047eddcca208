//! The real driver: NVIDIA's `libcuda.so.1`, loaded at run time.
//!
//! | question | module |
//! | --- | --- |
//! | how is a call of the declaration list carried out | `calls` |
//! | what does the worker's engine get besides calls | `gpu` |
//! | what is there for a session | `driver`, which holds the state that the others keep |
//! | which library, and did it start | `load`, `functions` |
//! | which contexts are there, and which one is meant | `context` |
//! | which streams, graphs, linkers, textures and resources are there | `streams`, `graphs`, `links`, `textures`, `resources` |
//! | what can the compiler be told, and what does an image hold | `jit`, `fatbin` |
//! | when is work done | `waits`, `events` |
//! | how does a host function stop a stream | `stream_gates` |
//! | which addresses are kept, and which memory of this process do kernels reach | `window`, `host_ranges` |
//! | where does host memory for copies come from | `staging`, `pinned`, `registered` |
//! | where does device `printf` go | `output` |
//! | how does device memory go to the host and come back | `suspend` |
//! | what does NVIDIA's management library say of the devices | [`monitor`] |
//!
//! Handles have been checked before they come here; addresses in device memory are checked by the driver and
//! the GPU.

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
