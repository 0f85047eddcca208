//! A mirror in memory of a device, which this process has only by copies.
//!
//! What both ends agreed on is kept as a hash of each block: a copy of all of it would take as much memory of
//! the host, and comparing would read both. The device computes the hashes where it can; otherwise the memory is
//! copied and hashed here.

use causeway_api::sys::CUresult;
use causeway_gpu::block_hash::{MAX_BYTES, hash};
use causeway_gpu::{CuResult, DeviceBytes, Gpu, Staging};
use causeway_memory::copy_threads;
use core::ops::Range;
use std::sync::OnceLock;

/// A block has a hash of its own, and travels as a whole when it has changed.
pub(super) use causeway_gpu::block_hash::BLOCK;

/// Memory that is copied is looked through in pieces of this size: one copy takes as long as a few of the small ones.
pub(super) const PIECE: usize = 4 << 20;

/// Threads that hash a piece: then it takes as long as the device's copy of it.
const HASHERS: usize = 4;

/// Bytes of what is said of a block that was agreed on: whether it is known, and its hash.
const HASH_BYTES: usize = 1 + size_of::<u128>();

/// Where changed blocks go. They are added in order; `false` says that no more may be added.
pub(super) trait ChangedBlocks {
    /// Whether the next block's bytes are wanted, of this length.
    fn needs_bytes(&self, length: usize) -> bool;
    /// Adds a block with its bytes.
    fn add(&mut self, at: usize, bytes: &[u8]) -> bool;
    /// Adds a block whose bytes the client reads, which agrees on them.
    fn add_unread(&mut self, block: Range<usize>) -> bool;
}

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

    /// Copies from the memory what the client gets, and agrees on it. When that fails, the device may still write to `into`:
    /// it must be set aside.
    pub(super) fn read_and_agree(&mut self, at: usize, into: &mut [u8]) -> CuResult<()> {
        self.memory.read(at, into)?;
        // Only of whole blocks it is known what both ends have.
        let (first, end) = (at.next_multiple_of(BLOCK), at + into.len());
        let end = if end == self.bytes { end } else { end / BLOCK * BLOCK };
        if first < end {
            let agreed = self.agreed[first / BLOCK..].iter_mut();
            agreed.zip(hashes(&into[first - at..end - at])).for_each(|(agreed, hash)| *agreed = Some(hash));
        }
        Ok(())
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

    /// Adds each block of a part that is not what both ends agreed on to `changed`, and agrees on it. Returns where it
    /// stopped: at the end of the part's last block, or earlier, once `changed` has said `false` or when much has been
    /// copied.
    pub(super) fn find(
        &mut self,
        gpu: &dyn Gpu,
        part: Range<usize>,
        changed: &mut impl ChangedBlocks,
    ) -> CuResult<usize> {
        let start = part.start / BLOCK * BLOCK;
        let end = part.end.next_multiple_of(BLOCK).min(self.bytes);
        let hashed_end = end.min(start + MAX_BYTES);
        let (hashes, copied) = match self.memory.block_hashes(start, hashed_end - start) {
            Some(computed) => (computed?, None),
            None => {
                let length = PIECE.min(end - start);
                let copy = self.read_or_set_aside(gpu, gpu.staging(length)?, start, length)?;
                (hashes(&copy.as_slice()[..length]).collect(), Some(copy))
            }
        };
        let first = start / BLOCK;
        let mut of_block = None;
        for (number, found) in (first..).zip(&hashes) {
            if self.agreed[number] == Some(*found) {
                continue;
            }
            let block = self.block(number);
            let has_capacity = if !changed.needs_bytes(block.len()) {
                self.agreed[number] = None;
                changed.add_unread(block.clone())
            } else if let Some(copy) = &copied {
                self.agreed[number] = Some(*found);
                changed.add(block.start, &copy.as_slice()[block.start - start..block.end - start])
            } else {
                let unused = match of_block.take() {
                    Some(copy) => copy,
                    None => gpu.staging(BLOCK)?,
                };
                let copy = of_block.insert(self.read_or_set_aside(gpu, unused, block.start, block.len())?);
                let bytes = &copy.as_slice()[..block.len()];
                // Kernels may have changed it again: what is agreed on is what travels.
                self.agreed[number] = Some(hash(bytes));
                changed.add(block.start, bytes)
            };
            if !has_capacity {
                return Ok(block.end);
            }
        }
        Ok(self.block(first + hashes.len() - 1).end)
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

    /// Takes so many blocks, with or without their bytes.
    struct Blocks {
        found: Vec<Range<usize>>,
        capacity: usize,
        needs_bytes: bool,
    }

    impl ChangedBlocks for Blocks {
        fn needs_bytes(&self, _: usize) -> bool {
            self.needs_bytes
        }

        fn add(&mut self, at: usize, bytes: &[u8]) -> bool {
            self.found.push(at..at + bytes.len());
            self.found.len() < self.capacity
        }

        fn add_unread(&mut self, block: Range<usize>) -> bool {
            self.found.push(block);
            self.found.len() < self.capacity
        }
    }

    fn changed(gpu: &SoftwareGpu, memory: &mut OnDevice) -> Vec<Range<usize>> {
        let mut blocks = Blocks { found: Vec::new(), capacity: usize::MAX, needs_bytes: true };
        let mut from = 0;
        while from < SIZE {
            from = memory.find(gpu, from..SIZE, &mut blocks).unwrap();
        }
        blocks.found
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
            let mut blocks = Blocks { found: Vec::new(), capacity: 1, needs_bytes: from % 2 == 0 };
            let stopped = memory.find(&gpu, from..SIZE, &mut blocks).unwrap();
            assert_eq!(blocks.found, [from..stopped]);
            found += stopped - from;
            from = stopped;
        }
        assert_eq!(found, SIZE);
    }

    /// Memory of a device that computes hashes, now and then.
    struct Hashing {
        bytes: Bytes,
        calls: core::cell::Cell<usize>,
        copied: Arc<Mutex<usize>>,
    }

    impl DeviceBytes for Hashing {
        fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
            *self.copied.lock() += into.len();
            self.bytes.read(at, into)
        }

        fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
            self.bytes.write(at, bytes)
        }

        fn block_hashes(&self, at: usize, bytes: usize) -> Option<CuResult<Vec<u128>>> {
            self.calls.set(self.calls.get() + 1);
            let is_busy = self.calls.get().is_multiple_of(3);
            (!is_busy).then(|| Ok(self.bytes.0.lock()[at..at + bytes].chunks(BLOCK).map(hash).collect()))
        }
    }

    #[test]
    fn hashes_of_the_device_find_what_copies_find() {
        let (gpu, bytes, _) = memory();
        let copied = Arc::new(Mutex::new(0));
        let hashing =
            Hashing { bytes: bytes.clone(), calls: core::cell::Cell::default(), copied: Arc::clone(&copied) };
        let mut memory = OnDevice::zeroed(Box::new(hashing), SIZE);
        assert_eq!(changed(&gpu, &mut memory), []);
        assert_eq!(*copied.lock(), 0, "what has not changed stays where it is");
        for round in 1..30_usize {
            let offsets = [round * 7919 % SIZE, SIZE - 1, round * 104_729 % SIZE];
            offsets.iter().for_each(|at| bytes.0.lock()[*at] ^= round as u8);
            memory.put(BLOCK * (round % 8), &vec![round as u8; BLOCK]).unwrap();
            let written = round % 8 * BLOCK..(round % 8 + 1) * BLOCK;
            let mut expected: Vec<_> = offsets
                .iter()
                .filter(|at| !written.contains(at))
                .map(|at| at / BLOCK * BLOCK..(at / BLOCK * BLOCK + BLOCK).min(SIZE))
                .collect();
            expected.sort_by_key(|block| block.start);
            expected.dedup();
            assert_eq!(changed(&gpu, &mut memory), expected, "round {round}");
        }
    }

    #[test]
    fn what_the_client_has_read_is_what_is_agreed_on() {
        let (gpu, bytes, mut memory) = memory();
        let mut unread = || {
            let mut blocks = Blocks { found: Vec::new(), capacity: usize::MAX, needs_bytes: false };
            let stopped = memory.find(&gpu, 0..PIECE, &mut blocks);
            assert_eq!(stopped, Ok(PIECE));
            blocks.found
        };
        bytes.0.lock()[5] = 1;
        assert_eq!(unread(), [0..BLOCK]);
        // A kernel that still runs writes before the client reads, and again what was found.
        bytes.0.lock()[5] = 2;
        let mut read = vec![0; BLOCK];
        memory.read_and_agree(0, &mut read).unwrap();
        bytes.0.lock()[5] = 1;
        let changed_again = changed(&gpu, &mut memory);
        assert_eq!((read[5], changed_again), (2, vec![0..BLOCK]));
        bytes.0.lock()[2 * BLOCK] = 1;
        memory.read_and_agree(2 * BLOCK - 1, &mut [0; 5]).unwrap();
        assert_eq!(changed(&gpu, &mut memory), [2 * BLOCK..3 * BLOCK], "a part of a block is not the block");
        bytes.0.lock()[SIZE - 1] = 7;
        memory.read_and_agree(SIZE / BLOCK * BLOCK, &mut [0; SIZE % BLOCK]).unwrap();
        assert_eq!(changed(&gpu, &mut memory), []);
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
        let mut blocks = Blocks { found: Vec::new(), capacity: usize::MAX, needs_bytes: true };
        assert_eq!(memory.find(&gpu, 0..SIZE, &mut blocks), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert_eq!(memory.put(0, &[1]), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    }
}
