//! Striping of transfers over all queue pairs, and their completion.

use std::sync::atomic::Ordering;

use causeway_ibverbs::{MemoryRegion, RemoteMemory, Segment};
use causeway_transport::slots::SLOT;
use causeway_transport::{OnComplete, RegionSlice};

use crate::operation::Operation;
use crate::path::{MAX_EAGER_BYTES, Notice, Stripe, Work};
use crate::state::State;
use crate::stripes::{order, requests, split};

/// Bytes of a region, by the address of the first one.
pub fn slice_of(region: &MemoryRegion, address: u64, length: usize) -> RegionSlice {
    RegionSlice { address, key: region.local_key(), length }
}

impl Work {
    /// The same for what lies `offset` bytes behind.
    fn at(self, offset: usize) -> Self {
        let behind = |RemoteMemory { address, key }| RemoteMemory {
            address: address.wrapping_add(offset as u64),
            key,
        };
        match self {
            Self::Write(to) => Self::Write(behind(to)),
            Self::Read(from) => Self::Read(behind(from)),
            Self::None => Self::None,
        }
    }
}

impl State {
    /// Moves bytes over all queue pairs. `notice` is what the peer is told behind the last request of each of
    /// so many stripes; `then` follows when all bytes have been moved.
    pub fn carry(
        &self,
        range: RegionSlice,
        work: Work,
        notice: impl Fn(u32) -> Option<Notice>,
        then: Option<OnComplete>,
    ) {
        let RegionSlice { address, key, length } = range;
        let order = if length <= MAX_EAGER_BYTES && then.is_none() {
            // They go with their announcement, as a message of the first path.
            vec![0]
        } else {
            let backlogs: Vec<usize> = self.paths.iter().map(|path| path.backlog()).collect();
            order(&backlogs, self.next_path.fetch_add(1, Ordering::Relaxed))
        };
        let stripes: Vec<_> = split(length, self.paths.len()).collect();
        let all: usize = stripes.iter().map(|(offset, stripe)| requests(*offset, *stripe).len()).sum();
        // Without bytes no request is posted whose end could be seen.
        let (then, at_once) = if length > 0 { (then, None) } else { (None, then) };
        let operation = then.map(|then| Operation::new(all as u32, then));
        for ((offset, stripe), path) in stripes.iter().zip(order) {
            for (offset, length, is_last) in requests(*offset, *stripe) {
                self.paths[path].enqueue(Stripe {
                    segment: Segment { address: address + offset as u64, length: length as u32, key },
                    work: work.at(offset),
                    notice: if is_last { notice(stripes.len() as u32) } else { None },
                    operation: operation.clone(),
                });
            }
        }
        if self.is_over() {
            self.abandon();
        }
        self.pump();
        if let Some(then) = at_once {
            then(Ok(()));
        }
    }

    /// A slot of this side's staging memory.
    pub fn slot(&self, first: u32, length: usize) -> RegionSlice {
        let region = self.staging.region();
        slice_of(region, region.address() + first as u64 * SLOT as u64, length)
    }
}
