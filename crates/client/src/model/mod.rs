//! The client's picture of what the program has made. It sends nothing and knows no link.
//!
//! | Module | Question it answers |
//! |---|---|
//! | [`handles`] | What are the program's objects called? |
//! | [`device`], [`context`], [`stream`], [`array`], [`texture`] | What is known here of the program's objects? |
//! | [`completion`] | How far is their work known to be done? |
//! | [`memory`], [`host_memory`], [`host_mappings`], [`region`] | What is an address? |
//! | [`address`], [`host_window`] | Which addresses and which memory are given out without asking the server? |
//! | [`numbers`] | Which numbers are new? |
//! | [`transfers`], [`host_writes`], [`uploads`] | What is on its way into or out of the program's memory, and in which order? |
//! | [`graph`] | What is a graph made of? |
//! | [`advice`] | What was advised for managed memory? |
//! | [`rdma_devices`] | Which RDMA devices does the process have open? |
//! | [`exchange`] | What do processes pass on to share memory and events? |

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
