//! The software GPU: driver calls carried out on this machine's processor.
//!
//! One device, or several that share processor and memory. The memory is an [address
//! space](causeway_ptx::memory::AddressSpace) of this process, and kernels are compiled by [`causeway_ptx`].
//!
//! | question | module |
//! | --- | --- |
//! | how is a call of the declaration list carried out | `calls` |
//! | what is there for a session, and what does the worker's engine get besides calls | `gpu` |
//! | which contexts are there, and which one is meant | `contexts`, each a `context` |
//! | which modules, libraries and functions, and how are they compiled | `modules`, each a `module`; `function`, `programs`, `image`, `linker` |
//! | what is a graph, and what does a conditional node choose | `graph`, made of `sequence`s; `condition` |
//! | what is a command of a stream | an `action`, most of them an `operation` on the `machine`; `launch` for a kernel |
//! | which command comes next | `scheduler`, over `stream` and `event`; `events` and `gate` use it |
//! | which thread carries it out | `executor` |
//! | which memory is allocated | `memory`, from a `pool`; `virtual_memory`, `array`, `managed`, `pinned`, `staging`, `region` |
//! | how does memory go to a file and come back | `swap` |
//! | what do textures and surfaces look into, and which ones does a launch find | `texture`, `texture_references`, `textures`; `texture_limits` |
//! | what do devices and kernels say of themselves | `attributes`, `occupancy`, `options` |
//! | what does it lack for a program, before that runs | [`check`] |
//! | what do programs learn of it by NVML | [`monitor`] |
//!
//! A worker process serves one client, so a fault of that client's kernels ends its context and nothing else.

mod action;
mod array;
mod attributes;
mod calls;
pub mod check;
mod condition;
mod context;
mod contexts;
mod event;
mod events;
mod executor;
mod function;
mod gate;
mod gpu;
mod graph;
mod handles;
mod host_memory;
mod image;
mod launch;
mod linker;
mod machine;
mod memory;
mod module;
mod modules;
pub mod monitor;
mod occupancy;
mod operation;
mod options;
mod pool;
mod programs;
mod region;
mod scheduler;
mod stream;
mod swap;
mod tensor_map;
mod texture;
mod texture_limits;
mod texture_references;
mod textures;
mod virtual_memory;

pub use gpu::{SoftwareGpu, StartError};
pub use options::Options;
