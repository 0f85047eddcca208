//! The client's picture of what the program has made. It sends nothing and knows no link.
//!
//! | Module | Contents |
//! |---|---|
//! | [`handles`] | The handles that the program holds: made here, checked here |
//! | [`device`], [`context`], [`stream`], [`array`], [`texture`] | Client state of the program's objects |
//! | [`completion`] | Completion watermarks of streams and contexts: queries and idle waits need no server |
//! | [`memory`], [`host_memory`], [`host_mappings`], [`region`] | Address lookup |
//! | [`address`], [`host_window`] | Allocators of addresses and memory that need no round trip |
//! | [`numbers`] | Numbers that nothing else of its sort in the process has had |
//! | [`transfers`], [`host_writes`], [`uploads`] | Transfers in flight to and from the program's memory, and their order |
//! | [`graph`] | Graphs |
//! | [`advice`] | What the program has advised for managed memory |
//! | [`rdma_devices`] | Open RDMA devices of the process, and how many of them this library opened |
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
pub mod host_mappings;
pub mod host_memory;
pub mod host_window;
pub mod host_writes;
pub mod memory;
pub mod numbers;
pub mod rdma_devices;
pub mod region;
pub mod stream;
pub mod texture;
pub mod transfers;
pub mod uploads;
