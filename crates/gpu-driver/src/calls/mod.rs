//! The calls of the declaration list, a module for each subject.
//!
//! | question | module |
//! | --- | --- |
//! | what are the devices | `snapshot` |
//! | how are contexts and streams made, and what can be set for them | `context`, `streams` |
//! | which part of a device's processors does a context use | `green` |
//! | how does code come in and what does it hold | `image`, `linker`, `module`, `code_memory` |
//! | how is it started | `launch` |
//! | what do textures and surfaces look into | `texture` |
//! | where is memory allocated, and at addresses that the client chose | `memory`, `virtual_memory` |
//! | how do bytes move | `copy` |
//! | which memory of this process do kernels reach | `shared`, `managed` |
//! | how do network cards reach GPU memory | `gpudirect` |
//! | when is work done | `events` |
//! | what is a graph made of | `graph` |
//! | what does the driver's log say, and what does it keep in a context | `log`, `layout` |
//!
//! Each implements the trait of its subject ([`causeway_gpu::calls`]), in which code made from the
//! declaration list passes on plain driver calls.

mod code_memory;
mod context;
mod copy;
mod gpudirect;
mod graph;
mod green;
mod image;
mod launch;
mod linker;
mod managed;
mod memory;
mod module;
mod shared;
mod snapshot;
mod streams;
mod texture;
mod virtual_memory;
