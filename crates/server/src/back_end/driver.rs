//! NVIDIA's driver, if this build holds its bindings (feature `driver`).

use std::sync::Arc;

use causeway_gpu::Gpu;
use causeway_gpu::monitor::Monitor;

#[cfg(not(feature = "driver"))]
use super::built_in::{BackEnd, NotBuiltIn};

/// Starts the driver.
///
/// # Errors
/// A sentence that says why not.
#[cfg(feature = "driver")]
pub fn gpu() -> Result<Arc<dyn Gpu>, String> {
    match causeway_gpu_driver::Driver::load() {
        Ok(gpu) => Ok(Arc::new(gpu)),
        Err(error) => Err(error.to_string()),
    }
}

/// Starts NVIDIA's management library.
///
/// # Errors
/// A sentence that says why not.
#[cfg(feature = "driver")]
pub fn monitor() -> Result<Arc<dyn Monitor>, String> {
    match causeway_gpu_driver::monitor::Library::load() {
        Ok(library) => Ok(Arc::new(library)),
        Err(error) => Err(error.to_string()),
    }
}

/// Says that this build has no such back end.
///
/// # Errors
/// Always.
#[cfg(not(feature = "driver"))]
pub fn gpu() -> Result<Arc<dyn Gpu>, String> {
    Err(NotBuiltIn(BackEnd::Driver).to_string())
}

/// Says that this build has no such back end.
///
/// # Errors
/// Always.
#[cfg(not(feature = "driver"))]
pub fn monitor() -> Result<Arc<dyn Monitor>, String> {
    Err(NotBuiltIn(BackEnd::Driver).to_string())
}
