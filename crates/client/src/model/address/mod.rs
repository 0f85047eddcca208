//! Addresses of device memory that the client gives out itself.
//!
//! The worker keeps a [`window`] of addresses reserved, and so does the client, so that no other memory of
//! the program ever has one of them. Small allocations come from a [`heap`]: blocks of memory that the worker
//! made and mapped, in which an [`arena`] says what is free. Where there is no window, memory is allocated by
//! the server call by call.

pub mod arena;
pub mod heap;
pub mod window;
