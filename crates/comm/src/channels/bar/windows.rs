//! Cache of BAR mappings, and copies through them.

use std::sync::Arc;

use super::error::BarError;
use super::usable::mapping_method;
use super::window::{Direction, Window};
use crate::cuda::{DeviceMemory, Scope};

/// Parts of memory that stay mapped, at most. Their bytes take up room in the BAR, which is small on many
/// GPUs.
const MAX_WINDOWS: usize = 16;

/// Bytes of a part of an allocation, which are mapped together.
const PART: u64 = 4 << 20;

/// Mapped parts of allocations.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// The one that was used last stands at the end.
    known: Vec<Known>,
}

/// A part that is mapped.
#[derive(Debug)]
struct Known {
    /// The number of the buffer. It is never given again, so that a part may be useless, and is never another
    /// buffer's.
    buffer: u64,
    /// Where the buffer begins.
    start: u64,
    window: Arc<Window>,
}

impl Windows {
    /// Copies memory of a GPU to memory of the host, with the processor.
    ///
    /// # Safety
    /// `to` is valid for so many bytes of the host's memory, which no other code uses, and nobody writes the
    /// others.
    pub(crate) unsafe fn read(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        from: u64,
        to: u64,
        bytes: usize,
    ) -> Result<(), BarError> {
        // SAFETY: as promised by the caller.
        unsafe { self.copy(scope, memory, from, to, bytes, Direction::FromGpu) }
    }

    /// Copies memory of the host to memory of a GPU, with the processor.
    ///
    /// # Safety
    /// `from` is valid for so many bytes of the host's memory, which nobody writes, and nobody uses the
    /// others.
    pub(crate) unsafe fn write(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<(), BarError> {
        // SAFETY: as promised by the caller.
        unsafe { self.copy(scope, memory, to, from, bytes, Direction::ToGpu) }
    }

    /// # Safety
    /// As of the two above.
    unsafe fn copy(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        on_gpu: u64,
        on_host: u64,
        bytes: usize,
        direction: Direction,
    ) -> Result<(), BarError> {
        if !memory.has(on_gpu, bytes as u64) {
            return Err(BarError::Outside);
        }
        let mut done = 0;
        while done < bytes {
            let at = on_gpu + done as u64;
            // At most PART.
            let left = (PART - (at - memory.start) % PART) as usize;
            let some = left.min(bytes - done);
            let host = (on_host + done as u64) as *mut u8;
            // SAFETY: as promised by the caller.
            unsafe { self.part(scope, memory, at)?.copy(at, host, some, direction) }?;
            done += some;
        }
        Ok(())
    }

    /// The window in which the part of an allocation lies that has an address, if it is mapped.
    pub(super) fn find(&mut self, memory: &DeviceMemory, address: u64) -> Option<Arc<Window>> {
        let is_it =
            |known: &Known| known.buffer == memory.buffer && known.window.mapped_at(address, 1).is_some();
        let known = self.known.remove(self.known.iter().position(is_it)?);
        let window = Arc::clone(&known.window);
        self.known.push(known);
        Some(window)
    }

    /// The same, which is mapped if it is not.
    pub(super) fn part(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Result<Arc<Window>, BarError> {
        if let Some(window) = self.find(memory, address) {
            return Ok(window);
        }
        let window = Arc::new(self.open(scope, memory, address)?);
        let (buffer, start) = (memory.buffer, memory.start);
        self.known.push(Known { buffer, start, window: Arc::clone(&window) });
        Ok(window)
    }

    fn open(
        &mut self,
        scope: &Scope<'static>,
        memory: &DeviceMemory,
        address: u64,
    ) -> Result<Window, BarError> {
        let driver = scope.driver();
        // Memory that the program has freed goes before more is mapped, and then what was not used for
        // longest.
        let lives = |known: &Known| {
            DeviceMemory::at(driver, known.start).is_some_and(|there| there.buffer == known.buffer)
        };
        self.known.retain(lives);
        if self.known.len() == MAX_WINDOWS {
            self.known.remove(0);
        }
        let mapping_method = mapping_method(driver, memory).map_err(BarError::Unusable)?;
        let start = memory.start + (address - memory.start) / PART * PART;
        let bytes = PART.min(memory.start + memory.bytes - start);
        Window::new(mapping_method, scope, memory, start, bytes).or_else(|error| {
            // The BAR may be full.
            if self.known.is_empty() {
                return Err(error);
            }
            self.known.clear();
            Window::new(mapping_method, scope, memory, start, bytes)
        })
    }
}
