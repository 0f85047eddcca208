//! GPU back ends: what executes driver calls, behind one trait.
//!
//! The worker knows only [`Gpu`]. There are two back ends, in crates of their own: one passes calls to
//! NVIDIA's driver, the other is the software GPU. Validation of handles happens once, in [`objects`]; a back
//! end gets its own handles.

pub mod calls;
pub mod code_memory;
mod gpu;
pub mod gpudirect;
pub mod idle_poller;
pub mod imported;
pub mod in_flight;
pub mod monitor;
pub mod objects;
pub mod reports;
pub mod set_aside;
mod staging;
pub mod suspend;
pub mod taken;
mod types;
pub mod unpack;

pub use calls::Calls;
pub use gpu::{DeviceBytes, Gate, Gpu, Registration, Shared};
pub use idle_poller::IdlePoller;
pub use objects::dispatch;
pub use staging::Staging;
pub use types::{Completion, CuResult, KernelTimer, NativeLocation, NativeSource, OutputSink, OutputStream};
