//! The software GPU: driver calls carried out on this machine's processor.
//!
//! One device, or several that share processor and memory. The memory is an [address
//! space](causeway_ptx::memory::AddressSpace) of this process, and kernels are compiled by [`causeway_ptx`].
//!
//! | module | contents |
//! | --- | --- |
//! | `calls` | The calls of the declaration list, each handed to the part of the device that it concerns |
//! | `gpu` | The back end: its state, and what the worker's engine needs besides the calls of the declaration list |
//! | `contexts` | Contexts: which there are, and which one a thread's calls mean |
//! | `context` | One context: its device, its limits, and the error that ended it |
//! | `modules` | Modules, libraries and their functions: which there are |
//! | `module` | One module, and one library, which is a module of each context that uses it |
//! | `function` | Functions of modules and kernels of libraries, and their attributes |
//! | `programs` | Programs: what images hold, compiled once for each text |
//! | `image` | Finds the PTX in module images |
//! | `linker` | The linker of the software GPU: it gathers PTX, and returns it in a file that `module` takes for a program |
//! | `graph` | Graphs: what their nodes do, in an order that their edges allow |
//! | `condition` | The values that steer conditional nodes, and what a value chooses |
//! | `action` | What happens when it is a command's turn in its stream |
//! | `operation` | What a stream executes |
//! | `machine` | What operations work with |
//! | `launch` | Launching kernels: the checks before, and what their faults mean in CUDA |
//! | `scheduler` | Orders the commands of all streams and moves the streams on |
//! | `stream` | What a stream holds and how far it is |
//! | `event` | One event: the point that its last record names, and when that was reached |
//! | `events` | Events: how they are made, recorded, waited for and compared |
//! | `gate` | Stops in streams that are opened from outside: gates, and values in memory |
//! | `executor` | The threads that carry out what streams hold |
//! | `memory` | Device memory: what is allocated, by which context, and how it goes back |
//! | `pool` | Pools for stream-ordered allocation |
//! | `virtual_memory` | Memory whose addresses the client chooses: made as a file in memory, which other workers' devices can map as well |
//! | `array` | Arrays: memory with a descriptor |
//! | `region` | Device memory of up to three dimensions: checking it, and moving its bytes row by row |
//! | `swap` | Suspension of the device's memory: it goes to a file on the server's disk, and comes back |
//! | `texture` | What descriptions of textures and surfaces mean: images in device memory, checked |
//! | `texture_references` | Texture and surface references: variables of modules that stand for what a program binds to them |
//! | `textures` | The textures and surfaces that there are, and those that a launch finds |
//! | `texture_limits` | Size limits of arrays and textures: as large as on NVIDIA's recent GPUs, so that what fits here fits there |
//! | `attributes` | What the software GPU says about itself |
//! | `occupancy` | How many blocks of a kernel fit on a multiprocessor at once |
//! | `options` | Settings of the software GPU |
//! | `check` | Check of an image: what the software GPU lacks for the code of a program |
//! | `monitor` | What the software GPU knows of itself: it has memory, processes and a compute capability, and no sensors |
//! | `handles` | Numbers that stand for this back end's objects, names of streams, and points in them |
//! | `host_memory` | Host memory of the software GPU: staging for copies, kept for reuse, since the system's fresh pages cost more to touch than bytes do to copy; memory that is registered; and managed memory, which is allocated as a device's own |
//! | `tensor_map` | Tensor maps: `cuTensorMapEncodeTiled` and `cuTensorMapReplaceAddress` |
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
