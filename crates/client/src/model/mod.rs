//! The client's picture of what the program has made. It sends nothing and knows no link.
//!
//! | Module | Contents |
//! |---|---|
//! | [`handles`] | The handles that the program holds: made here, checked here |
//! | [`device`], [`context`], [`stream`], [`array`] | Client state of the program's objects |
//! | [`completion`] | Completion watermarks of streams and contexts: queries and idle waits need no server |
//! | [`memory`], [`host_memory`], [`region`] | Address lookup |
//! | [`address`], [`host_window`] | Allocators of addresses and memory that need no round trip |
//! | [`transfers`], [`host_writes`] | Transfers in flight to and from the program's memory, and their order |
//! | [`graph`] | Graphs |
//! | [`advice`] | What the program has advised for managed memory |
//! | [`exchange`] | IPC handles and descriptors for other processes of the same server |

pub mod address;
pub mod advice;
pub mod array;
pub mod completion;
pub mod context;
pub mod device;
pub mod exchange;
pub mod graph;
pub mod handles;
pub mod host_memory;
pub mod host_window;
pub mod host_writes;
pub mod memory;
pub mod region;
pub mod stream;
pub mod transfers;
