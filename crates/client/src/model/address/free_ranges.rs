//! Free list of a heap's blocks, with the point since which each range is free: bookkeeping alone.
//!
//! A free range may carry a [`ReusePoint`]: it may be used by its stream at once, and by others when the work
//! up to the reuse point is done. Ranges that were freed last are kept whole for a while, because the next
//! allocation often has the same size.

use crate::model::stream::StreamState;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sizes are multiples of this, and so are addresses within a block; CUDA promises 256.
pub const UNIT: u64 = 512;

/// How many ranges that were just freed are kept whole.
const MAX_RECENT_RANGES: usize = 16;

/// When a range was freed: at this point of this stream.
#[derive(Clone)]
pub struct ReusePoint {
    /// The stream.
    pub stream: Arc<StreamState>,
    /// The sequence number of its newest command then.
    pub sequence: u64,
}

#[derive(Clone)]
struct Free {
    size: u64,
    since: Option<ReusePoint>,
}

/// The free parts of a number of blocks.
#[derive(Default)]
pub struct FreeRanges {
    /// Sizes of the blocks by first address.
    blocks: BTreeMap<u64, u64>,
    free: BTreeMap<u64, Free>,
    by_size: BTreeSet<(u64, u64)>,
    recent: Vec<(u64, Free)>,
    free_bytes: u64,
    held_bytes: u64,
}

impl FreeRanges {
    /// Bytes of all blocks.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Adds a block, all of it free.
    pub fn add_block(&mut self, base: u64, size: u64) {
        self.blocks.insert(base, size);
        self.held_bytes += size;
        self.free_bytes += size;
        self.enter(base, Free { size, since: None });
    }

    /// Takes `size` bytes, a multiple of [`UNIT`], from a range whose reuse point is `usable` for whoever
    /// asks. A reuse point that is `past` is so for everybody.
    pub fn take(
        &mut self,
        size: u64,
        usable: impl Fn(&ReusePoint) -> bool,
        past: impl Fn(&ReusePoint) -> bool,
    ) -> Option<u64> {
        let is_usable = |free: &Free| free.since.as_ref().is_none_or(&usable);
        if let Some(index) = self.recent.iter().rposition(|(_, free)| free.size == size && is_usable(free)) {
            let (base, _) = self.recent.swap_remove(index);
            self.free_bytes -= size;
            return Some(base);
        }
        self.take_best(size, is_usable).or_else(|| {
            self.merge(past);
            self.take_best(size, is_usable)
        })
    }

    fn take_best(&mut self, size: u64, is_usable: impl Fn(&Free) -> bool) -> Option<u64> {
        let fits = self.by_size.range((size, 0)..);
        let base = fits.map(|(_, base)| *base).find(|base| self.free.get(base).is_some_and(&is_usable))?;
        let free = self.leave(base)?;
        if free.size > size {
            let rest = Free { size: free.size - size, since: free.since };
            self.enter(base + size, rest);
        }
        self.free_bytes -= size;
        Some(base)
    }

    /// The reuse point of a range that would do if the work up to it were done.
    pub fn blocking_reuse_point(&self, size: u64) -> Option<ReusePoint> {
        let fits = self.by_size.range((size, 0)..);
        fits.filter_map(|(_, base)| self.free.get(base)?.since.clone()).next()
    }

    /// The streams whose work some free range has to wait for.
    pub fn streams(&self) -> Vec<Arc<StreamState>> {
        let ranges = self.free.values().chain(self.recent.iter().map(|(_, free)| free));
        let mut streams: Vec<_> = ranges
            .filter_map(|free| free.since.as_ref())
            .map(|reuse_point| Arc::clone(&reuse_point.stream))
            .collect();
        streams.sort_by_key(|stream| stream.id);
        streams.dedup_by_key(|stream| stream.id);
        streams
    }

    /// Gives a range back.
    pub fn release(&mut self, base: u64, size: u64, since: Option<ReusePoint>) {
        self.free_bytes += size;
        if self.recent.len() == MAX_RECENT_RANGES {
            let (base, free) = self.recent.remove(0);
            self.enter(base, free);
        }
        self.recent.push((base, Free { size, since }));
    }

    /// Takes out blocks that are free as a whole and whose reuse points are `past`, while more than `keep`
    /// bytes are free.
    pub fn take_blocks(&mut self, keep: u64, past: impl Fn(&ReusePoint) -> bool) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        if self.free_bytes <= keep {
            return taken;
        }
        self.merge(past);
        let whole = |(base, size): (&u64, &u64)| {
            let free = self.free.get(base)?;
            (free.size == *size && free.since.is_none()).then_some((*base, *size))
        };
        let mut candidates: Vec<_> = self.blocks.iter().filter_map(whole).collect();
        candidates.sort_by_key(|(_, size)| core::cmp::Reverse(*size));
        for (base, size) in candidates {
            if self.free_bytes <= keep {
                break;
            }
            self.leave(base);
            self.blocks.remove(&base);
            self.free_bytes -= size;
            self.held_bytes -= size;
            taken.push((base, size));
        }
        taken
    }

    /// Takes all ranges out and gives all its blocks.
    pub fn take_all(&mut self) -> Vec<(u64, u64)> {
        core::mem::take(self).blocks.into_iter().collect()
    }

    /// Forgets reuse points that are past, and merges neighbours.
    fn merge(&mut self, past: impl Fn(&ReusePoint) -> bool) {
        for (base, free) in core::mem::take(&mut self.recent) {
            self.enter(base, free);
        }
        let all: Vec<(u64, Free)> = core::mem::take(&mut self.free).into_iter().collect();
        self.by_size.clear();
        for (base, mut free) in all {
            free.since = free.since.filter(|reuse_point| !past(reuse_point));
            self.enter(base, free);
        }
    }

    /// Enters a free range, as one with neighbours of the same reuse point in the same block.
    fn enter(&mut self, mut base: u64, mut free: Free) {
        let before = self.free.range(..base).next_back().map(|(start, other)| (*start, other.clone()));
        if let Some((start, other)) = before
            && start + other.size == base
            && let Some(since) = both(&other.since, &free.since)
            && !self.blocks.contains_key(&base)
        {
            self.leave(start);
            (base, free) = (start, Free { size: free.size + other.size, since });
        }
        let end = base + free.size;
        if let Some(other) = self.free.get(&end).cloned()
            && let Some(since) = both(&other.since, &free.since)
            && !self.blocks.contains_key(&end)
        {
            self.leave(end);
            free = Free { size: free.size + other.size, since };
        }
        self.by_size.insert((free.size, base));
        self.free.insert(base, free);
    }

    fn leave(&mut self, base: u64) -> Option<Free> {
        let free = self.free.remove(&base)?;
        self.by_size.remove(&(free.size, base));
        Some(free)
    }
}

/// The reuse point of two ranges that become one; nothing when they cannot, because different streams freed
/// them.
fn both(one: &Option<ReusePoint>, other: &Option<ReusePoint>) -> Option<Option<ReusePoint>> {
    match (one, other) {
        (None, None) => Some(None),
        (Some(one), Some(other)) if one.stream.id == other.stream.id => {
            Some(Some(if one.sequence > other.sequence { one.clone() } else { other.clone() }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::handle::Handle;

    const BLOCK: u64 = 1 << 20;

    fn stream() -> Arc<StreamState> {
        StreamState::legacy(Handle::NULL)
    }

    fn reuse_point(stream: &Arc<StreamState>, sequence: u64) -> Option<ReusePoint> {
        Some(ReusePoint { stream: Arc::clone(stream), sequence })
    }

    fn take(ranges: &mut FreeRanges, size: u64, stream: &StreamState, done: u64) -> Option<u64> {
        let past = |reuse_point: &ReusePoint| reuse_point.sequence <= done;
        ranges.take(size, |reuse_point| reuse_point.stream.id == stream.id || past(reuse_point), past)
    }

    #[test]
    fn ranges_are_disjoint_and_merge_to_whole_blocks_again() {
        let (mut ranges, stream) = (FreeRanges::default(), stream());
        ranges.add_block(BLOCK, BLOCK);
        ranges.add_block(2 * BLOCK, BLOCK);
        let mut taken: Vec<u64> = Vec::new();
        while let Some(base) = take(&mut ranges, 40 * UNIT, &stream, 0) {
            assert!(taken.iter().all(|other| other.abs_diff(base) >= 40 * UNIT));
            assert_eq!(base / BLOCK, (base + 40 * UNIT - 1) / BLOCK);
            taken.push(base);
        }
        assert_eq!(taken.len() as u64, 2 * (BLOCK / (40 * UNIT)));
        assert_eq!(ranges.take_blocks(0, |_| true), []);
        taken.into_iter().for_each(|base| ranges.release(base, 40 * UNIT, None));
        assert_eq!((ranges.free_bytes(), ranges.held_bytes()), (2 * BLOCK, 2 * BLOCK));
        assert_eq!(take(&mut ranges, BLOCK + UNIT, &stream, 0), None, "neighbouring blocks stay apart");
        assert_eq!(ranges.take_blocks(BLOCK, |_| true).len(), 1);
        assert_eq!(ranges.take_all().len(), 1);
        assert_eq!((ranges.free_bytes(), ranges.held_bytes()), (0, 0));
    }

    #[test]
    fn a_freed_range_is_for_its_stream_until_its_stamp_is_past() {
        let (mut ranges, first, second) = (FreeRanges::default(), stream(), stream());
        ranges.add_block(BLOCK, BLOCK);
        let base = take(&mut ranges, BLOCK, &first, 0).unwrap();
        ranges.release(base, BLOCK, reuse_point(&first, 5));
        assert_eq!(take(&mut ranges, BLOCK, &second, 4), None);
        assert_eq!(ranges.blocking_reuse_point(BLOCK).map(|reuse_point| reuse_point.sequence), Some(5));
        assert_eq!(ranges.streams().len(), 1);
        assert_eq!(take(&mut ranges, BLOCK, &first, 0), Some(base));
        ranges.release(base, BLOCK, reuse_point(&first, 6));
        assert_eq!(ranges.take_blocks(0, |reuse_point| reuse_point.sequence <= 5), []);
        assert_eq!(take(&mut ranges, UNIT, &second, 6), Some(base));
        ranges.release(base, UNIT, reuse_point(&second, 7));
        assert_eq!(ranges.take_blocks(0, |reuse_point| reuse_point.sequence <= 7), [(BLOCK, BLOCK)]);
    }

    #[test]
    fn parts_that_one_stream_frees_are_one_range_to_it() {
        let (mut ranges, first, second) = (FreeRanges::default(), stream(), stream());
        ranges.add_block(BLOCK, BLOCK);
        let parts: Vec<u64> = (0..4).map(|_| take(&mut ranges, BLOCK / 4, &first, 0).unwrap()).collect();
        for (sequence, base) in parts.iter().enumerate() {
            ranges.release(*base, BLOCK / 4, reuse_point(&first, sequence as u64 + 1));
        }
        assert_eq!(take(&mut ranges, BLOCK, &second, 3), None);
        assert_eq!(take(&mut ranges, BLOCK, &first, 0), Some(BLOCK));
    }
}
