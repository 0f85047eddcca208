//! Pools for stream-ordered allocation.
//!
//! A freed block is at once of use to later allocations in the same stream, which come after the free anyway.
//! When the stream gets to the free, the block goes back to the device, unless the pool is to keep that much.

use super::handles;
use crate::handles::{Point, StreamId};
use causeway_api::sys::{CUmemPool_attribute, CUresult};
use causeway_gpu::CuResult;
use causeway_ptx::memory::AddressSpace;
use parking_lot::Mutex;

/// Marks one stay of a block in its pool.
pub(super) type BlockToken = u64;

/// Where a freed block may be used again.
#[derive(Clone, Copy)]
enum Reuse {
    /// In the stream that frees it, which is not there yet.
    SameStream(StreamId),
    /// In that stream, and elsewhere once the point of the free is reached.
    After(Point),
}

struct Block {
    token: BlockToken,
    address: u64,
    size: u64,
    reuse: Reuse,
}

/// Memory of a pool, with the most there ever was since the mark was last taken back.
#[derive(Clone, Copy, Default)]
struct Gauge {
    current: u64,
    high: u64,
}

impl Gauge {
    fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }

    fn subtract(&mut self, bytes: u64) {
        self.current = self.current.saturating_sub(bytes);
    }
}

#[derive(Default)]
struct State {
    /// Bytes that the pool keeps instead of giving them back.
    release_threshold: u64,
    /// The three attributes that permit reuse across streams.
    follow_events: bool,
    opportunistic: bool,
    internal_dependencies: bool,
    reserved: Gauge,
    used: Gauge,
    free: Vec<Block>,
    destroyed: bool,
}

/// A pool.
pub(super) struct Pool {
    pub(super) id: u64,
    /// Most bytes it may reserve; 0 for no limit of its own.
    limit: u64,
    state: Mutex<State>,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(limit: u64) -> Self {
        let state = State {
            follow_events: true,
            opportunistic: true,
            internal_dependencies: true,
            ..State::default()
        };
        Self { id: handles::next(), limit, state: Mutex::new(state) }
    }

    /// Takes a block of at least `size` bytes for use in `stream`; gives its address and size.
    /// `has_passed` says whether a stream has come to a point.
    pub(super) fn allocate(
        &self,
        size: u64,
        stream: StreamId,
        space: &AddressSpace,
        has_passed: impl Fn(Point) -> bool,
    ) -> CuResult<(u64, u64)> {
        let mut state = self.state.lock();
        let opportunistic = state.opportunistic;
        let usable = |block: &Block| match block.reuse {
            Reuse::SameStream(freed_in) => freed_in == stream,
            Reuse::After(point) => point.stream == stream || (opportunistic && has_passed(point)),
        };
        // A block that is much too large would be missing elsewhere.
        let fits = |block: &Block| block.size >= size && block.size - size <= size / 4 + 4096;
        if let Some(index) = state.free.iter().position(|block| fits(block) && usable(block)) {
            let block = state.free.swap_remove(index);
            state.used.add(block.size);
            return Ok((block.address, block.size));
        }
        let refused = self.limit != 0 && state.reserved.current.saturating_add(size) > self.limit;
        let fresh = if refused { None } else { space.allocate(size, 512).ok() };
        let address = match fresh {
            Some(address) => address,
            None => {
                state.trim(0, space, |block| matches!(block.reuse, Reuse::After(p) if has_passed(p)));
                if self.limit != 0 && state.reserved.current.saturating_add(size) > self.limit {
                    return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
                }
                space.allocate(size, 512).map_err(|error| {
                    tracing::debug!("{error}");
                    CUresult::CUDA_ERROR_OUT_OF_MEMORY
                })?
            }
        };
        state.reserved.add(size);
        state.used.add(size);
        Ok((address, size))
    }

    /// Takes a block back that `stream` is about to free. [`Self::freed_at`] must follow, or
    /// [`Self::take_again`].
    pub(super) fn free(&self, address: u64, size: u64, stream: StreamId) -> BlockToken {
        let mut state = self.state.lock();
        let token = handles::next();
        state.used.subtract(size);
        state.free.push(Block { token, address, size, reuse: Reuse::SameStream(stream) });
        token
    }

    /// Takes note of the point at which the block of `token` is free for every stream.
    pub(super) fn freed_at(&self, token: BlockToken, point: Point) {
        if let Some(block) = self.state.lock().free.iter_mut().find(|block| block.token == token) {
            block.reuse = Reuse::After(point);
        }
    }

    /// Undoes [`Self::free`].
    pub(super) fn take_again(&self, token: BlockToken) {
        let mut state = self.state.lock();
        if let Some(index) = state.free.iter().position(|block| block.token == token) {
            let block = state.free.swap_remove(index);
            state.used.add(block.size);
        }
    }

    /// Called when a stream gets to a free: gives the block back to the device unless it is in use again or
    /// kept.
    pub(super) fn release(&self, token: BlockToken, space: &AddressSpace) {
        let mut state = self.state.lock();
        if state.destroyed || state.reserved.current > state.release_threshold {
            let threshold = if state.destroyed { 0 } else { state.release_threshold };
            state.trim(threshold, space, |block| block.token == token);
        }
    }

    /// Takes note that a block was released to the device directly.
    pub(super) fn forget(&self, size: u64) {
        let mut state = self.state.lock();
        state.used.subtract(size);
        state.reserved.subtract(size);
    }

    /// Gives unused memory back until no more than `keep` bytes are reserved.
    pub(super) fn trim_to(&self, keep: u64, space: &AddressSpace, has_passed: impl Fn(Point) -> bool) {
        let reached = |block: &Block| matches!(block.reuse, Reuse::After(point) if has_passed(point));
        self.state.lock().trim(keep, space, reached);
    }

    /// Gives all unused memory back, now or when streams get to the frees.
    pub(super) fn destroy(&self, space: &AddressSpace, has_passed: impl Fn(Point) -> bool) {
        self.state.lock().destroyed = true;
        self.trim_to(0, space, has_passed);
    }

    /// An attribute's value.
    pub(super) fn attribute(&self, attribute: CUmemPool_attribute) -> CuResult<u64> {
        type Attribute = CUmemPool_attribute;
        let state = self.state.lock();
        Ok(match attribute {
            Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events.into(),
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic.into(),
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                state.internal_dependencies.into()
            }
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.release_threshold,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => state.reserved.current,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => state.reserved.high,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => state.used.current,
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => state.used.high,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    /// Sets an attribute. High marks can only be taken back, by setting them to 0.
    pub(super) fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> CuResult<()> {
        type Attribute = CUmemPool_attribute;
        let mut state = self.state.lock();
        match attribute {
            Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES => state.follow_events = value != 0,
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC => state.opportunistic = value != 0,
            Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                state.internal_dependencies = value != 0;
            }
            Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => state.release_threshold = value,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH if value == 0 => {
                state.reserved.high = state.reserved.current;
            }
            Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH if value == 0 => state.used.high = state.used.current,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }
}

impl State {
    /// Gives those free blocks back that `eligible` picks, while more than `keep` bytes are reserved.
    fn trim(&mut self, keep: u64, space: &AddressSpace, eligible: impl Fn(&Block) -> bool) {
        let (free, reserved) = (&mut self.free, &mut self.reserved);
        free.retain(|block| {
            if reserved.current <= keep || !eligible(block) {
                return true;
            }
            if let Err(error) = space.free(block.address) {
                tracing::error!("cannot free a block of a memory pool: {error}");
            }
            reserved.subtract(block.size);
            false
        });
    }
}
