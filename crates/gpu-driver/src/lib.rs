//! The real driver: NVIDIA's `libcuda.so.1`, loaded at run time.
//!
//! | question | module |
//! | --- | --- |
//! | what is there for a session, and what does the worker's engine get besides calls | `driver` |
//! | which library, and did it start | `load` |
//! | what are the devices | `snapshot` |
//! | which context is meant, what can be set for a stream | `context`, `streams` |
//! | how does code come in and what does it hold | `image`, `jit`, `linker`, `fatbin`, `module` |
//! | how is it started | `launch` |
//! | what do textures and surfaces look into | `texture` |
//! | what does the driver's log say | `log` |
//! | which part of a device's processors does a context use | `green` |
//! | where is memory allocated | `memory` |
//! | how do bytes move | `copy`, `staging`, `pinned`, `registered` |
//! | which memory of this process do kernels reach | `shared`, `managed` |
//! | how do network cards reach GPU memory | `direct` |
//! | when is work done | `waits`, `events` |
//! | how does memory get addresses that the client chose | `virtual_memory` |
//! | how does a host function stop a stream | `gate` |
//! | what is a graph made of | `graph` |
//! | where does device `printf` go | `output` |
//! | what does NVIDIA's management library say of the devices | [`monitor`] |
//!
//! Each implements the trait of its subject ([`causeway_gpu::calls`]), in which code made from the declaration list passes on
//! plain driver calls. Handles have been checked
//! before they come here; addresses in device memory are checked by the driver and the GPU.

mod context;
mod copy;
mod direct;
mod driver;
mod events;
mod fatbin;
mod functions;
mod gate;
mod graph;
mod green;
mod image;
mod jit;
mod launch;
mod layout;
mod linker;
mod load;
mod log;
mod managed;
mod memory;
mod module;
pub mod monitor;
mod output;
mod pinned;
mod registered;
mod shared;
mod snapshot;
mod staging;
mod streams;
mod texture;
mod virtual_memory;
mod waits;

pub use driver::Driver;
pub use load::LoadError;
