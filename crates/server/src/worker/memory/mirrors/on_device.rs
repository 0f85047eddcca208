//! A mirror in memory of a device, which this process has only by copies.
//!
//! What both ends agreed on is kept as a hash of each block: a copy of all of it would take as much memory of
//! the host, and comparing would read both.

use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, DeviceBytes, Gpu, Staging};
use causeway_memory::copy_threads;
use core::ops::Range;
use std::sync::OnceLock;
use twox_hash::XxHash3_128;

/// Bytes that have a hash of their own. A block that has changed travels as a whole.
pub(super) const BLOCK: usize = 64 << 10;

/// The memory is looked through in pieces of this size: one copy takes as long as a few of the small ones.
pub(super) const PIECE: usize = 4 << 20;

/// Threads that hash a piece: then it takes as long as the device's copy of it.
const HASHERS: usize = 4;

/// Bytes of what is said of a block that was agreed on: whether it is known, and its hash.
const HASH_BYTES: usize = 1 + size_of::<u128>();

/// Memory of a device.
pub(super) struct OnDevice {
    memory: Box<dyn DeviceBytes>,
    bytes: usize,
    /// The hash of each block that both ends agreed on; nothing where the client has written to a part of it.
    agreed: Vec<Option<u128>>,
}

impl OnDevice {
    /// Memory of `bytes` zeros.
    pub(super) fn zeroed(memory: Box<dyn DeviceBytes>, bytes: usize) -> Self {
        let whole = hash(&[0; BLOCK]);
        let mut agreed = vec![Some(whole); bytes.div_ceil(BLOCK)];
        if let Some(last) = agreed.last_mut()
            && !bytes.is_multiple_of(BLOCK)
        {
            *last = Some(hash(&[0; BLOCK][..bytes % BLOCK]));
        }
        Self { memory, bytes, agreed }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Copies from the memory. When that fails, the device may still write to `into`: it must be set aside.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
        self.memory.read(at, into)
    }

    /// What both ends agreed on in a part that begins at a block and has these bytes; nothing where it is these.
    pub(super) fn agreed_hashes(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let agreed = &self.agreed[at / BLOCK..(at + bytes.len()).div_ceil(BLOCK)];
        if bytes.chunks(BLOCK).zip(agreed).all(|(block, agreed)| *agreed == Some(hash(block))) {
            return Vec::new();
        }
        let encode = |agreed: &Option<u128>| {
            let (is_known, hash) = (u8::from(agreed.is_some()), agreed.unwrap_or_default().to_le_bytes());
            [&[is_known][..], &hash].concat()
        };
        agreed.iter().flat_map(encode).collect()
    }

    /// Puts in bytes, which lie inside the memory, with what was agreed on, as [`Self::agreed_hashes`] says.
    pub(super) fn set_with_hashes(&mut self, at: usize, bytes: &[u8], agreed: &[u8]) -> CuResult<()> {
        let blocks = bytes.len().div_ceil(BLOCK);
        let is_valid = at.is_multiple_of(BLOCK) && [0, blocks * HASH_BYTES].contains(&agreed.len());
        let is_whole = bytes.len().is_multiple_of(BLOCK) || at + bytes.len() == self.bytes;
        if !is_valid || !is_whole {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.memory.write(at, bytes)?;
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            let agreed = agreed.get(number * HASH_BYTES..).and_then(|rest| rest.first_chunk::<HASH_BYTES>());
            self.agreed[at / BLOCK + number] = match agreed {
                None => Some(hash(block)),
                Some([0, ..]) => None,
                Some([_, hash @ ..]) => Some(u128::from_le_bytes(*hash)),
            };
        }
        Ok(())
    }

    /// Puts in the client's bytes from `at` on, which lie inside the memory.
    ///
    /// The program may touch managed memory only while no kernel runs (`concurrentManagedAccess` is 0), so
    /// what was agreed on is what is there, and whole lines may be written.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) -> CuResult<()> {
        self.memory.write(at, bytes)?;
        for number in at / BLOCK..(at + bytes.len()).div_ceil(BLOCK) {
            let block = self.block(number);
            let is_whole = at <= block.start && block.end <= at + bytes.len();
            self.agreed[number] = is_whole.then(|| hash(&bytes[block.start - at..block.end - at]));
        }
        Ok(())
    }

    /// Calls `found` with the place and the bytes of each block of a part that is not what both ends agreed
    /// on, and agrees on it. Returns where it stopped: at the end of the part's last block, or earlier once
    /// `found` has said `false`.
    pub(super) fn find(
        &mut self,
        gpu: &dyn Gpu,
        part: Range<usize>,
        mut found: impl FnMut(usize, &[u8]) -> bool,
    ) -> CuResult<usize> {
        let mut start = part.start / BLOCK * BLOCK;
        let end = part.end.next_multiple_of(BLOCK).min(self.bytes);
        let mut copy = gpu.staging(PIECE.min(end - start))?;
        while start < end {
            let length = copy.len().min(end - start);
            copy = self.read_or_set_aside(gpu, copy, start, length)?;
            let piece = &copy.as_slice()[..length];
            for (index, (bytes, hash)) in piece.chunks(BLOCK).zip(hashes(piece)).enumerate() {
                let number = start / BLOCK + index;
                if self.agreed[number] == Some(hash) {
                    continue;
                }
                self.agreed[number] = Some(hash);
                if !found(number * BLOCK, bytes) {
                    return Ok(self.block(number).end);
                }
            }
            start += length;
        }
        Ok(end)
    }

    fn read_or_set_aside(
        &self,
        gpu: &dyn Gpu,
        mut copy: Staging,
        start: usize,
        length: usize,
    ) -> CuResult<Staging> {
        match self.memory.read(start, &mut copy.as_mut_slice()[..length]) {
            Ok(()) => Ok(copy),
            Err(error) => {
                // The device may still write to it.
                let bytes = copy.len();
                gpu.set_aside().add(copy, bytes);
                Err(error)
            }
        }
    }

    fn block(&self, number: usize) -> Range<usize> {
        number * BLOCK..((number + 1) * BLOCK).min(self.bytes)
    }
}

fn hash(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// The hashes of the blocks of a piece.
fn hashes(piece: &[u8]) -> impl Iterator<Item = u128> {
    let blocks: Vec<&[u8]> = piece.chunks(BLOCK).collect();
    let hashes: Vec<OnceLock<u128>> = blocks.iter().map(|_| OnceLock::new()).collect();
    copy_threads::share(blocks.len(), HASHERS, piece.as_ptr(), |number| {
        hashes[number].get_or_init(|| hash(blocks[number]));
    });
    hashes.into_iter().map(|hash| hash.into_inner().expect("each part of shared work has been done"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use causeway_gpu_software::{Options, SoftwareGpu};
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Memory of a device that is not there.
    #[derive(Clone)]
    pub(in super::super) struct Bytes(pub Arc<Mutex<Vec<u8>>>);

    impl DeviceBytes for Bytes {
        fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
            into.copy_from_slice(&self.0.lock()[at..at + into.len()]);
            Ok(())
        }

        fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
            self.0.lock()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    const SIZE: usize = 2 * PIECE + BLOCK + 100;

    fn memory() -> (SoftwareGpu, Bytes, OnDevice) {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let bytes = Bytes(Arc::new(Mutex::new(vec![0; SIZE])));
        let memory = OnDevice::zeroed(Box::new(bytes.clone()), SIZE);
        (gpu, bytes, memory)
    }

    fn changed(gpu: &SoftwareGpu, memory: &mut OnDevice) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        let stopped = memory.find(gpu, 0..SIZE, |at, bytes| {
            all.push(at..at + bytes.len());
            true
        });
        assert_eq!(stopped, Ok(SIZE));
        all
    }

    #[test]
    fn blocks_that_kernels_have_changed_are_found_once() {
        let (gpu, bytes, mut memory) = memory();
        assert_eq!(changed(&gpu, &mut memory), []);
        for at in [3, PIECE - 1, PIECE, SIZE - 1] {
            bytes.0.lock()[at] = 9;
        }
        let (last, end) = (2 * PIECE / BLOCK + 1, SIZE);
        let expected = [0..BLOCK, PIECE - BLOCK..PIECE, PIECE..PIECE + BLOCK, last * BLOCK..end];
        assert_eq!(changed(&gpu, &mut memory), expected);
        assert_eq!(changed(&gpu, &mut memory), []);
    }

    #[test]
    fn what_the_client_writes_is_no_change_of_kernels_if_it_fills_the_block() {
        let (gpu, bytes, mut memory) = memory();
        memory.put(BLOCK - 1, &vec![5; BLOCK + 2]).unwrap();
        assert!(bytes.0.lock()[BLOCK - 1..2 * BLOCK + 1].iter().all(|byte| *byte == 5));
        // Of the blocks at both ends only a part is known.
        assert_eq!(changed(&gpu, &mut memory), [0..BLOCK, 2 * BLOCK..3 * BLOCK]);
        assert_eq!(changed(&gpu, &mut memory), []);
        memory.put(SIZE - 100, &[7; 100]).unwrap();
        assert_eq!(changed(&gpu, &mut memory), []);
    }

    #[test]
    fn a_search_stops_behind_the_block_and_goes_on_from_there() {
        let (gpu, bytes, mut memory) = memory();
        bytes.0.lock().fill(1);
        let (mut from, mut found) = (0, 0);
        while from < SIZE {
            let stopped = memory.find(&gpu, from..SIZE, |at, bytes| {
                assert_eq!(at, from);
                found += bytes.len();
                false
            });
            from = stopped.unwrap();
        }
        assert_eq!(found, SIZE);
    }

    #[test]
    fn a_failed_copy_is_an_error() {
        struct Broken;
        impl DeviceBytes for Broken {
            fn read(&self, _: usize, _: &mut [u8]) -> CuResult<()> {
                Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
            }

            fn write(&self, _: usize, _: &[u8]) -> CuResult<()> {
                Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)
            }
        }
        let (gpu, _, _) = memory();
        let mut memory = OnDevice::zeroed(Box::new(Broken), SIZE);
        assert_eq!(memory.find(&gpu, 0..SIZE, |_, _| true), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert_eq!(memory.put(0, &[1]), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    }
}
