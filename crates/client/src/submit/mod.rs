//! The only way down for commands: a captured stream's commands become nodes, what the program has written to
//! memory that the server mirrors goes before, and then the command is sent.
//!
//! | Module | Contents |
//! |---|---|
//! | [`send`] | Command submission: capture, order, and the session |
//! | [`session_callbacks`] | Callbacks of the sessions: see [`SessionCallbacks`] |
//! | [`capture`] | Stream capture: work that is put into a captured stream becomes nodes of a graph, here in the client |
//! | [`copy`], [`content_upload`] | How do bytes move? |
//! | [`launch`] | Launches: what a kernel gets, and what can be refused before the server sees it |
//! | [`callbacks`], [`task`] | What happens here when a stream reaches a point, and how does it get into the stream? |
//! | [`result_cache`] | Result cache: replies to calls whose results depend on their arguments alone |
//! | [`watches`] | Completion watches: notification of the end of work, and fetching of what kernels wrote |
//! | [`context`], [`streams`], [`event`] | How do contexts, streams and events begin, end and get waited for? |
//! | [`graph`] | What of a graph the server gets: when it is instantiated, and when it is launched |
//! | [`allocation`], [`blocks`], [`address_window`], [`array_parts`], [`pinned`], [`pool`], [`managed`], [`virtual_memory`] | How does the program get memory? |
//! | [`ipc`], [`ipc_imports`] | How do other processes and other servers get it? |
//! | [`module`], [`jit`], [`linker`] | How does code get to the server? |

pub mod address_window;
pub mod allocation;
pub mod array_parts;
pub mod blocks;
pub mod callbacks;
pub mod capture;
pub mod content_upload;
pub mod context;
pub mod copy;
pub mod device_times;
pub mod event;
pub mod graph;
pub mod ipc;
pub mod ipc_imports;
pub mod jit;
pub mod launch;
pub mod linker;
pub mod managed;
pub mod module;
pub mod pinned;
pub mod pool;
pub mod result_cache;
pub mod send;
pub mod session_callbacks;
pub mod streams;
pub mod task;
pub mod virtual_memory;
pub mod watches;
