//! Memory of the client that kernels reach: the worker's copies of it, and what has changed in them.
//!
//! A mirror is written to by kernels at any time. What the client has changed is put in as soon as it comes,
//! as on a machine where both write to the same memory; what kernels have changed is looked for when the
//! client asks. Of memory of the host the changed lines are reported; of a device's memory (`on_device`) changed
//! blocks, few of them at once and many as stretches that the client then reads like copies.

pub mod carry;
mod on_device;

use crate::locks::{Mutex, rank};
use causeway_api::calls::mirror_create;
use causeway_api::handle::{Allocation, Context, Handle, Native};
use causeway_api::sys::CUresult;
use causeway_api::types::MemoryRange;
use causeway_gpu::{CuResult, Gpu, Shared, Staging};
use causeway_memory::mirror::{Changes, find_changes, merge_changes, read_changes};
use core::ops::Range;
use on_device::{ChangedBlocks, OnDevice};
use std::collections::{BTreeMap, BTreeSet};

/// A reply with more changes than this ends, and the client asks again.
const MAX_CHANGES: usize = 1 << 20;

/// Blocks of device memory travel in the reply up to so many bytes.
const MAX_BLOCKS: usize = 256 << 10;

/// A reply that names more bytes than this in stretches ends, so that the client reads them while more are
/// looked for.
const MAX_DIRTY_RANGE_BYTES: u64 = 64 << 20;

/// The longest part of a mirror that the client reads at a time.
pub const MAX_READ_BYTES: usize = on_device::PIECE;

/// Memory of this process is compared in pieces of this size; others use the mirrors in between.
const COMPARED_PIECE: usize = 4 << 20;

/// Mirrors of fewer bytes are looked through in less time than another thread is called to do so.
const FEW: usize = 512 << 10;

struct Mirror {
    context: Handle<Context>,
    memory: Memory,
}

enum Memory {
    /// Memory of this process.
    Here {
        memory: Staging,
        /// What both ends last agreed on.
        base: Vec<u8>,
    },
    OnDevice(OnDevice),
}

/// What kernels have changed.
#[derive(Default)]
pub struct Found {
    /// Where the next search begins, 0 for nowhere.
    pub next: u64,
    /// Changed bytes.
    pub changes: Changes,
    /// Changed memory whose bytes the client has to read.
    pub ranges: Vec<MemoryRange>,
}

/// The mirrors of a session, by their addresses on the device.
#[derive(Default)]
pub struct Mirrors {
    table: Mutex<rank::Leaf, Table>,
}

/// The mirrors, by address, and which of them are looked through for changes: all but those that no kernel can
/// use yet, of which the client says so.
#[derive(Default)]
struct Table {
    mirrors: BTreeMap<u64, Mirror>,
    searched: BTreeSet<u64>,
}

impl Table {
    fn insert(&mut self, address: u64, mirror: Mirror) {
        self.mirrors.insert(address, mirror);
        self.searched.insert(address);
    }

    /// The mirrors that are looked through.
    fn searched(&self) -> impl Iterator<Item = &Mirror> {
        self.searched.iter().filter_map(|address| self.mirrors.get(address))
    }
}

/// Whether no mirror has one of `bytes` addresses.
fn is_free(table: &Table, address: u64, bytes: usize) -> bool {
    let overlaps = |(start, mirror): (&u64, &Mirror)| {
        address < start + mirror.len() as u64 && *start < address.saturating_add(bytes as u64)
    };
    !table.mirrors.iter().any(overlaps)
}

impl Mirrors {
    /// Makes a mirror, which belongs to the current context: that is `context`.
    pub fn create(&self, gpu: &dyn Gpu, context: Handle<Context>, request: &mirror_create) -> CuResult<u64> {
        let (address, bytes) = (request.address, request.size);
        let mut table = self.table.lock();
        if bytes == 0 || address != 0 && !is_free(&table, address, bytes) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (address, memory) = gpu.shared_memory(address, bytes, request.managed != 0)?;
        let memory = match memory {
            Shared::Here(memory) => Memory::Here { memory, base: zeroed(bytes)? },
            Shared::OnDevice(memory) => Memory::OnDevice(OnDevice::zeroed(memory, bytes)),
        };
        table.insert(address, Mirror { context, memory });
        Ok(address)
    }

    /// Takes all memory of an allocation of the host, of `bytes`, as a mirror that changes name by `address`.
    pub fn create_of_allocation(
        &self,
        gpu: &dyn Gpu,
        allocation: Native<Allocation>,
        address: u64,
        bytes: usize,
    ) -> CuResult<()> {
        let mut table = self.table.lock();
        if bytes == 0 || address == 0 || !is_free(&table, address, bytes) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let memory = Memory::Here { memory: gpu.allocation_memory(allocation, bytes)?, base: zeroed(bytes)? };
        table.insert(address, Mirror { context: Handle::NULL, memory });
        Ok(())
    }

    /// Takes memory of the back end as a mirror, if it is not one already.
    pub fn adopt(&self, address: u64, memory: Staging) -> CuResult<()> {
        let base = zeroed(memory.len())?;
        let mirror = Mirror { context: Handle::NULL, memory: Memory::Here { memory, base } };
        let mut table = self.table.lock();
        if !table.mirrors.contains_key(&address) {
            table.insert(address, mirror);
        }
        Ok(())
    }

    /// Takes a mirror out, and says how many bytes it has; the device must not use it any more when it is
    /// dropped.
    pub fn remove(&self, address: u64) -> CuResult<(impl Send + use<>, usize)> {
        let mut table = self.table.lock();
        let mirror = table.mirrors.remove(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        table.searched.remove(&address);
        drop(table);
        let bytes = mirror.len();
        Ok((mirror, bytes))
    }

    /// Takes the mirrors of a context out, which is about to end.
    pub fn end_context(&self, context: Handle<Context>) {
        let Table { mirrors, searched } = &mut *self.table.lock();
        mirrors.retain(|_, mirror| mirror.context != context);
        searched.retain(|address| mirrors.contains_key(address));
    }

    /// Looks for changes in mirrors from now on, or not until it is said again: no kernel uses them.
    pub fn set_searched(&self, addresses: &[u64], is_searched: bool) -> CuResult<()> {
        let mut table = self.table.lock();
        if addresses.iter().any(|address| !table.mirrors.contains_key(address)) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        for address in addresses {
            if is_searched {
                table.searched.insert(*address);
            } else {
                table.searched.remove(address);
            }
        }
        Ok(())
    }

    /// Puts in what the client has changed.
    pub fn write(&self, changes: &[u8]) -> CuResult<()> {
        let mut table = self.table.lock();
        let mut outcome = Ok(());
        let read = read_changes(changes, |address, bytes| {
            let put = match table.mirrors.range_mut(..=address).next_back() {
                Some((start, mirror)) => mirror.put((address - start) as usize, bytes),
                None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            };
            outcome = outcome.and(put);
        });
        read.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE).and(outcome)
    }

    /// Whether there is little to look through.
    pub fn are_few(&self) -> bool {
        self.table.lock().searched().map(Mirror::len).sum::<usize>() <= FEW
    }

    /// Whether a mirror may differ from what both ends agreed on. It is found out for little memory of the host
    /// alone, which nobody uses at this moment: whoever calls this may hold up other work. Nothing is agreed
    /// on, so changes that are on their way from the client lose nothing.
    pub fn may_differ(&self) -> bool {
        let Some(table) = self.table.try_lock() else { return true };
        let mut bytes = 0;
        table.searched().any(|mirror| {
            bytes += mirror.len();
            bytes > FEW || mirror.may_differ()
        })
    }

    /// Finds what kernels have changed from the address `start` on. Others use the mirrors meanwhile.
    pub fn changes(&self, gpu: &dyn Gpu, start: u64) -> CuResult<Found> {
        let (mut found, mut at) = (Found::default(), start);
        while let Some(next) = self.search(gpu, at, &mut found)? {
            if !found.has_capacity() {
                found.next = next;
                break;
            }
            at = next;
        }
        Ok(found)
    }

    /// Looks through the next piece of a mirror from an address on, and returns where it stopped; nothing
    /// when there is none.
    fn search(&self, gpu: &dyn Gpu, at: u64, found: &mut Found) -> CuResult<Option<u64>> {
        let mut table = self.table.lock();
        let contains = |start: &u64| table.mirrors.get(start).is_some_and(|it| at - start < it.len() as u64);
        let containing = table.searched.range(..=at).next_back().copied().filter(contains);
        let Some(start) = containing.or_else(|| table.searched.range(at..).next().copied()) else {
            return Ok(None);
        };
        let Some(mirror) = table.mirrors.get_mut(&start) else { return Ok(None) };
        let from = at.saturating_sub(start) as usize;
        found.changes.separate();
        let stopped = mirror.find(gpu, start, from, found)?;
        Ok(Some(start + stopped.max(1) as u64))
    }

    /// Copies changed memory of a mirror into `into`, for the client. When that fails, the device may still write there: it
    /// must be set aside.
    pub fn read(&self, address: u64, into: &mut [u8]) -> CuResult<()> {
        let mut table = self.table.lock();
        let (start, mirror) =
            table.mirrors.range_mut(..=address).next_back().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let at = (address - start) as usize;
        if at.checked_add(into.len()).is_none_or(|end| end > mirror.len()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        match &mut mirror.memory {
            Memory::Here { memory, .. } => {
                // SAFETY: the range lies in the memory. Kernels may write to it meanwhile; then old or new
                // bytes are copied.
                unsafe { into.as_mut_ptr().copy_from_nonoverlapping(memory.as_ptr().add(at), into.len()) };
                Ok(())
            }
            Memory::OnDevice(memory) => memory.read_and_agree(at, into),
        }
    }
}

impl Found {
    /// Whether the reply may become longer.
    fn has_capacity(&self) -> bool {
        let in_ranges: u64 = self.ranges.iter().map(|range| range.bytes).sum();
        self.changes.len() < MAX_CHANGES && in_ranges < MAX_DIRTY_RANGE_BYTES
    }
}

impl Mirror {
    fn len(&self) -> usize {
        match &self.memory {
            Memory::Here { base, .. } => base.len(),
            Memory::OnDevice(memory) => memory.len(),
        }
    }

    /// Whether it differs from what both ends agreed on; it may where that takes a copy from the device.
    fn may_differ(&self) -> bool {
        match &self.memory {
            // SAFETY: the memory has as many bytes as the base. What a kernel writes at this moment is compared
            // as it comes.
            Memory::Here { memory, base } => unsafe {
                core::slice::from_raw_parts(memory.as_ptr(), base.len()) != base.as_slice()
            },
            Memory::OnDevice(_) => true,
        }
    }

    /// Puts in the client's bytes from `at` on.
    fn put(&mut self, at: usize, bytes: &[u8]) -> CuResult<()> {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.len()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        match &mut self.memory {
            Memory::Here { memory, base } => {
                let base = &mut base[at..at + bytes.len()];
                // SAFETY: the memory has as many bytes as the base, which has these.
                unsafe { merge_changes(memory.as_ptr().add(at), base, bytes) };
                Ok(())
            }
            Memory::OnDevice(memory) => memory.put(at, bytes),
        }
    }

    /// Finds what kernels have changed from a place on, in as much as is looked through at once, and returns where it
    /// stopped. The mirror begins at `address`.
    fn find(&mut self, gpu: &dyn Gpu, address: u64, from: usize, all: &mut Found) -> CuResult<usize> {
        match &mut self.memory {
            Memory::Here { memory, base } => {
                let to = (from / COMPARED_PIECE * COMPARED_PIECE + COMPARED_PIECE).min(base.len());
                // SAFETY: the memory has as many bytes as the base.
                let stopped = unsafe {
                    find_changes(memory.as_ptr(), base, from, to, |at, bytes| {
                        all.changes.add(address + at as u64, bytes);
                        all.has_capacity()
                    })
                };
                Ok(stopped)
            }
            Memory::OnDevice(memory) => {
                memory.find(gpu, from..memory.len(), &mut FoundOnDevice { address, all })
            }
        }
    }
}

/// Changed blocks of a mirror of device memory that begins at an address.
struct FoundOnDevice<'a> {
    address: u64,
    all: &'a mut Found,
}

impl ChangedBlocks for FoundOnDevice<'_> {
    fn needs_bytes(&self, length: usize) -> bool {
        self.all.changes.len() + length <= MAX_BLOCKS
    }

    fn add(&mut self, at: usize, bytes: &[u8]) -> bool {
        self.all.changes.add(self.address + at as u64, bytes);
        self.all.has_capacity()
    }

    fn add_unread(&mut self, block: Range<usize>) -> bool {
        let (address, bytes) = (self.address + block.start as u64, block.len() as u64);
        match self.all.ranges.last_mut() {
            // A range lies in one mirror, although another may begin right behind it: the client reads it as a whole.
            Some(last) if block.start > 0 && last.address + last.bytes == address => last.bytes += bytes,
            _ => self.all.ranges.push(MemoryRange { address, bytes }),
        }
        self.all.has_capacity()
    }
}

/// Zeros, which the system makes page by page when they are first needed.
fn zeroed(bytes: usize) -> CuResult<Vec<u8>> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    drop(probe);
    Ok(vec![0; bytes])
}

#[cfg(test)]
mod tests {
    use super::on_device::tests::Bytes;
    use super::*;
    use causeway_gpu_software::{Options, SoftwareGpu};
    use parking_lot::Mutex;
    use std::sync::Arc;

    const BASE: u64 = 0x10_0000;

    fn mirrors(size: usize) -> (SoftwareGpu, Arc<Mutex<Vec<u8>>>, Mirrors) {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let bytes = Arc::new(Mutex::new(vec![0; size]));
        let memory = Memory::OnDevice(OnDevice::zeroed(Box::new(Bytes(Arc::clone(&bytes))), size));
        let mirrors = Mirrors::default();
        mirrors.table.lock().insert(BASE, Mirror { context: Handle::NULL, memory });
        (gpu, bytes, mirrors)
    }

    #[test]
    fn few_changes_of_device_memory_come_at_once_and_the_clients_are_not_reported_back() {
        let size = 3 * on_device::BLOCK;
        let (gpu, bytes, mirrors) = mirrors(size);
        bytes.lock()[size - 3] = 9;
        assert!(mirrors.may_differ());
        let found = mirrors.changes(&gpu, 0).unwrap();
        assert_eq!((found.next, found.ranges.len()), (0, 0));
        let mut told = Vec::new();
        read_changes(found.changes.as_bytes(), |address, bytes| told.push((address, bytes.to_vec())))
            .unwrap();
        let [(address, block)] = told.as_slice() else { panic!("{} changes", told.len()) };
        assert_eq!(*address, BASE + 2 * on_device::BLOCK as u64);
        assert_eq!((block.len(), block[on_device::BLOCK - 3]), (on_device::BLOCK, 9));
        assert!(mirrors.changes(&gpu, 0).unwrap().changes.is_empty());

        let mut sent = Changes::default();
        sent.add(BASE, &vec![5; on_device::BLOCK]);
        mirrors.write(sent.as_bytes()).unwrap();
        assert_eq!(bytes.lock()[..2], [5, 5]);
        assert!(mirrors.changes(&gpu, 0).unwrap().changes.is_empty());
        sent.clear();
        sent.add(BASE + size as u64 - 1, &[5, 6]);
        assert_eq!(mirrors.write(sent.as_bytes()), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn ranges_of_neighbouring_mirrors_are_apart() {
        const SIZE: usize = 2 * on_device::PIECE;
        let (gpu, first, mirrors) = mirrors(SIZE);
        let second = Arc::new(Mutex::new(vec![0; SIZE]));
        let memory = Memory::OnDevice(OnDevice::zeroed(Box::new(Bytes(Arc::clone(&second))), SIZE));
        let next = BASE + SIZE as u64;
        mirrors.table.lock().insert(next, Mirror { context: Handle::NULL, memory });
        for bytes in [&first, &second] {
            bytes.lock().fill(1);
        }
        let found = mirrors.changes(&gpu, 0).unwrap();
        assert_eq!(found.next, 0);
        for MemoryRange { address, bytes } in &found.ranges {
            let mut part = vec![0; *bytes as usize];
            mirrors.read(*address, &mut part).unwrap();
            assert!(part.iter().all(|byte| *byte == 1));
        }
        let ends: Vec<_> = found.ranges.iter().map(|range| range.address + range.bytes).collect();
        assert_eq!(ends, [next, next + SIZE as u64]);
    }

    #[test]
    fn many_changes_of_device_memory_are_stretches_to_be_read() {
        let size = MAX_DIRTY_RANGE_BYTES as usize + 2 * on_device::PIECE + 5;
        let (gpu, bytes, mirrors) = mirrors(size);
        bytes.lock().fill(1);
        let (mut start, mut told, mut rounds) = (0, Vec::new(), 0);
        loop {
            let found = mirrors.changes(&gpu, start).unwrap();
            read_changes(found.changes.as_bytes(), |address, bytes| {
                assert!(bytes.iter().all(|byte| *byte == 1));
                told.push((address, bytes.len() as u64));
            })
            .unwrap();
            told.extend(found.ranges.iter().map(|range| (range.address, range.bytes)));
            rounds += 1;
            if found.next == 0 {
                break;
            }
            start = found.next;
        }
        told.sort_unstable();
        let end = told.iter().fold(BASE, |end, (address, bytes)| {
            assert_eq!(*address, end);
            address + bytes
        });
        assert_eq!((end - BASE, rounds), (size as u64, 2));
        let mut part = [0; 7];
        mirrors.read(BASE + size as u64 - 7, &mut part).unwrap();
        assert_eq!(part, [1; 7]);
        for address in [BASE + size as u64 - 6, BASE - 1, u64::MAX] {
            assert_eq!(
                mirrors.read(address, &mut part),
                Err(CUresult::CUDA_ERROR_INVALID_VALUE),
                "{address:#x}"
            );
        }
    }

    #[test]
    fn what_takes_long_to_compare_may_differ() {
        let mirrors = Mirrors::default();
        let mut memory = vec![0_u8; FEW + 1];
        let mut add = |at: usize, bytes: usize| {
            // SAFETY: inside the vector, which lives until the end of the test and is reached through this alone.
            let part = unsafe { Staging::new(memory.as_mut_ptr().add(at), bytes, |_, _| ()) };
            mirrors.adopt(BASE + at as u64, part).unwrap();
        };
        add(0, FEW);
        assert!(!mirrors.may_differ());
        add(FEW, 1);
        assert!(mirrors.may_differ());
        *mirrors.table.lock() = Table::default();
        assert!(!mirrors.may_differ());
        let _in_use = mirrors.table.lock();
        assert!(mirrors.may_differ());
    }

    #[test]
    fn only_mirrors_that_kernels_may_use_are_looked_through() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let mirrors = Mirrors::default();
        let mut memory = vec![0_u8; 3 * 4096];
        let at = |number: u64| BASE + number * 4096;
        for number in 0..3 {
            // SAFETY: inside the vector, which lives until the end of the test and is reached through this alone.
            let part = unsafe { Staging::new(memory.as_mut_ptr().add(number * 4096), 4096, |_, _| ()) };
            mirrors.adopt(at(number as u64), part).unwrap();
        }
        let found = || {
            let (mut start, mut all) = (0, Vec::new());
            loop {
                let found = mirrors.changes(&gpu, start).unwrap();
                read_changes(found.changes.as_bytes(), |address, _| all.push((address - BASE) / 4096))
                    .unwrap();
                match found.next {
                    0 => return all,
                    next => start = next,
                }
            }
        };
        mirrors.set_searched(&[at(0), at(1)], false).unwrap();
        (0..3).for_each(|number| memory[number * 4096 + 7] = 1);
        assert!(mirrors.may_differ());
        assert_eq!(found(), [2]);
        assert!(!mirrors.may_differ());
        mirrors.set_searched(&[at(0)], true).unwrap();
        assert!(mirrors.may_differ());
        assert_eq!(found(), [0]);
        for unknown in [at(3), at(0) + 1, u64::MAX] {
            let refused = mirrors.set_searched(&[at(1), unknown], true);
            assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_VALUE), "{unknown:#x}");
        }
        assert!(found().is_empty());
        drop(mirrors.remove(at(1)).unwrap());
        mirrors.end_context(Handle::NULL);
        assert!(mirrors.table.lock().searched.is_empty());
    }

    #[test]
    fn changes_of_host_memory_are_told_line_by_line() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let mut memory = vec![0_u8; 10_000];
        // SAFETY: the vector lives until the end of the test, and is reached through this alone.
        let shared = unsafe { Staging::new(memory.as_mut_ptr(), memory.len(), |_, _| ()) };
        let mirrors = Mirrors::default();
        mirrors.adopt(BASE, shared).unwrap();
        assert!(!mirrors.may_differ());
        memory[5000] = 3;
        assert!(mirrors.may_differ() && mirrors.may_differ(), "a look agrees on nothing");
        let found = mirrors.changes(&gpu, 0).unwrap();
        assert!(!mirrors.may_differ());
        let mut told = Vec::new();
        read_changes(found.changes.as_bytes(), |address, bytes| told.push((address - BASE, bytes.len())))
            .unwrap();
        assert_eq!((told, found.next), (vec![(4992, 64)], 0));
        let mut part = [0];
        mirrors.read(BASE + 5000, &mut part).unwrap();
        assert_eq!(part, [3]);
    }
}
