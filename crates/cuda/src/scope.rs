//! Copies that leave the calling thread as it was: its context, and a capture that it has begun.

use core::ffi::{c_int, c_void};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::OnceLock;

use super::entry_points::{CudaError, Library};
use super::events;
use super::functions::Driver;
use super::memory::DeviceMemory;
use crate::entry_points;
use crate::locks::{Mutex, MutexGuard, rank};
use crate::lookup::check_setup_call;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_int = 2;

/// While it lives, the calling thread has a certain context, and may make calls that a capture would forbid.
#[derive(Debug)]
pub struct Scope<'a> {
    pub(super) driver: &'a Driver,
    pub(super) context: u64,
    life: u64,
    mode: c_int,
}

impl<'a> Scope<'a> {
    /// With the context of an allocation.
    ///
    /// # Errors
    /// When the context is gone.
    pub fn of(driver: &'a Driver, memory: &DeviceMemory) -> Result<Self, CudaError> {
        Self::of_context(driver, Self::context_of(driver, memory)?)
    }

    /// The context of an allocation, which does not become the calling thread's.
    ///
    /// # Errors
    /// As of [`of_device`](Self::of_device).
    pub fn context_of(driver: &Driver, memory: &DeviceMemory) -> Result<u64, CudaError> {
        match memory.context {
            0 => primary(driver, memory.device),
            context => Ok(context),
        }
    }

    /// With the primary context of a device. It is retained for good: programs that use the runtime have it
    /// anyway.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn of_device(driver: &'a Driver, device: i32) -> Result<Self, CudaError> {
        Self::of_context(driver, primary(driver, device)?)
    }

    /// With a context.
    ///
    /// # Errors
    /// When it is gone.
    pub fn of_context(driver: &'a Driver, context: u64) -> Result<Self, CudaError> {
        // SAFETY: the driver checks the handle.
        unsafe { driver.push_context(context as *mut c_void) }?;
        let mut mode = RELAXED;
        // SAFETY: reads and writes the mode.
        let exchanged = unsafe { driver.exchange_capture_mode(&raw mut mode) };
        let (life, ended) = life_of(context);
        if let Some(ended) = ended {
            forget(ended);
        }
        let scope = Self { driver, context, life, mode: if exchanged.is_ok() { mode } else { RELAXED } };
        exchanged.map(|()| scope)
    }

    /// Copies between any two places and waits until the bytes are there. The addresses may be of the host
    /// and of any GPU that the context reaches; the driver finds out.
    ///
    /// # Safety
    /// Both addresses are valid for so many bytes, or addresses of a GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        self.in_stream(|stream| {
            // SAFETY: the caller has both addresses valid for `bytes` bytes until this returns, which is
            // after the copy; the stream is this context's.
            unsafe { self.driver.copy_async(to, from, bytes, stream) }
        })
    }

    /// Begins something in a stream of the context that waits for no other, and waits for its end.
    pub(super) fn in_stream(
        &self,
        begin: impl FnOnce(*mut c_void) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let stream = self.stream()? as *mut c_void;
        let started = begin(stream);
        // SAFETY: the stream is this context's.
        let waited = unsafe { self.driver.synchronize_stream(stream) };
        started.and(waited).inspect_err(|_| self.forget_context())
    }

    /// The context's handle.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// A number that no other context of this process has, before or after: another may get the handle, and a
    /// context that is reset keeps it.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The driver's functions.
    pub(super) fn functions(&self) -> &'a Driver {
        self.driver
    }

    /// A stream of the context that waits for no other, and that stands in front of them: a device has few queues for
    /// streams of one priority, and what this library does must not stand behind a kernel that waits for it.
    pub(super) fn stream(&self) -> Result<u64, CudaError> {
        if let Some(stream) = streams().get_or_insert_default().get(&self.life) {
            return Ok(*stream);
        }
        check_setup_call("cuStreamCreateWithPriority");
        let (mut min_priority, mut greatest) = (0, 0);
        // SAFETY: there is room for both.
        unsafe { self.driver.stream_priorities(&raw mut min_priority, &raw mut greatest) }?;
        let mut stream: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the stream.
        unsafe { self.driver.create_stream(&raw mut stream, NON_BLOCKING, greatest) }?;
        streams().get_or_insert_default().insert(self.life, stream as u64);
        Ok(stream as u64)
    }

    /// Makes what so many copies at a time need ([`PendingCopy`](super::PendingCopy)), so that none is made when they begin.
    ///
    /// # Errors
    /// What the driver says.
    pub fn prepare_copies(&self, count: usize) -> Result<(), CudaError> {
        self.stream()?;
        events::reserve(self.driver, self.life, count)
    }

    /// A context that is destroyed takes its stream and events with it, and not every driver says that it was.
    pub(super) fn forget_context(&self) {
        forget(self.life);
    }
}

/// Forgets what is kept for a context that has ended.
fn forget(life: u64) {
    streams().get_or_insert_default().remove(&life);
    events::forget(life);
}

/// The primary context of a device.
fn primary(driver: &Driver, device: i32) -> Result<u64, CudaError> {
    static PRIMARY: Mutex<rank::Leaf, Option<HashMap<i32, u64>>> = Mutex::new(None);
    let mut known = PRIMARY.lock();
    let context = match known.get_or_insert_default().entry(device) {
        Entry::Occupied(context) => *context.get(),
        Entry::Vacant(slot) => {
            let mut context: *mut c_void = core::ptr::null_mut();
            // SAFETY: there is room for the context.
            unsafe { driver.retain_primary(&raw mut context, device) }?;
            *slot.insert(context as u64)
        }
    };
    Ok(context)
}

impl Scope<'static> {
    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.driver
    }
}

/// The stream of each context, by its number (`life`).
fn streams() -> MutexGuard<'static, rank::Leaf, Option<HashMap<u64, u64>>> {
    static STREAMS: Mutex<rank::Leaf, Option<HashMap<u64, u64>>> = Mutex::new(None);
    STREAMS.lock()
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: the mode is one that the driver gave, and the context is the one that was pushed.
        unsafe {
            let _ = self.driver.exchange_capture_mode(&raw mut self.mode);
            let _ = self.driver.pop_context(&raw mut context);
        }
    }
}

entry_points! {
    /// Of drivers since CUDA 12.
    struct Newer {
        context_id: c"cuCtxGetId" (context: *mut c_void, id: *mut u64);
    }
}

/// The lifetime of a context, whose handle does not say: a context that is reset keeps it, and one that is made may get that
/// of one that was destroyed. Streams, events and kernels go with a context all the same, and NVIDIA's driver does not look
/// at whether a stream is one.
///
/// A number that no other context of this process has, before or after; the handle where the driver gives no such
/// number. And the number of the context that had this handle before, when that is seen for the first time.
fn life_of(context: u64) -> (u64, Option<u64>) {
    let mut number = 0;
    // SAFETY: the driver checks the handle, and there is room for the number.
    let found = newer()
        .is_some_and(|newer| unsafe { newer.context_id(context as *mut c_void, &raw mut number) }.is_ok());
    if found { (number, lives().replace(context, number)) } else { (context, None) }
}

fn newer() -> Option<&'static Newer> {
    static FUNCTIONS: OnceLock<Option<Newer>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Newer::load(Library::loaded_driver()?).ok()).as_ref()
}

/// The number of the context that each handle is of.
#[derive(Debug, Default)]
struct Lives(Option<HashMap<u64, u64>>);

impl Lives {
    /// A handle is that of the context with this number. The number that it had before, where that is another one.
    fn replace(&mut self, context: u64, number: u64) -> Option<u64> {
        self.0.get_or_insert_default().insert(context, number).filter(|before| *before != number)
    }
}

fn lives() -> MutexGuard<'static, rank::Leaf, Lives> {
    static LIVES: Mutex<rank::Leaf, Lives> = Mutex::new(Lives(None));
    LIVES.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_is_used_again_is_another_context() {
        let mut lives = Lives::default();
        assert_eq!(
            [(5, 1), (6, 2), (5, 1)].map(|(context, number)| lives.replace(context, number)),
            [None; 3]
        );
        assert_eq!((lives.replace(5, 3), lives.replace(5, 3), lives.replace(6, 2)), (Some(1), None, None));
    }
}
