//! Memory that a device may still use: only a completion returns it.
//!
//! What is handed to a copy becomes [`InFlight`], and comes out of that again when a completion of the back
//! end says that the device is through with it. Where none can come, because the back end refuses to say when
//! work is done or the work's context has failed, the memory is *set aside*: never freed and never used
//! again, since the device may read or write it at any time. Dropping what is in flight sets it aside, so
//! that no path on which something fails can release it by mistake.

use crate::host_memory::SetAside;
use crate::{Completion, CuResult, Gpu, NativeLocation, Staging};
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use std::sync::Arc;

/// With so many bytes set aside no further copy is started. A context that has failed is asked about before
/// anything is given to it, so this much is only reached where the driver takes copies and refuses events
/// again and again.
const MAX_RESERVED_BYTES: usize = 1 << 30;

/// Host memory that a device reads.
///
/// # Safety
/// Until the value is dropped, `bytes` bytes at `address` must be readable, also when the value is moved or
/// forgotten.
pub unsafe trait HostMemory: Send + 'static {
    /// The first byte.
    fn address(&self) -> *const u8;
    /// How many there are.
    fn bytes(&self) -> usize;
}

/// Host memory that a device writes.
///
/// # Safety
/// As for [`HostMemory`], with bytes that are writable and that nothing else uses until the value is dropped.
pub unsafe trait HostMemoryMut: HostMemory {
    /// The first byte.
    fn address_mut(&self) -> *mut u8;
}

// SAFETY: a `Staging` owns its memory until it is dropped.
unsafe impl HostMemory for Staging {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

// SAFETY: the value owns its memory until it is dropped; its bytes are accessed through it alone.
unsafe impl HostMemoryMut for Staging {
    fn address_mut(&self) -> *mut u8 {
        self.as_ptr()
    }
}

/// Whether a stream may be given memory.
fn permit(gpu: &dyn Gpu, stream: Native<Stream>) -> CuResult<()> {
    let set_aside = gpu.set_aside();
    if set_aside.bytes() == 0 {
        return Ok(());
    }
    // What a failed context gets would be set aside, too, with every copy that the program tries.
    match gpu.stream_query(stream) {
        Ok(()) | Err(CUresult::CUDA_ERROR_NOT_READY) => {}
        Err(failed) => return Err(failed),
    }
    if set_aside.bytes() < MAX_RESERVED_BYTES { Ok(()) } else { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) }
}

/// Which work uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Stream(Native<Stream>),
    Context,
}

/// Memory, or what keeps memory, that a device may use until work is done. Dropping it sets the memory aside.
///
/// Work in a context's default stream, and in a context as a whole, is that of the current context: the one
/// in which the value was made must be current when a completion is asked for.
#[must_use = "memory that is dropped while it is in flight is set aside for good"]
pub struct InFlight<T> {
    /// Nothing once it was released.
    memory: Option<T>,
    bytes: usize,
    user: User,
    set_aside: Arc<SetAside>,
}

impl<M: HostMemory> InFlight<M> {
    /// Starts a copy of `source` into `destination`, in stream order.
    ///
    /// # Errors
    /// When the sizes differ or the back end refuses. How far it has come then is not known, so the memory is
    /// free when what the stream holds is done.
    pub fn copy_to_device(
        gpu: &dyn Gpu,
        destination: &NativeLocation,
        source: M,
        stream: Native<Stream>,
    ) -> CuResult<Self> {
        let address = source.address();
        Self::start(gpu, destination, source, stream, || {
            // SAFETY: the memory has as many bytes as the place, and stays until a completion asked for
            // later.
            unsafe { gpu.start_copy_to_device(destination, address, stream) }
        })
    }

    fn start(
        gpu: &dyn Gpu,
        location: &NativeLocation,
        memory: M,
        stream: Native<Stream>,
        start: impl FnOnce() -> CuResult<()>,
    ) -> CuResult<Self> {
        let bytes = memory.bytes();
        if location.bytes() != Some(bytes as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        permit(gpu, stream)?;
        let in_flight = Self::in_stream(gpu, memory, bytes, stream);
        if bytes > 0
            && let Err(error) = start()
        {
            // Where this is refused, too, the memory is set aside.
            let _ = in_flight.drop_after_a_while(gpu);
            return Err(error);
        }
        Ok(in_flight)
    }
}

impl<M: HostMemoryMut> InFlight<M> {
    /// Starts a copy of `source` into `destination`, in stream order.
    ///
    /// # Errors
    /// As for [`InFlight::copy_to_device`].
    pub fn copy_from_device(
        gpu: &dyn Gpu,
        source: &NativeLocation,
        destination: M,
        stream: Native<Stream>,
    ) -> CuResult<Self> {
        let address = destination.address_mut();
        Self::start(gpu, source, destination, stream, || {
            // SAFETY: the memory has as many bytes as the place, and stays until a completion asked for
            // later.
            unsafe { gpu.start_copy_from_device(source, address, stream) }
        })
    }
}

impl<T: Send + 'static> InFlight<T> {
    /// What the work that `stream` holds uses; it counts for `bytes`.
    pub fn in_stream(gpu: &dyn Gpu, memory: T, bytes: usize, stream: Native<Stream>) -> Self {
        Self::new(gpu, memory, bytes, User::Stream(stream))
    }

    /// What work in any stream of the current context uses; it counts for `bytes`.
    pub fn in_context(gpu: &dyn Gpu, memory: T, bytes: usize) -> Self {
        Self::new(gpu, memory, bytes, User::Context)
    }

    fn new(gpu: &dyn Gpu, memory: T, bytes: usize, user: User) -> Self {
        Self { memory: Some(memory), bytes, user, set_aside: Arc::clone(gpu.set_aside()) }
    }

    /// How many bytes are in flight.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// This and something else of the same stream, for one completion.
    pub fn and<U: Send + 'static>(mut self, mut other: InFlight<U>) -> InFlight<(T, U)> {
        assert_eq!(self.user, other.user, "one completion is about one stream");
        let memory = self.memory.take().zip(other.memory.take());
        InFlight {
            memory,
            bytes: self.bytes + other.bytes,
            user: self.user,
            set_aside: Arc::clone(&self.set_aside),
        }
    }

    /// Calls `then` with the memory when everything that its stream, or context, holds now is done; with the
    /// error that ended the work otherwise.
    ///
    /// # Errors
    /// When the back end refuses; `then` is not called and the memory is set aside.
    pub fn after(self, gpu: &dyn Gpu, then: impl FnOnce(CuResult<T>) + Send + 'static) -> CuResult<()> {
        let user = self.user;
        let done: Completion = Box::new(move |outcome| then(self.end(outcome)));
        match user {
            User::Stream(stream) => gpu.after(stream, done),
            User::Context => gpu.after_context(done),
        }
    }

    /// Drops the memory some time after everything that its stream, or context, holds now is done.
    ///
    /// # Errors
    /// As for [`InFlight::after`].
    pub fn drop_after_a_while(self, gpu: &dyn Gpu) -> CuResult<()> {
        let user = self.user;
        let done: Completion = Box::new(move |outcome| drop(self.end(outcome)));
        match user {
            User::Stream(stream) => gpu.after_a_while(stream, done),
            User::Context => gpu.after_context(done),
        }
    }

    /// The work has ended.
    fn end(mut self, outcome: CuResult<()>) -> CuResult<T> {
        let memory = self.memory.take().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        let Err(error) = outcome else { return Ok(memory) };
        self.set_aside.release_after_error(memory, self.bytes, error);
        Err(error)
    }
}

impl<T> InFlight<Vec<T>> {
    /// Adds something of the same stream, for one completion.
    pub fn push(&mut self, mut other: InFlight<T>) {
        assert_eq!(self.user, other.user, "one completion is about one stream");
        if let (Some(memory), Some(added)) = (&mut self.memory, other.memory.take()) {
            memory.push(added);
            self.bytes += other.bytes;
        }
    }

    /// How many things are in flight.
    pub fn count(&self) -> usize {
        self.memory.as_ref().map_or(0, Vec::len)
    }
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.set_aside.add(memory, self.bytes);
        }
    }
}
