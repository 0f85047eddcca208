//! The entry points that are written by hand, named and grouped as in the declaration list.
//!
//! Each takes the arguments of its C function; those that have a variant for the per-thread default stream
//! get the called variant as their last argument. What their callers must guarantee is what `cuda.h`
//! and the driver API's manual demand; the `SAFETY` comments here rely on that and say only what is not
//! obvious.
#![allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]

mod address;
mod array;
mod batch_copy;
mod capture;
mod context;
mod copy;
mod debug;
mod device;
mod event;
mod graph;
mod green_context;
mod ipc;
mod launch;
mod legacy_launch;
mod library;
mod managed;
mod memory;
mod memset;
mod module;
mod occupancy;
mod pool;
mod startup;
mod stream;
mod texture;
mod unified;

pub use address::*;
pub use array::*;
pub use batch_copy::*;
pub use capture::*;
pub use context::*;
pub use copy::*;
pub use debug::*;
pub use device::*;
pub use event::*;
pub use graph::*;
pub use green_context::*;
pub use ipc::*;
pub use launch::*;
pub use legacy_launch::*;
pub use library::*;
pub use managed::*;
pub use memory::*;
pub use memset::*;
pub use module::*;
pub use occupancy::*;
pub use pool::*;
pub use startup::*;
pub use stream::*;
pub use texture::*;
pub use unified::*;
