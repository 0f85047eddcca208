//! Swapping: the bytes of all live allocations go to a file, and come back to the same addresses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::AddressSpace;
use super::swapped_out::{Extent, SwappedOut};

/// Pieces of memory that are written as one, or left out where they hold zeros only.
const PIECE: usize = 64 << 10;

impl AddressSpace {
    /// Writes the bytes of all allocations to `file` from `offset` on, and gives their memory back to the system. Memory
    /// that others have mapped here, in the windows, is left as it is.
    ///
    /// # Safety
    /// Until [`Self::swap_in`] has returned, no kernel runs, and memory of this space is not used, allocated or freed.
    ///
    /// # Errors
    /// When the file takes no more; the memory is as it was then.
    pub unsafe fn swap_out(&self, file: &File, offset: u64) -> io::Result<SwappedOut> {
        let ranges: Vec<(u64, u64)> = {
            let allocations = self.allocations.read();
            let own = allocations.live.iter().filter(|(_, live)| !live.is_shared);
            own.map(|(start, live)| (*start, live.pages)).collect()
        };
        let (mut extents, mut offset): (Vec<Extent>, u64) = (Vec::new(), offset);
        for &(start, pages) in &ranges {
            // SAFETY: a live allocation is mapped readable, and is not written to, for which the caller vouches.
            let memory = unsafe { core::slice::from_raw_parts(start as *const u8, pages as usize) };
            for (piece, address) in memory.chunks(PIECE).zip((start..).step_by(PIECE)) {
                if piece.iter().all(|byte| *byte == 0) {
                    continue;
                }
                file.write_all_at(piece, offset)?;
                match extents.last_mut().filter(|last| last.address + last.bytes as u64 == address) {
                    Some(last) => last.bytes += piece.len(),
                    None => extents.push(Extent { address, bytes: piece.len(), offset }),
                }
                offset += piece.len() as u64;
            }
        }
        for (start, pages) in ranges {
            // SAFETY: whole pages of a live allocation, whose bytes are in the file; the mapping stays.
            unsafe { libc::madvise(start as *mut libc::c_void, pages as usize, libc::MADV_DONTNEED) };
        }
        Ok(SwappedOut { extents, end: offset })
    }

    /// Brings back what [`Self::swap_out`] has written.
    ///
    /// # Safety
    /// As there; `swapped` is what that has returned last, of this space and file.
    ///
    /// # Errors
    /// When the file cannot be read; the memory's bytes are lost then.
    pub unsafe fn swap_in(&self, file: &File, swapped: &SwappedOut) -> io::Result<()> {
        for Extent { address, bytes, offset } in &swapped.extents {
            // SAFETY: it was a part of a live allocation and still is, and nothing else uses it.
            let memory = unsafe { core::slice::from_raw_parts_mut(*address as *mut u8, *bytes) };
            file.read_exact_at(memory, *offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    /// Pages of a range that are in memory.
    fn resident(start: u64, bytes: u64) -> usize {
        let mut pages = vec![0_u8; bytes as usize / 4096];
        // SAFETY: the vector has a byte for each page.
        let status = unsafe { libc::mincore(start as *mut libc::c_void, bytes as usize, pages.as_mut_ptr()) };
        assert_eq!(status, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn memory_leaves_the_system_and_every_byte_comes_back() {
        let space = AddressSpace::new(1 << 30).unwrap();
        let (first, second) =
            (space.allocate(5 << 20, 256).unwrap(), space.allocate((1 << 20) + 5, 256).unwrap());
        let at_place = space.host_window().start;
        space.allocate_at(at_place, 8192).unwrap();
        // Never written, as most of a pool is.
        let untouched = space.allocate(256 << 20, 256).unwrap();
        let bytes = |seed: u8, count: usize| -> Vec<u8> {
            (0..count).map(|index| (index / 3 + index / 70_001) as u8 ^ seed).collect()
        };
        let contents =
            [(first, bytes(1, 5 << 20)), (second, bytes(2, (1 << 20) + 5)), (at_place, bytes(3, 8192))];
        let shared = tempfile::tempfile().unwrap();
        shared.set_len(4096).unwrap();
        // SAFETY: the file is as long and this test's own.
        unsafe { space.share_at(at_place + 8192, 4096, shared.as_fd(), 0) }.unwrap();
        space.write(at_place + 8192, b"theirs").unwrap();
        for round in 0..3 {
            for (address, bytes) in &contents {
                space.write(*address, bytes).unwrap();
                space.write(*address + 7, &[round]).unwrap();
            }
            let file = tempfile::tempfile().unwrap();
            // SAFETY: nothing else uses the space.
            let swapped = unsafe { space.swap_out(&file, 4096) }.unwrap();
            assert_eq!((resident(first, 5 << 20), resident(at_place, 8192)), (0, 0));
            let used = file.metadata().unwrap();
            assert!(used.size() == swapped.end() && used.size() < 8 << 20, "{}", used.size());
            let mut theirs = [0; 6];
            shared.read_exact_at(&mut theirs, 0).unwrap();
            assert_eq!(&theirs, b"theirs");
            // SAFETY: nothing else uses the space.
            unsafe { space.swap_in(&file, &swapped) }.unwrap();
            for (address, bytes) in &contents {
                let (mut expected, mut found) = (bytes.clone(), vec![0; bytes.len()]);
                expected[7] = round;
                space.read(*address, &mut found).unwrap();
                assert!(found == expected, "round {round}");
            }
            let mut zeros = [1; 100];
            space.read(untouched + (100 << 20), &mut zeros).unwrap();
            assert_eq!(zeros, [0; 100]);
        }
    }

    #[test]
    fn memory_that_no_file_takes_stays() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(4096, 256).unwrap();
        space.write(start, b"still there").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        // SAFETY: nothing else uses the space.
        assert!(unsafe { space.swap_out(&full, 0) }.is_err());
        let mut bytes = [0; 11];
        space.read(start, &mut bytes).unwrap();
        assert_eq!(&bytes, b"still there");
    }
}
