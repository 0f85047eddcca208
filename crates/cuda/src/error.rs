//! What goes wrong in the driver.

use thiserror::Error;

/// A call of the driver that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{call} ended with CUDA error {code}")]
pub struct CudaError {
    /// The call.
    pub call: &'static str,
    /// `CUresult`.
    pub code: i32,
}

impl CudaError {
    /// The driver does not know an address that was memory on a GPU: it has been freed.
    pub const UNKNOWN_MEMORY: Self = Self { call: "cuPointerGetAttribute", code: 1 };
}
