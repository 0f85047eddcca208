//! CUDA driver: its loader, pointers, copies, streams.
//!
//! The driver is the `libcuda.so.1` that the program itself has loaded: NVIDIA's, or Causeway's. A process
//! that has loaded none has no memory on a GPU, and nothing is loaded on its behalf. Programs that need a driver all the
//! same (the server, benchmarks, the doctor) open one by [`Library::open`].

mod affinity;
mod copy;
mod copy_context;
mod device;
mod entry_points;
mod events;
mod functions;
mod gpudirect;
mod kernel;
mod locks;
mod lookup;
mod memory;
mod order;
mod pinning;
mod scope;
mod sharing;

pub use crate::lookup::forbid_setup_calls;
pub use affinity::{bind_thread, current_node, follow, node_of, node_of_rdma_device};
pub use copy::{PendingCopy, copy};
pub use copy_context::copy_from_host;
pub use device::{
    Abilities, GpuAccess, GpuNumber, abilities, current_device, gpu_access, gpu_model, gpu_number,
    has_native_atomics, is_under_mps, pci_address,
};
pub use entry_points::{CudaError, Library, LibraryError, NOT_SUPPORTED};
pub use functions::Driver;
pub use gpudirect::{dma_buf, flush_writes};
pub use kernel::{Function, context_of_stream, is_captured};
pub use memory::DeviceMemory;
pub use order::{synchronize, synchronize_both, synchronize_call};
pub use pinning::FOR_ALL_DEVICES;
pub use pinning::{Pinned, PinnedWord};
pub use scope::Scope;
pub use sharing::{Bounce, IPC_HANDLE_BYTES, Mapping, Opened, export, export_unordered, ipc_handle};
