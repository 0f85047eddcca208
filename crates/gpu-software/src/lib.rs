//! The software GPU: driver calls carried out on this machine's processor.
//!
//! One device, or several that share processor and memory. The memory is an [address space](causeway_ptx::memory::AddressSpace) of this process, and
//! kernels are compiled by [`causeway_ptx`]. Calls come in at `calls` and `gpu`; what
//! goes into streams is an `operation`, ordered by the `scheduler` and carried out by the `executor`'s threads. [`monitor`]
//! is what programs learn of it by NVML.
//!
//! A worker process serves one client, so a fault of that client's kernels ends its context and nothing else.

mod array;
mod attributes;
mod calls;
mod condition;
mod context;
mod event;
mod executor;
mod function;
mod gate;
mod gpu;
mod graph;
mod handles;
mod image;
mod launch;
mod linker;
mod managed;
mod memory;
mod module;
pub mod monitor;
mod occupancy;
mod operation;
mod options;
mod pinned;
mod pool;
mod region;
mod scheduler;
mod staging;
mod stream;
mod virtual_memory;

pub use gpu::{SoftwareGpu, StartError};
pub use options::{InvalidOption, Options};
