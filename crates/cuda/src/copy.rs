//! Copies that are waited for at once, and copies in flight with their completion.
//!
//! Those of one context go one behind the other in its stream, so that the oldest is done first.

use core::ffi::{c_int, c_void};

use super::copy_context::copy_from_host;
use super::entry_points::CudaError;
use super::events;
use super::functions::Driver;
use super::memory::DeviceMemory;
use super::order::synchronize;
use super::scope::Scope;

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: c_int = 1;

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;

/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const CONTEXT_IS_DESTROYED: c_int = 709;

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

/// A copy that was begun. One that is dropped goes on, and its end is not waited for.
#[derive(Debug)]
pub struct PendingCopy {
    driver: &'static Driver,
    context: u64,
    life: u64,
    event: u64,
}

impl PendingCopy {
    /// Begins a copy between any two places, as [`Scope::copy`] makes one, behind those that were begun
    /// before.
    ///
    /// # Safety
    /// Both addresses are valid for so many bytes, or addresses of a GPU, until the copy is done.
    ///
    /// # Errors
    /// What the driver says. The bytes may have been copied all the same.
    pub unsafe fn begin(scope: &Scope<'static>, to: u64, from: u64, bytes: usize) -> Result<Self, CudaError> {
        Self::start(scope, |stream| {
            // SAFETY: the caller keeps both addresses valid for `bytes` bytes until the copy is done; the
            // stream is this context's.
            unsafe { scope.driver.copy_async(to, from, bytes, stream as *mut c_void) }
        })
    }

    /// The same for a copy from memory of the host in a scope [of copies](Scope::of_copies): by a copy engine.
    ///
    /// # Safety
    /// As of [`begin`](Self::begin).
    ///
    /// # Errors
    /// As of [`begin`](Self::begin).
    pub unsafe fn begin_from_host(
        scope: &Scope<'static>,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<Self, CudaError> {
        Self::start(scope, |stream| {
            // SAFETY: the caller keeps both addresses valid for `bytes` bytes until the copy is done; the
            // stream is this context's.
            unsafe { copy_from_host(scope.driver, to, from, bytes, stream) }
        })
    }

    fn start(
        scope: &Scope<'static>,
        begin: impl FnOnce(u64) -> Result<(), CudaError>,
    ) -> Result<Self, CudaError> {
        let stream = scope.stream()?;
        begin(stream).and_then(|()| Self::behind(scope, stream)).inspect_err(|error| {
            // What was begun must not go on behind the caller's back.
            // SAFETY: the stream is this context's, or the driver says that it is not.
            let _ = unsafe { scope.driver.synchronize_stream(stream as *mut c_void) };
            // An address that is none says nothing of the context.
            if error.code != INVALID_VALUE {
                scope.forget_context();
            }
        })
    }

    /// A mark behind what the scope's stream has been given so far.
    fn behind(scope: &Scope<'static>, stream: u64) -> Result<Self, CudaError> {
        let (driver, context, life) = (scope.driver, scope.context, scope.life());
        let pending = Self { driver, context, life, event: events::take(driver, life)? };
        // SAFETY: both are of the scope's context; the driver checks them.
        unsafe { driver.record_event(pending.event as *mut c_void, stream as *mut c_void) }.map(|()| pending)
    }

    /// The number of the context in whose stream it goes, see [`Scope::life`].
    pub fn life(&self) -> u64 {
        self.life
    }

    /// Its context, if that is still the one in which it was begun.
    fn scope(&self) -> Result<Scope<'static>, CudaError> {
        let scope = Scope::of_context(self.driver, self.context)?;
        if scope.life() == self.life {
            Ok(scope)
        } else {
            Err(CudaError { call: "cuEventQuery", code: CONTEXT_IS_DESTROYED })
        }
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// When the copy, or work of the program before it, has failed, or the context is gone.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // A thread that captures may not ask otherwise.
        let _scope = self.scope()?;
        // SAFETY: the event is this copy's until it is released.
        match unsafe { self.driver.query_event(self.event as *mut c_void) } {
            Err(CudaError { code: NOT_READY, .. }) => Ok(false),
            known => known.map(|()| true),
        }
    }

    /// Waits until it is done.
    ///
    /// # Errors
    /// As of [`is_done`](Self::is_done).
    pub fn wait(self) -> Result<(), CudaError> {
        let _scope = self.scope()?;
        // SAFETY: the event is this copy's until it is released.
        unsafe { self.driver.synchronize_event(self.event as *mut c_void) }
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        events::release(self.driver, self.life, self.event);
    }
}
