//! Memory that the client holds and hands out: blocks that the worker has made, and what of them is free. Who
//! sends for blocks defines a [`BlockSource`].

pub use super::free_ranges::ReusePoint;

use super::free_ranges::{FreeRanges, UNIT};
use crate::locks::{Mutex, rank};
use crate::model::stream::StreamState;
use causeway_api::handle::{Allocation, Handle};
use causeway_api::sys::{CUdevice, CUmemAccess_flags};
use causeway_api::types::ExportToken;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// Free memory that a heap keeps for later allocations.
const MAX_CACHED: u64 = 64 << 20;

/// A gauge and the highest that it has been.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The highest since it was last reset.
    pub high: u64,
}

impl Gauge {
    /// Sets it.
    pub fn set(&mut self, value: u64) {
        self.current = value;
        self.high = self.high.max(value);
    }
}

/// A block of memory, as the server made it.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Its handle.
    pub handle: Handle<Allocation>,
    /// Its size in bytes.
    pub size: u64,
    /// Under which the broker has it for other processes.
    pub token: Option<ExportToken>,
}

/// Where blocks came from, and go back to.
pub trait BlockSource: Sync {
    /// Takes blocks of a device back, with their addresses. No work uses them any more.
    fn release(&self, device: CUdevice, blocks: Vec<(u64, Block)>);
}

#[derive(Default)]
struct State {
    ranges: FreeRanges,
    blocks: BTreeMap<u64, Block>,
    /// Other devices that may use the memory, by the server's numbers, and how.
    accessors: Vec<(CUdevice, CUmemAccess_flags)>,
    used: Gauge,
    reserved: Gauge,
    /// For pairs of streams: the first has been made to wait for what the second held up to a sequence
    /// number.
    joined: HashMap<(u64, u64), u64>,
}

/// Memory of one device for one purpose.
pub struct Heap {
    /// The program's number of the device.
    pub device: CUdevice,
    /// Bytes that it keeps although they are free.
    keep: AtomicU64,
    /// Most bytes of blocks; 0 for no limit.
    pub limit: u64,
    source: &'static dyn BlockSource,
    state: Mutex<rank::Heap, State>,
}

/// Every heap, so that memory which one keeps can go to another.
static HEAPS: LazyLock<Mutex<rank::Heaps, Vec<Weak<Heap>>>> = LazyLock::new(Mutex::default);

/// Bytes of a device that are free here although the server counts them as used.
pub fn free_bytes(device: CUdevice) -> u64 {
    of_device(device).iter().map(|heap| heap.state.lock().ranges.free_bytes()).sum()
}

/// The heaps of a device.
pub fn of_device(device: CUdevice) -> Vec<Arc<Heap>> {
    let mut heaps = HEAPS.lock();
    heaps.retain(|heap| heap.strong_count() > 0);
    heaps.iter().filter_map(Weak::upgrade).filter(|heap| heap.device == device).collect()
}

fn is_past(reuse_point: &ReusePoint) -> bool {
    reuse_point.stream.has_done(reuse_point.sequence)
}

/// The reuse point of what is freed in a stream now.
pub fn reuse_point(stream: &Arc<StreamState>) -> ReusePoint {
    ReusePoint { stream: Arc::clone(stream), sequence: stream.newest() }
}

impl Heap {
    /// A heap without memory; `limit` is the most it may hold, 0 for no limit.
    pub fn new(device: CUdevice, limit: u64, source: &'static dyn BlockSource) -> Arc<Self> {
        let (keep, state) = (AtomicU64::new(MAX_CACHED), Mutex::default());
        let heap = Arc::new(Self { device, keep, limit, source, state });
        HEAPS.lock().push(Arc::downgrade(&heap));
        heap
    }

    /// Sets how many free bytes it keeps at least.
    pub fn set_keep(&self, bytes: u64) {
        self.keep.store(bytes.max(MAX_CACHED), Ordering::Relaxed);
    }

    /// Keeps no free memory from now on.
    pub fn end(&self) {
        self.keep.store(0, Ordering::Relaxed);
    }

    /// Takes memory that is free here.
    pub fn take(&self, size: u64, stream: Option<&StreamState>) -> Option<u64> {
        let size = size.checked_next_multiple_of(UNIT)?;
        let mut state = self.state.lock();
        let State { ranges, joined, .. } = &mut *state;
        let usable = |reuse_point: &ReusePoint| {
            is_past(reuse_point)
                || stream.is_some_and(|stream| {
                    let freed_in = reuse_point.stream.id;
                    stream.id == freed_in
                        || joined
                            .get(&(stream.id, freed_in))
                            .is_some_and(|sequence| reuse_point.sequence <= *sequence)
                })
        };
        let base = ranges.take(size, usable, is_past)?;
        let used = state.used.current + size;
        state.used.set(used);
        Some(base)
    }

    /// Whether the heap has so much free memory that it had better be used than more asked for.
    pub fn is_full_of_free(&self) -> bool {
        self.state.lock().ranges.free_bytes() >= MAX_CACHED
    }

    /// What has to be waited for before free memory of this size can be used.
    pub fn blocking_reuse_point(&self, size: u64) -> Option<ReusePoint> {
        self.state.lock().ranges.blocking_reuse_point(size.next_multiple_of(UNIT))
    }

    /// Notes that one stream has been made to wait for what another one held up to a sequence number.
    pub fn join(&self, waiting: u64, other: u64, sequence: u64) {
        self.state.lock().joined.insert((waiting, other), sequence);
    }

    /// Takes memory back that [`Self::allocate`] gave: for everybody, or for a stream until its work is done.
    pub fn free(&self, base: u64, size: u64, since: Option<ReusePoint>) {
        let size = size.next_multiple_of(UNIT);
        let released = {
            let mut state = self.state.lock();
            state.ranges.release(base, size, since);
            let used = state.used.current.saturating_sub(size);
            state.used.set(used);
            let keep = self.keep.load(Ordering::Relaxed);
            if state.ranges.free_bytes() > keep { state.take_blocks(keep) } else { Vec::new() }
        };
        self.source.release(self.device, released);
    }

    /// Gives blocks back that are free until no more than `keep` bytes of free memory are left, if that can
    /// be.
    pub fn trim(&self, keep: u64) {
        let released = self.state.lock().take_blocks(keep);
        self.source.release(self.device, released);
    }

    /// Gives every block back; what is allocated in them is lost.
    pub fn release_all(&self) {
        let released = {
            let mut state = self.state.lock();
            state.ranges.take_all();
            state.used.set(0);
            state.reserved.set(0);
            core::mem::take(&mut state.blocks)
        };
        self.source.release(self.device, released.into_iter().collect());
    }

    /// Bytes that are allocated, and bytes of all blocks.
    pub fn gauges(&self) -> (Gauge, Gauge) {
        let state = self.state.lock();
        (state.used, state.reserved)
    }

    /// Sets the high marks of used or reserved bytes back to what they are now.
    pub fn reset_high(&self, of_reserved: bool) {
        let mut state = self.state.lock();
        let gauge = if of_reserved { &mut state.reserved } else { &mut state.used };
        gauge.high = gauge.current;
    }

    /// The block in which an address lies, and its first address.
    pub fn block_of(&self, address: u64) -> Option<(u64, Block)> {
        let state = self.state.lock();
        state.blocks.range(..=address).next_back().map(|(base, block)| (*base, *block))
    }

    /// Notes the token of a block that was exported, and gives that under which other processes know it:
    /// another thread's, if that one was faster. Nothing if the block does not exist any more.
    pub fn note_export(
        &self,
        base: u64,
        block: Handle<Allocation>,
        token: ExportToken,
    ) -> Option<ExportToken> {
        let mut state = self.state.lock();
        let found = state.blocks.get_mut(&base).filter(|found| found.handle == block)?;
        Some(*found.token.get_or_insert(token))
    }

    /// What a device other than the heap's own may do with its memory.
    pub fn access_of(&self, accessor: CUdevice) -> CUmemAccess_flags {
        let none = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        let state = self.state.lock();
        state.accessors.iter().find(|(device, _)| *device == accessor).map_or(none, |(_, flags)| *flags)
    }

    /// The devices other than its own that may use its memory (the server's numbers), and how.
    pub fn accessors(&self) -> Vec<(CUdevice, CUmemAccess_flags)> {
        self.state.lock().accessors.clone()
    }

    /// Notes what another device (the server's number) may do with its memory; gives the first addresses and
    /// sizes of its blocks.
    pub fn note_access(&self, accessor: CUdevice, flags: CUmemAccess_flags) -> Vec<(u64, u64)> {
        let mut state = self.state.lock();
        state.accessors.retain(|(device, _)| *device != accessor);
        if flags != CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE {
            state.accessors.push((accessor, flags));
        }
        state.blocks.iter().map(|(base, block)| (*base, block.size)).collect()
    }

    /// The streams that free memory waits for.
    pub fn streams(&self) -> Vec<Arc<StreamState>> {
        self.state.lock().ranges.streams()
    }

    /// Takes in a block that the server has made at `base`.
    pub fn add_block(&self, base: u64, block: Block) {
        let mut state = self.state.lock();
        state.ranges.add_block(base, block.size);
        state.blocks.insert(base, block);
        let held = state.ranges.held_bytes();
        state.reserved.set(held);
    }
}

impl State {
    /// Takes out blocks that are free, until no more than `keep` free bytes are left.
    fn take_blocks(&mut self, keep: u64) -> Vec<(u64, Block)> {
        let taken = self.ranges.take_blocks(keep, is_past);
        let held = self.ranges.held_bytes();
        self.reserved.set(held);
        taken.into_iter().filter_map(|(base, _)| Some((base, self.blocks.remove(&base)?))).collect()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if crate::process::is_ready() {
            self.release_all();
        }
    }
}
