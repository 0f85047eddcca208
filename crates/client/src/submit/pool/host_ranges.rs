//! Memory of pools that the program reaches, too: pinned or managed memory, given out in whole ranges of the
//! host window.
//!
//! A range that is freed in a stream is this stream's again at once, and another's when the work before the
//! free is known to be done. What is free is kept for later allocations; the server is asked only for what is
//! new.

use crate::locks::{Mutex, rank};
use crate::model::address::heap::{Gauge, ReusePoint};
use crate::model::memory::{self, Origin, Piece};
use crate::model::stream::StreamState;
use crate::model::{device, host_memory, host_window};
use crate::remote::session;
use crate::submit::context::work;
use crate::submit::pinned;
use causeway_api::handle::{Context, Handle, MemoryPool};
use causeway_api::sys::{CUdevice, CUdeviceptr, CUresult};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Free memory that a pool keeps for later allocations.
const MAX_CACHED: u64 = 64 << 20;

/// What kind of memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Memory of the host, which stays there.
    Pinned,
    /// Memory of host and device.
    Managed,
}

/// The memory of a pool.
pub struct Ranges {
    kind: Kind,
    pool: Handle<MemoryPool>,
    /// The most bytes it may hold; 0 for any number.
    limit: u64,
    state: Mutex<rank::Ranges, State>,
}

struct State {
    /// Bytes that it keeps although they are free.
    keep: u64,
    free: Vec<Free>,
    /// What the program has said about locations: their types and numbers, and `CUmemAccess_flags`.
    access: BTreeMap<(u32, i32), u32>,
    used: Gauge,
    reserved: Gauge,
}

/// Memory in the host window.
#[derive(Clone, Copy, Debug)]
struct Range {
    base: u64,
    bytes: u64,
    context: Handle<Context>,
    /// The context has ended, and what the server had of the memory with it.
    is_cut_off: bool,
}

struct Free {
    range: Range,
    since: Option<ReusePoint>,
}

struct Live {
    range: Range,
    size: u64,
    owner: Arc<Ranges>,
}

/// Memory that the program reaches, too, of all pools.
struct OfPools {
    /// What is allocated, by first address.
    live: Mutex<rank::LiveRanges, BTreeMap<u64, Live>>,
    /// Whether there ever was any, so that programs without pay one load.
    any: AtomicBool,
    pools: Mutex<rank::AllRanges, Vec<Weak<Ranges>>>,
}

static OF_POOLS: OfPools =
    OfPools { live: Mutex::new(BTreeMap::new()), any: AtomicBool::new(false), pools: Mutex::new(Vec::new()) };

fn is_past(reuse_point: &ReusePoint) -> bool {
    reuse_point.stream.has_done(reuse_point.sequence)
}

impl Free {
    fn is_past(&self) -> bool {
        self.since.as_ref().is_none_or(is_past)
    }

    /// Whether `bytes` can be given to a stream of this server from it. Of a range much larger the rest would
    /// lie idle.
    fn serves(&self, bytes: u64, stream: &StreamState) -> bool {
        let is_same = |reuse_point: &ReusePoint| reuse_point.stream.id == stream.id;
        self.range.bytes >= bytes
            && self.range.bytes / 2 <= bytes
            && !self.range.is_cut_off
            && self.range.context.server() == stream.context.server()
            && self.since.as_ref().is_none_or(|reuse_point| is_same(reuse_point) || is_past(reuse_point))
    }
}

impl Ranges {
    /// A pool's memory, none yet; `limit` is the most it may hold, 0 for no limit.
    pub fn new(kind: Kind, pool: Handle<MemoryPool>, limit: u64) -> Arc<Self> {
        let state = Mutex::new(State {
            keep: MAX_CACHED,
            free: Vec::new(),
            access: BTreeMap::new(),
            used: Gauge::default(),
            reserved: Gauge::default(),
        });
        let ranges = Arc::new(Self { kind, pool, limit, state });
        let mut all = OF_POOLS.pools.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&ranges));
        ranges
    }

    /// Whether the pool is of memory of the host, of which the host keeps its access.
    pub fn is_hosts(&self) -> bool {
        self.kind == Kind::Pinned
    }

    /// Bytes in use and bytes held.
    pub fn gauges(&self) -> (Gauge, Gauge) {
        let state = self.state.lock();
        (state.used, state.reserved)
    }

    /// Makes the present values the highest: of the bytes held, or of those in use.
    pub fn reset_high(&self, of_reserved: bool) {
        let mut state = self.state.lock();
        let State { used, reserved, .. } = &mut *state;
        let gauge = if of_reserved { reserved } else { used };
        gauge.high = gauge.current;
    }

    /// Sets how many free bytes it keeps at least.
    pub fn set_keep(&self, bytes: u64) {
        self.state.lock().keep = bytes.max(MAX_CACHED);
    }

    /// Keeps no free memory from now on, and lets go of what is free.
    pub fn end(&self) {
        self.state.lock().keep = 0;
        self.trim(0);
    }

    /// Notes what a location, its type and number, may do with the memory (`CUmemAccess_flags`).
    pub fn set_access(&self, location: (u32, i32), flags: u32) {
        self.state.lock().access.insert(location, flags);
    }

    /// What was noted for a location.
    pub fn access_of(&self, location: (u32, i32)) -> Option<u32> {
        self.state.lock().access.get(&location).copied()
    }

    /// Whether devices reach it. Managed memory is every device's; of the host's, a device that has got
    /// access opens it to all of its server.
    fn is_open(&self) -> bool {
        let state = self.state.lock();
        self.kind == Kind::Managed || state.access.values().any(|flags| *flags != 0)
    }

    /// Allocates for use in `stream` from its end on.
    pub fn allocate(
        self: &Arc<Self>,
        size: usize,
        stream: &StreamState,
        device: CUdevice,
    ) -> Result<CUdeviceptr, CUresult> {
        let bytes = host_window::length(size).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as u64;
        let range = match self.take(bytes, stream) {
            Some(range) => range,
            None => self.make(bytes, stream.context)?,
        };
        let (base, size, id) = (range.base, size as u64, device::of_memory());
        match self.kind {
            Kind::Pinned => host_memory::note(host_memory::Range {
                base: base as usize,
                size: size as usize,
                capacity: range.bytes as usize,
                flags: 0,
                context: range.context,
                id,
                is_registered: false,
                is_pooled: true,
            }),
            Kind::Managed => {
                let (context, origin) = (range.context, Origin::Managed);
                memory::insert(Piece { base, size, context, device, origin, id, heap: None })?;
            }
        }
        let mut live = OF_POOLS.live.lock();
        live.insert(base, Live { range, size, owner: Arc::clone(self) });
        OF_POOLS.any.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let used = state.used.current + size;
        state.used.set(used);
        Ok(base)
    }

    /// The smallest free range that serves.
    fn take(&self, bytes: u64, stream: &StreamState) -> Option<Range> {
        let mut state = self.state.lock();
        let serving = state.free.iter().enumerate().filter(|(_, free)| free.serves(bytes, stream));
        let (index, _) = serving.min_by_key(|(_, free)| free.range.bytes)?;
        Some(state.free.swap_remove(index).range)
    }

    /// New memory. What is free beyond what is kept goes first.
    fn make(&self, bytes: u64, context: Handle<Context>) -> Result<Range, CUresult> {
        let keep = self.state.lock().keep;
        self.trim_free(keep);
        let would_be = self.state.lock().reserved.current.saturating_add(bytes);
        if self.limit != 0 && would_be > self.limit {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        if !host_window::is_open_for(session::of(context)?.snapshot.host_window) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let base = match self.kind {
            Kind::Pinned => {
                let made = pinned::make(context, bytes as usize);
                made.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as u64
            }
            Kind::Managed => crate::submit::managed::make(context, bytes as usize)?,
        };
        let mut state = self.state.lock();
        let reserved = state.reserved.current + bytes;
        state.reserved.set(reserved);
        Ok(Range { base, bytes, context, is_cut_off: false })
    }

    /// Lets go of free memory while more than `keep` bytes are held, as far as the work before the frees is
    /// done.
    pub fn trim(&self, keep: u64) {
        let used = self.state.lock().used.current;
        self.trim_free(keep.saturating_sub(used));
    }

    /// As [`Self::trim`], until not more than `keep` bytes are free.
    fn trim_free(&self, keep: u64) {
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        let mut free: u64 = state.free.iter().map(|free| free.range.bytes).sum();
        state.free.retain(|one| {
            let is_released = free > keep && one.is_past();
            if is_released {
                free -= one.range.bytes;
                dropped.push(one.range);
            }
            !is_released
        });
        let released_bytes: u64 = dropped.iter().map(|range| range.bytes).sum();
        let reserved = state.reserved.current.saturating_sub(released_bytes);
        state.reserved.set(reserved);
        // The server is told without the lock: it waits until the device is idle.
        drop(state);
        for range in dropped {
            self.release(&range);
        }
    }

    /// Releases unused memory. The server has no reason to refuse, but a session that is
    /// lost.
    fn release(&self, range: &Range) {
        let outcome = match self.kind {
            Kind::Pinned => pinned::unmake(range.base as usize, range.bytes as usize),
            Kind::Managed => crate::submit::managed::unmake(range.base, range.bytes),
        };
        if let Err(status) = outcome {
            crate::log::info!(
                "memory of a pool at {:#x} was released, with status {status:?} from the server",
                range.base
            );
        }
    }
}

/// Frees what begins at an address, for a stream until its work is done, or for everybody; nothing where no
/// pool's memory begins there.
pub fn free(address: CUdeviceptr, since: Option<ReusePoint>) -> Option<()> {
    if !OF_POOLS.any.load(Ordering::Relaxed) {
        return None;
    }
    let Live { range, size, owner } = OF_POOLS.live.lock().remove(&address)?;
    match owner.kind {
        Kind::Pinned => host_memory::withdraw(address as usize),
        // A context that has ended took it out.
        Kind::Managed => drop(memory::remove(address, Origin::Managed)),
    }
    let mut state = owner.state.lock();
    let used = state.used.current.saturating_sub(size);
    state.used.set(used);
    let is_ended = state.keep == 0;
    state.free.push(Free { range, since });
    drop(state);
    if is_ended {
        owner.trim(0);
    }
    Some(())
}

/// The context and the device of what begins at an address, if it is a pool's.
pub fn context_of(address: CUdeviceptr) -> Option<Handle<Context>> {
    if !OF_POOLS.any.load(Ordering::Relaxed) {
        return None;
    }
    OF_POOLS.live.lock().get(&address).map(|live| live.range.context)
}

/// The pool of the memory that begins at an address.
pub fn pool_of(base: u64) -> Option<Handle<MemoryPool>> {
    if !OF_POOLS.any.load(Ordering::Relaxed) {
        return None;
    }
    OF_POOLS.live.lock().get(&base).map(|live| live.owner.pool)
}

/// Whether devices reach the memory of a pool that begins at an address.
pub fn is_open(base: u64) -> bool {
    let owner = OF_POOLS.live.lock().get(&base).map(|live| Arc::clone(&live.owner));
    owner.is_some_and(|owner| owner.is_open())
}

/// A context ends, and with it what the server has of memory that was made in it.
pub fn context_ends(context: Handle<Context>) {
    if !OF_POOLS.any.load(Ordering::Relaxed) {
        return;
    }
    let cut = |range: &mut Range| range.is_cut_off |= range.context == context;
    OF_POOLS.live.lock().values_mut().for_each(|live| cut(&mut live.range));
    let all: Vec<_> = OF_POOLS.pools.lock().iter().filter_map(Weak::upgrade).collect();
    for ranges in all {
        ranges.state.lock().free.iter_mut().for_each(|free| cut(&mut free.range));
    }
}

/// Waits for the work that may still use what begins at an address, and frees it, if it is a pool's.
pub fn free_at_once(address: CUdeviceptr) -> Option<Result<(), CUresult>> {
    let waited = work::synchronize(context_of(address)?);
    // It is freed even when the work before failed.
    free(address, None).map(|()| waited)
}
