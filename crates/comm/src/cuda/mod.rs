//! What does the CUDA driver know of a pointer, and how does it move bytes?
//!
//! The driver is the `libcuda.so.1` that the program itself has loaded: NVIDIA's, or Causeway's. A process
//! that has loaded none has no memory on a GPU, and nothing is loaded on its behalf.

mod copy;
mod error;
mod functions;
mod memory;
mod order;
mod scope;
mod sharing;

pub use copy::copy;
pub use error::CudaError;
pub use functions::Driver;
pub use memory::{DeviceMemory, GpuNumber, current_device, gpu_model, gpu_number, reaches};
pub use order::settle;
pub use scope::Scope;
pub use sharing::{Bounce, IPC_HANDLE_BYTES, Mapping, Opened, export, ipc_handle};
