//! Command submission: CUDA operations as commands to the server. A captured stream's commands become nodes; before
//! all others goes what the program has written to memory that the server mirrors.
//!
//! | Module | Contents |
//! |---|---|
//! | [`send`] | Command submission: capture, order, and the session |
//! | [`session_callbacks`] | Callbacks of the sessions: see [`SessionCallbacks`] |
//! | [`capture`] | Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client |
//! | [`copy`], [`content_upload`] | Copies, and uploads by content hash |
//! | [`launch`] | Launches: what a kernel gets, and what can be refused before the server sees it |
//! | [`occupancy`] | Occupancy: how many blocks of a function a multiprocessor holds |
//! | [`callbacks`], [`task`] | Stream callbacks in the client, and host functions in a stream |
//! | [`context`], [`streams`], [`event`] | Contexts, streams and events: creation, destruction, waiting |
//! | [`graph`] | Graphs on the server: instantiation and launch |
//! | [`allocation`], [`device_memory`], [`array_parts`], [`pinned`], [`pool`], [`managed`], [`virtual_memory`] | Memory: device, pinned, pooled, managed and virtual memory, and arrays |
//! | [`ipc`], [`ipc_imports`] | Sharing of memory with other processes and servers |
//! | [`module`], [`linker`] | Modules, libraries, JIT compilation and linking |

pub mod allocation;
pub mod array_parts;
pub mod callbacks;
pub mod capture;
pub mod content_upload;
pub mod context;
pub mod copy;
pub mod device_memory;
pub mod device_times;
pub mod event;
pub mod graph;
pub mod ipc;
pub mod ipc_imports;
pub mod launch;
pub mod linker;
pub mod managed;
pub mod module;
pub mod occupancy;
pub mod pinned;
pub mod pool;
pub mod send;
pub mod session_callbacks;
pub mod streams;
pub mod task;
pub mod virtual_memory;
