//! What executes driver calls, behind one trait.
//!
//! The worker knows only [`Gpu`]. There are two back ends, in crates of their own: one passes calls to
//! NVIDIA's driver, the other is the software GPU. Validation of handles happens once, in [`objects`]; a back
//! end gets its own handles.

pub mod borrowed;
pub mod busy;
pub mod calls;
pub mod direct;
mod dispatch;
mod gpu;
pub mod monitor;
pub mod objects;
pub mod reports;
pub mod set_aside;
mod staging;
mod types;
pub mod unpack;
pub mod watch;

pub use calls::Calls;
pub use dispatch::dispatch;
pub use gpu::{DeviceBytes, Gate, Gpu, Registration, Shared};
pub use staging::Staging;
pub use types::{Completion, CuResult, NativePlace, NativeSource, OutputSink, OutputStream};
pub use watch::Watch;
