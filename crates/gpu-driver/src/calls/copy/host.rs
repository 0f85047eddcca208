//! Copies between two places in host memory.
//!
//! Whatever form of its copy calls is used, the driver makes such a copy on the calling thread, and waits
//! until the stream gets there (twenty milliseconds behind a kernel of twenty, for `cuMemcpyHtoDAsync`,
//! `DtoHAsync`, `DtoDAsync`, `cuMemcpyAsync`, `2DAsync` and `PeerAsync` alike; H100, driver 580.159.04,
//! 2026-11-24). The thread that issues commands must not wait: what the stream stands still for may be what
//! this thread is to do next. So a host function makes the copy when the stream gets to it.

use super::shape::{Pitch, Shape, Start};
use crate::driver::Driver;
use crate::registered::HostRanges;
use causeway_api::handle::{Native, Stream};
use causeway_gpu::CuResult;
use core::ffi::c_void;

/// One end of a copy of rows and slices.
#[derive(Clone, Copy)]
struct End {
    start: *mut u8,
    /// Bytes from a row to the next, and from a slice to the next.
    row: usize,
    slice: usize,
}

/// A copy within host memory.
struct HostCopy {
    to: End,
    from: End,
    width: usize,
    rows: usize,
    depth: usize,
}

// SAFETY: whoever makes the copy vouches for both places until the stream has passed it, on whatever thread.
unsafe impl Send for HostCopy {}

impl HostCopy {
    /// The copy, if both ends are in host memory.
    fn between(ranges: &HostRanges, shape: Shape, to: Start, from: Start) -> Option<Self> {
        let (width, [rows, depth], to_pitch, from_pitch) = match shape {
            Shape::Nothing => return None,
            Shape::Linear { bytes } => {
                let pitch = Pitch { row: bytes, rows: 1 };
                (bytes, [1, 1], pitch, pitch)
            }
            Shape::Rows { width, rows, to_pitch, from_pitch } => {
                let pitch = |row| Pitch { row, rows };
                (width, [rows, 1], pitch(to_pitch), pitch(from_pitch))
            }
            Shape::Slices { width, rows, depth, to, from } => (width, [rows, depth], to, from),
        };
        let end = |start: Start, pitch: Pitch| {
            let slice = pitch.row.checked_mul(pitch.rows)?;
            let last_row = pitch.row.checked_mul(rows.checked_sub(1)?)?;
            let last_slice = slice.checked_mul(depth.checked_sub(1)?)?;
            let bytes = last_slice.checked_add(last_row)?.checked_add(width)?;
            let start = match start {
                Start::Host(memory) => memory,
                // The peer's numbers: all that the copy touches must lie in the range.
                Start::Device(address) => ranges.find(address, bytes)?,
                Start::Array { .. } => return None,
            };
            Some(End { start, row: pitch.row, slice })
        };
        Some(Self { to: end(to, to_pitch)?, from: end(from, from_pitch)?, width, rows, depth })
    }

    /// # Safety
    /// Both places must be valid for the copy; they may overlap.
    unsafe fn carry_out(&self) {
        for slice in 0..self.depth {
            for row in 0..self.rows {
                let at = |end: &End| end.start.wrapping_add(slice * end.slice + row * end.row);
                // SAFETY: the caller vouches that both places are valid for rows of `width` bytes; they may
                // overlap.
                unsafe { at(&self.to).copy_from(at(&self.from), self.width) };
            }
        }
    }
}

/// What the driver calls when the stream gets to the copy.
unsafe extern "C" fn call_copy(data: *mut c_void) {
    // SAFETY: `data` is the box that `copy_within_host` gave to the driver, which calls this once.
    let copy = unsafe { Box::from_raw(data.cast::<HostCopy>()) };
    // SAFETY: whoever asked for the copy vouches for both places until the stream has passed it.
    unsafe { copy.carry_out() };
}

impl Driver {
    /// Makes a copy whose ends are both in host memory; whether that is so.
    ///
    /// # Safety
    /// Host memory must be valid for the shape's bytes until the copy is done.
    pub(crate) unsafe fn copy_within_host(
        &self,
        shape: Shape,
        to: Start,
        from: Start,
        stream: Native<Stream>,
    ) -> CuResult<bool> {
        let Some(copy) = HostCopy::between(&self.host_ranges, shape, to, from) else { return Ok(false) };
        let data = Box::into_raw(Box::new(copy));
        // SAFETY: the callback takes over the box.
        let called =
            unsafe { self.functions.cuLaunchHostFunc(stream.as_raw(), Some(call_copy), data.cast()) };
        // SAFETY: where the driver refused the callback, the box is still ours.
        called.inspect_err(|_| drop(unsafe { Box::from_raw(data) }))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_host_memory_with_all_its_bytes_is_copied_here() {
        let mut memory: Vec<u8> = (0..100).collect();
        let ranges = HostRanges::default();
        assert!(ranges.find(5000, 1).is_none());
        ranges.add(5000, 100, memory.as_mut_ptr());
        let mut staging = [0_u8; 12];
        let host = Start::Host(staging.as_mut_ptr());
        // Three rows of four bytes, ten apart in the range.
        let rows = Shape::Rows { width: 4, rows: 3, to_pitch: 4, from_pitch: 10 };
        let copy = HostCopy::between(&ranges, rows, host, Start::Device(5076)).unwrap();
        // SAFETY: both places are local and large enough.
        unsafe { copy.carry_out() };
        assert_eq!(staging, [76, 77, 78, 79, 86, 87, 88, 89, 96, 97, 98, 99]);
        let is_here = |shape, from| HostCopy::between(&ranges, shape, host, Start::Device(from)).is_some();
        assert!(!is_here(rows, 5077), "its last byte is behind the range");
        assert!(!is_here(rows, 4999) && !is_here(Shape::Nothing, 5000));
        assert!(is_here(Shape::Linear { bytes: 100 }, 5000) && !is_here(Shape::Linear { bytes: 101 }, 5000));
        let pitch = Pitch { row: usize::MAX, rows: 2 };
        let huge = Shape::Slices { width: 1, rows: 2, depth: 2, to: pitch, from: pitch };
        assert!(!is_here(huge, 5000), "sizes that add up to more than there is are refused");
        ranges.remove(5000);
        assert!(!is_here(Shape::Linear { bytes: 1 }, 5000));
    }

    #[test]
    fn slices_are_copied_between_places_with_gaps() {
        let mut memory: Vec<u8> = (0..64).collect();
        let ranges = HostRanges::default();
        ranges.add(0, 64, memory.as_mut_ptr());
        let (to, from) = (Pitch { row: 2, rows: 2 }, Pitch { row: 4, rows: 4 });
        let shape = Shape::Slices { width: 2, rows: 2, depth: 2, to, from };
        let copy = HostCopy::between(&ranges, shape, Start::Device(32), Start::Device(0)).unwrap();
        // SAFETY: both places are local and large enough.
        unsafe { copy.carry_out() };
        assert_eq!(memory[32..40], [0, 1, 4, 5, 16, 17, 20, 21]);
    }
}
