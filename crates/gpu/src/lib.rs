//! GPU back ends: what executes driver calls, behind one trait.
//!
//! The worker knows only [`Gpu`]. There are two back ends, in crates of their own: one passes calls to
//! NVIDIA's driver, the other is the software GPU. Validation of handles happens once, in [`objects`]; a back
//! end gets its own handles.

pub mod block_hash;
pub mod calls;
pub mod device_code;
pub mod device_memory;
mod gpu;
pub mod gpudirect;
pub mod host_memory;
pub mod idle_poller;
pub mod in_flight;
pub mod monitor;
pub mod objects;

pub use calls::Calls;
pub use gpu::{
    Completion, CuResult, DeviceBytes, Gate, Gpu, KernelTimer, NativeLocation, NativeSource, OutputSink,
    OutputStream, Registration, Shared,
};
pub use host_memory::Staging;
pub use idle_poller::IdlePoller;
pub use objects::dispatch;
