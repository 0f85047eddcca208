//! The calls of the declaration list, a module for each subject.
//!
//! | module | contents |
//! | --- | --- |
//! | `snapshot` | What the client learns of the devices when the session opens |
//! | `context` | Contexts: making and ending them |
//! | `streams` | Streams and events, and what can be set for a stream |
//! | `green` | Green contexts: parts of a device's multiprocessors, contexts that use only such a part, and the layout of the multiprocessors, which NVIDIA's driver has only in a private table |
//! | `image` | Module images: bringing the bytes of a client into a form that the driver takes |
//! | `linker` | The driver's linker for device code, and the driver's log |
//! | `module` | Modules and libraries, their functions and kernels, and what the client keeps of these |
//! | `code_memory` | Variables of loaded code: their names are read from the images, their addresses asked of the driver, which has no list of them |
//! | `launch` | Kernel launches |
//! | `texture` | Arrays, and the textures and surfaces that look into them |
//! | `memory` | Allocations and memory pools |
//! | `virtual_memory` | Memory whose addresses the client chooses, by the driver's virtual memory management |
//! | `copy` | Copies between memory and arrays: which of the driver's copy calls fits, and its arguments |
//! | `shared` | Memory of this process that kernels reach, most of it at an address of the client's choice |
//! | `managed` | Managed memory: memory of a device at an address of the client's choice, so that kernels have it at full speed |
//! | `gpudirect` | GPU memory for network cards: which paths the driver offers, and the descriptors that stand for a range |
//! | `graph` | Graphs, built node by node as the client sends them, and what nodes do, in the forms in which the driver takes it |
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
