//! Addresses of device memory that the client gives out itself.
//!
//! The worker keeps a [`window`] of addresses reserved, and so does the client, so that no other memory of
//! the program ever has one of them. Small allocations come from a [`heap`]: blocks of memory that the worker
//! made and mapped, in which [`free_ranges`] say what is free. Where there is no window, memory is allocated
//! by the server call by call.

pub mod free_ranges;
pub mod heap;
pub mod window;
