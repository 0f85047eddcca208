//! Eager copies: short messages that the processor copies out of a GPU's memory, and into it. No call of the
//! GPU's driver is needed for them, which takes longer than such a message, unless the BAR is slow (`cost`).

use std::sync::Arc;
use std::time::Instant;

use super::cost::{CopyCosts, CopyMethod};
use super::window::{Direction, Window, Windows, usable};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::locks::{Mutex, MutexGuard, rank};

/// The most bytes that are read. Each read waits for the bus.
const MAX_READ_BYTES: u64 = 256;

/// The most bytes that are written. Writes are gathered, and not waited for: they take less than a copy by
/// the driver as long as a message is short at all.
const MAX_WRITE_BYTES: u64 = 4096;

/// Copies of a buffer before it is mapped, which takes as long as many of them. A program that sends from new
/// memory each time would map it each time.
const COPIES_BEFORE_MAPPING: u8 = 3;

/// Buffers that are counted.
const MAX_BUFFERS: usize = 64;

/// A buffer that is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unmapped {
    /// So many copies were asked for.
    Counted(u8),
    /// It cannot be.
    Refused,
}

/// The processor's copies of a process.
#[derive(Debug, Default)]
pub(crate) struct EagerCopies {
    state: Mutex<rank::Leaf, State>,
}

#[derive(Debug, Default)]
struct State {
    windows: Windows,
    /// The one that was used last stands at the end.
    unmapped: Vec<(u64, Unmapped)>,
    costs: CopyCosts,
}

/// One copy: the GPU's end, and the two addresses.
#[derive(Debug)]
struct EagerCopy {
    /// Where the GPU's end is mapped, if the processor copies.
    window: Option<Arc<Window>>,
    direction: Direction,
    on_gpu: u64,
    on_host: u64,
    bytes: usize,
}

impl EagerCopies {
    fn state(&self) -> MutexGuard<'_, rank::Leaf, State> {
        self.state.lock()
    }

    /// Whether the processor reads a message out of a GPU's memory, which is mapped for that from its fourth
    /// message on, and read for as long as the driver takes no less time.
    pub(crate) fn reads(
        &self,
        driver: &'static Driver,
        memory: &DeviceMemory,
        address: u64,
        bytes: u64,
    ) -> bool {
        self.window(driver, memory, address, bytes, Direction::FromGpu, true).is_some()
            && self.state().costs.admits(Direction::FromGpu, bytes)
    }

    /// Copies between a GPU and any memory, and waits: by the processor where both are short and mapped, and
    /// that takes no longer than the driver. Says whether it was by the processor. The program's own copies that have
    /// returned come first.
    ///
    /// # Safety
    /// Both addresses are valid for so many bytes, or addresses of a GPU. No other code writes what is read, or
    /// uses what is written.
    ///
    /// # Errors
    /// What the driver says, or that it knows neither of the two.
    pub(crate) unsafe fn copy(
        &self,
        driver: &'static Driver,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<bool, CudaError> {
        let Some(copy) = self.prepare(driver, to, from, bytes as u64) else {
            // SAFETY: both addresses are valid for `bytes` bytes, by what the caller guarantees.
            return unsafe { cuda::copy(to, from, bytes) }.map(|()| false);
        };
        let (direction, start) = (copy.direction, Instant::now());
        // SAFETY: the host's end is valid for `bytes` bytes, and no other code writes what is read or uses what is
        // written, by what the caller guarantees.
        let is_eager = unsafe { copy.make() };
        let by_driver = if is_eager {
            None
        } else {
            let start = Instant::now();
            // SAFETY: both addresses are valid for `bytes` bytes, by what the caller guarantees.
            unsafe { cuda::copy(to, from, bytes) }?;
            Some(start.elapsed())
        };
        let (method, took) = match by_driver {
            Some(took) => (CopyMethod::Driver, took),
            None => (CopyMethod::Processor, start.elapsed()),
        };
        self.state().costs.observe(direction, bytes as u64, method, took);
        Ok(is_eager)
    }

    /// A short copy between a GPU and the host; none where it is another one. Only memory that is written is mapped for it:
    /// a sender has [asked](Self::reads).
    fn prepare(&self, driver: &'static Driver, to: u64, from: u64, bytes: u64) -> Option<EagerCopy> {
        if bytes > MAX_READ_BYTES.max(MAX_WRITE_BYTES) {
            return None;
        }
        let (memory, direction, on_gpu, on_host) =
            match (DeviceMemory::at(driver, to), DeviceMemory::at(driver, from)) {
                (Some(memory), None) => (memory, Direction::ToGpu, to, from),
                (None, Some(memory)) => (memory, Direction::FromGpu, from, to),
                _ => return None,
            };
        let writes = direction == Direction::ToGpu;
        let window = self.window(driver, &memory, on_gpu, bytes, direction, writes);
        let window = window.filter(|_| {
            let costs = &mut self.state().costs;
            if writes { costs.admits(direction, bytes) } else { costs.is_preferred(direction, bytes) }
        });
        if window.is_some() {
            cuda::synchronize(driver, &memory);
        }
        Some(EagerCopy { window, direction, on_gpu, on_host, bytes: usize::try_from(bytes).ok()? })
    }

    fn window(
        &self,
        driver: &'static Driver,
        memory: &DeviceMemory,
        address: u64,
        bytes: u64,
        direction: Direction,
        may_map: bool,
    ) -> Option<Arc<Window>> {
        let max_bytes = if direction == Direction::ToGpu { MAX_WRITE_BYTES } else { MAX_READ_BYTES };
        if bytes > max_bytes || !memory.has(address, bytes) || usable(driver, memory).is_err() {
            return None;
        }
        let mut state = self.state();
        let window = match state.windows.find(memory, address) {
            Some(window) => window,
            None if may_map && state.may_map(memory.buffer) => {
                let scope = Scope::of(driver, memory).ok()?;
                match state.windows.part(&scope, memory, address) {
                    Ok(window) => window,
                    Err(_) => {
                        state.refuse(memory.buffer);
                        return None;
                    }
                }
            }
            None => return None,
        };
        // One that lies in two parts is left to the driver.
        window.mapped_at(address, usize::try_from(bytes).ok()?).map(|_| window)
    }
}

impl State {
    /// Whether a buffer is to be mapped: it has been used before, and was not refused.
    fn may_map(&mut self, buffer: u64) -> bool {
        let known = match self.unmapped.iter().position(|(known, _)| *known == buffer) {
            Some(at) => self.unmapped.remove(at).1,
            None => Unmapped::Counted(0),
        };
        let (now, may_map) = match known {
            Unmapped::Counted(count) if count < COPIES_BEFORE_MAPPING => {
                (Unmapped::Counted(count + 1), false)
            }
            other => (other, other != Unmapped::Refused),
        };
        if self.unmapped.len() == MAX_BUFFERS {
            self.unmapped.remove(0);
        }
        self.unmapped.push((buffer, now));
        may_map
    }

    fn refuse(&mut self, buffer: u64) {
        for (known, state) in &mut self.unmapped {
            if *known == buffer {
                *state = Unmapped::Refused;
            }
        }
    }
}

impl EagerCopy {
    /// Has the processor make the copy, and says whether it has.
    ///
    /// # Safety
    /// The host's memory is valid for so many bytes. No other code writes what is read, or uses what is
    /// written.
    unsafe fn make(self) -> bool {
        let Self { window, direction, on_gpu, on_host, bytes } = self;
        // SAFETY: the caller keeps `bytes` bytes of the host's memory valid, and no other code writes what is
        // read or uses what is written.
        let copied =
            |window: Arc<Window>| unsafe { window.copy(on_gpu, on_host as *mut u8, bytes, direction) };
        window.is_some_and(|window| copied(window).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_mapped_when_it_has_been_used_and_not_again_where_that_fails() {
        let mut state = State::default();
        let maps = |state: &mut State, buffer| (0..10).map(|_| state.may_map(buffer)).collect::<Vec<_>>();
        let mapped = maps(&mut state, 1);
        assert_eq!(mapped.iter().position(|may_map| *may_map), Some(usize::from(COPIES_BEFORE_MAPPING)));
        assert!(mapped.iter().skip(usize::from(COPIES_BEFORE_MAPPING)).all(|may_map| *may_map));
        state.refuse(1);
        assert!(!maps(&mut state, 1).contains(&true));
        assert!(maps(&mut state, 2).contains(&true));
    }

    #[test]
    fn counts_are_bounded() {
        let mut state = State::default();
        for buffer in 0..1000 {
            state.may_map(buffer);
        }
        assert_eq!(state.unmapped.len(), MAX_BUFFERS);
    }
}
