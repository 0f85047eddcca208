//! Copies between memory of any kind, in order with the program's own.

use super::entry_points::CudaError;
use super::functions::Driver;
use super::memory::DeviceMemory;
use super::order::synchronize;
use super::scope::Scope;

/// Copies between two places, one of which at least is on a GPU, and waits. What the calling thread has had copied before, by calls
/// that have returned, comes first.
///
/// # Safety
/// Both addresses are valid for so many bytes, or addresses of a GPU.
///
/// # Errors
/// What the driver says, or that it knows neither of the two.
pub unsafe fn copy(to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
    let driver = Driver::loaded().ok_or(CudaError::UNKNOWN_MEMORY)?;
    let ends = [to, from].map(|address| DeviceMemory::at(driver, address));
    ends.iter().flatten().for_each(|memory| synchronize(driver, memory));
    let memory = ends.into_iter().flatten().next().ok_or(CudaError::UNKNOWN_MEMORY)?;
    let scope = Scope::of(driver, &memory)?;
    // SAFETY: both addresses are valid for `bytes` bytes, by what the caller guarantees.
    unsafe { scope.copy(to, from, bytes) }
}
