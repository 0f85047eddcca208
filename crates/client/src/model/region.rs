//! The sides of a copy: memory of the program or of a device, of up to three dimensions.

use crate::model::host_memory;
use causeway_api::types::{DeviceLocation, Region};
use causeway_memory::copy_threads;
use causeway_pipeline::{Piece, Shape};

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Device memory, or a part of an array.
    Device(DeviceLocation),
    /// The program's memory.
    Host(HostRegion),
}

impl Endpoint {
    /// Whether the region is the same kind of memory.
    pub fn is_like(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

/// Memory of the program of up to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRegion {
    /// Its first byte.
    pub address: *mut u8,
    /// Bytes from a row to the next.
    pub row_pitch: usize,
    /// Bytes from a slice to the next.
    pub slice_pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

// SAFETY: an address of the program, used only by code that says why it may.
unsafe impl Send for HostRegion {}

impl HostRegion {
    /// `length` bytes in a row.
    pub fn linear(address: *mut u8, length: usize) -> Self {
        Self { address, row_pitch: length, slice_pitch: length, width: length, height: 1, depth: 1 }
    }

    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    /// Whether its bytes lie one after the other without gaps.
    pub fn is_contiguous(&self) -> bool {
        (self.height <= 1 || self.row_pitch == self.width)
            && (self.depth <= 1 || self.slice_pitch == self.width * self.height)
    }

    /// The addresses from its first byte to behind its last.
    pub fn span(&self) -> (usize, usize) {
        let start = self.address as usize;
        let length = (self.depth - 1) * self.slice_pitch + (self.height - 1) * self.row_pitch + self.width;
        (start, start.saturating_add(length))
    }

    /// The same shape at an address of a device.
    pub fn on_device(&self, address: u64) -> Region {
        Region {
            address,
            row_pitch: self.row_pitch as u64,
            slice_pitch: self.slice_pitch as u64,
            width: self.width as u64,
            height: self.height as u64,
            depth: self.depth as u64,
        }
    }

    /// Whether all of it is pinned.
    pub fn is_pinned(&self) -> bool {
        let (start, end) = self.span();
        host_memory::is_pinned(start, end)
    }

    /// The part of it that a piece of a copy of its size has.
    pub fn part(&self, piece: &Piece) -> Self {
        let [x, y, z] = piece.at;
        let address = self.address.wrapping_add(z * self.slice_pitch + y * self.row_pitch + x);
        let Shape { width, height, depth } = piece.shape;
        Self { address, width, height, depth, ..*self }
    }

    fn rows(&self) -> usize {
        self.height * self.depth
    }

    /// Where a row begins, counted through all slices.
    fn row(&self, number: usize) -> *mut u8 {
        let (slice, row) = (number / self.height, number % self.height);
        self.address.wrapping_add(slice * self.slice_pitch + row * self.row_pitch)
    }

    /// Its bytes one after the other.
    ///
    /// # Safety
    /// The region must be readable.
    pub unsafe fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        // SAFETY: the caller has the region readable; `packed` has room for its bytes.
        unsafe { self.pack_into(&mut packed, 1) };
        packed
    }

    /// Puts its bytes one after the other in place of what `packed` holds, with up to so many threads.
    ///
    /// # Safety
    /// The region must be readable.
    pub unsafe fn pack_into(&self, packed: &mut Vec<u8>, threads: usize) {
        packed.clear();
        packed.reserve(self.bytes());
        let start = Shared(packed.as_mut_ptr());
        self.share_rows(threads, |number| {
            let to = start.get().wrapping_add(number * self.width);
            // SAFETY: each row lies in the region, and its place in the room that was reserved; they do not
            // overlap.
            unsafe { to.copy_from_nonoverlapping(self.row(number), self.width) };
        });
        // SAFETY: as many bytes were reserved, and all of them have been written.
        unsafe { packed.set_len(self.bytes()) };
    }

    /// Takes as many bytes from `packed` as it has, row by row, with up to so many threads.
    ///
    /// # Safety
    /// The region must be writable.
    pub unsafe fn unpack(&self, packed: &[u8], threads: usize) {
        if self.width == 0 || self.rows() == 0 {
            return;
        }
        self.share_rows(threads, |number| {
            let at = number * self.width;
            if let Some(bytes) = packed.get(at..packed.len().min(at + self.width)) {
                // SAFETY: each row lies in the region, and `bytes` is not longer than a row.
                unsafe { self.row(number).copy_from(bytes.as_ptr(), bytes.len()) };
            }
        });
    }

    /// Does something for each row, with several threads where there are many bytes.
    fn share_rows(&self, threads: usize, work: impl Fn(usize) + Sync) {
        let rows = self.rows();
        let at_once = (copy_threads::MAX_SEGMENT_BYTES / self.width.max(1)).max(1);
        copy_threads::share(rows.div_ceil(at_once), threads, self.address, |part| {
            (part * at_once..rows.min((part + 1) * at_once)).for_each(&work);
        });
    }
}

/// An address that several threads write behind, each to a place of its own.
struct Shared(*mut u8);

// SAFETY: it only gives out the address; who writes behind it says why it may.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

// SAFETY: only the address is shared; whoever reads or writes behind it says why it may.
unsafe impl Sync for HostRegion {}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_pipeline::cut;

    #[test]
    fn rows_and_slices_are_packed_and_unpacked() {
        let mut memory: Vec<u8> = (0..48).collect();
        let region = HostRegion {
            address: memory.as_mut_ptr(),
            row_pitch: 6,
            slice_pitch: 24,
            width: 2,
            height: 3,
            depth: 2,
        };
        assert!(!region.is_contiguous() && HostRegion::linear(region.address, 48).is_contiguous());
        assert_eq!(region.span().1 - region.span().0, 24 + 12 + 2);
        let whole = [0, 1, 6, 7, 12, 13, 24, 25, 30, 31, 36, 37];
        // SAFETY: the region lies within `memory`.
        unsafe {
            assert_eq!(region.pack(), whole);
            // Pieces, one after the other, are the whole.
            for max_bytes in 1..14 {
                let pieces = cut(Shape { width: 2, height: 3, depth: 2 }, max_bytes, 1);
                let packed: Vec<u8> = pieces.flat_map(|piece| region.part(&piece).pack()).collect();
                assert_eq!(packed, whole);
            }
            region.unpack(&[99; 4], 1);
        }
        assert_eq!((memory[0], memory[1], memory[6], memory[7], memory[12]), (99, 99, 99, 99, 12));
    }

    #[test]
    fn many_rows_are_shared_by_threads() {
        let (width, pitch, height) = (1000, 1024, 1500);
        let mut from: Vec<u8> = (0..pitch * height).map(|at| (at % 253) as u8).collect();
        let mut to = vec![0; from.len()];
        let region = |memory: &mut Vec<u8>| HostRegion {
            address: memory.as_mut_ptr(),
            row_pitch: pitch,
            slice_pitch: pitch * height,
            width,
            height,
            depth: 1,
        };
        let mut packed = vec![7; 3];
        // SAFETY: both regions lie within their vectors.
        unsafe {
            region(&mut from).pack_into(&mut packed, 4);
            region(&mut to).unpack(&packed, 4);
        }
        for (to, from) in to.chunks(pitch).zip(from.chunks(pitch)) {
            assert!(to[..width] == from[..width] && to[width..].iter().all(|byte| *byte == 0));
        }
    }
}
