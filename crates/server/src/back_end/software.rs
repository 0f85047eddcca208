//! The software GPU, if this build holds it (feature `software`).

use std::sync::Arc;

use causeway_gpu::Gpu;
use causeway_gpu::monitor::Monitor;

#[cfg(not(feature = "software"))]
use super::built_in::{BackEnd, NotBuiltIn};
use super::error::BackEndError;

/// Starts a software GPU as the environment says.
///
/// # Errors
/// A sentence that says why not.
#[cfg(feature = "software")]
pub fn gpu() -> Result<Arc<dyn Gpu>, String> {
    match causeway_gpu_software::SoftwareGpu::new() {
        Ok(gpu) => Ok(Arc::new(gpu)),
        Err(error) => Err(error.to_string()),
    }
}

/// What the software GPU of this environment knows of itself.
///
/// # Errors
/// A sentence that says why there is none.
#[cfg(feature = "software")]
pub fn monitor() -> Result<Arc<dyn Monitor>, String> {
    match causeway_gpu_software::monitor::Software::new() {
        Ok(monitor) => Ok(Arc::new(monitor)),
        Err(error) => Err(error.to_string()),
    }
}

/// The UUIDs of the devices of this environment by their numbers; none where it describes none.
#[cfg(feature = "software")]
pub fn uuids() -> Vec<String> {
    let options = causeway_gpu_software::Options::from_environment();
    options.map(|options| options.uuids()).unwrap_or_default()
}

/// None, as this build has no such back end.
#[cfg(not(feature = "software"))]
pub fn uuids() -> Vec<String> {
    Vec::new()
}

/// Whether the environment describes a software GPU that there can be.
///
/// # Errors
/// What is wrong with it.
#[cfg(feature = "software")]
pub fn check_environment() -> Result<(), BackEndError> {
    causeway_gpu_software::Options::from_environment()?;
    Ok(())
}

/// Says that this build has no such back end.
///
/// # Errors
/// Always.
#[cfg(not(feature = "software"))]
pub fn gpu() -> Result<Arc<dyn Gpu>, String> {
    Err(NotBuiltIn(BackEnd::Software).to_string())
}

/// Says that this build has no such back end.
///
/// # Errors
/// Always.
#[cfg(not(feature = "software"))]
pub fn monitor() -> Result<Arc<dyn Monitor>, String> {
    Err(NotBuiltIn(BackEnd::Software).to_string())
}

/// Says that this build has no such back end.
///
/// # Errors
/// Always.
#[cfg(not(feature = "software"))]
pub fn check_environment() -> Result<(), BackEndError> {
    Err(NotBuiltIn(BackEnd::Software).into())
}
