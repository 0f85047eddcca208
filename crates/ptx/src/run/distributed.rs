//! Distributed shared memory: addresses of the shared memory of a cluster.
//!
//! An address in the `.shared::cluster` window is an offset in the block's own shared memory, as one in the
//! `.shared::cta` window is, or has the rank of a block plus one in the bits from 24 on: then it means the same
//! to all blocks of the cluster. A generic address is that of the memory itself.

use super::context::ThreadContext;
use crate::limits::MAX_CLUSTER_BLOCKS;
use crate::memory::Arena;

/// Where the rank begins in an address of the `.shared::cluster` window.
pub(crate) const RANK_AT: u32 = 24;
/// The part of such an address that is an offset.
pub(crate) const OFFSET: u64 = (1 << RANK_AT) - 1;
/// What stands for the rank where there is no such block.
const NO_BLOCK: u64 = 0xff;
/// The rank of an address that lies in no block.
pub(crate) const NO_RANK: u32 = u32::MAX;

const _: () = assert!(Arena::SHARED_WINDOW <= OFFSET && (MAX_CLUSTER_BLOCKS as u64) < NO_BLOCK);

/// The shared memory of the cluster, as one of its threads sees it.
struct ClusterMemory<'t> {
    /// The base of the block's own.
    own: u64,
    /// Those of the cluster's blocks, by rank.
    bases: &'t [u64],
    rank: u32,
}

impl ClusterMemory<'_> {
    /// The rank and offset of an address of the `.shared::cluster` window.
    fn of_window(&self, address: u64) -> Option<(u32, u64)> {
        match address >> RANK_AT {
            0 => Some((self.rank, address)),
            number if number <= self.bases.len() as u64 => Some((number as u32 - 1, address & OFFSET)),
            _ => None,
        }
    }

    /// The rank and offset of a generic address.
    fn of_generic(&self, address: u64) -> Option<(u32, u64)> {
        let offset =
            |base: u64| Some(address.wrapping_sub(base)).filter(|&offset| offset < Arena::SHARED_WINDOW);
        if let Some(offset) = offset(self.own) {
            return Some((self.rank, offset));
        }
        (0..).zip(self.bases).find_map(|(rank, &base)| Some((rank, offset(base)?)))
    }

    fn base(&self, rank: u32) -> Option<u64> {
        self.bases.get(rank as usize).copied()
    }
}

/// # Safety
/// `thread` is the context of a thread whose block is in a cluster.
unsafe fn cluster_memory<'t>(thread: *const ThreadContext) -> ClusterMemory<'t> {
    // SAFETY: the caller's thread is in a cluster; the runner of the block keeps the bases, one more than
    // there are blocks.
    unsafe {
        let thread = &*thread;
        let bases = std::slice::from_raw_parts(thread.shared_bases.add(1), thread.cluster_blocks as usize);
        ClusterMemory { own: thread.shared_base, bases, rank: thread.cluster_rank }
    }
}

macro_rules! window_functions {
    ($($(#[$comment:meta])* fn $name:ident($memory:ident $(, $argument:ident: $ty:ty)*) -> $result:ty $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// Called by compiled code only, with the context of the running thread.
            pub(crate) unsafe extern "C" fn $name(thread: *const ThreadContext $(, $argument: $ty)*) -> $result {
                // SAFETY: compiled code passes the context it was given.
                let $memory = unsafe { cluster_memory(thread) };
                $body
            }
        )*
    };
}

window_functions! {
    /// `mapa.shared::cluster`. Where there is no such block, an address that none has.
    fn map_in_window(memory, address: u64, rank: u32) -> u64 {
        let offset = memory.of_window(address).filter(|_| memory.base(rank).is_some()).map(|(_, offset)| offset);
        match offset {
            Some(offset) => (u64::from(rank) + 1) << RANK_AT | offset,
            None => NO_BLOCK << RANK_AT | address & OFFSET,
        }
    }

    /// `mapa` of a generic address. Where there is no such block, an address that nothing has.
    fn map_generic(memory, address: u64, rank: u32) -> u64 {
        memory.of_generic(address).zip(memory.base(rank)).map_or(0, |((_, offset), base)| base + offset)
    }

    /// `getctarank.shared::cluster`
    fn rank_in_window(memory, address: u64) -> u32 {
        memory.of_window(address).map_or(NO_RANK, |(rank, _)| rank)
    }

    /// `getctarank` of a generic address; whether it is shared memory of the cluster at all.
    fn rank_of_generic(memory, address: u64) -> u32 {
        memory.of_generic(address).map_or(NO_RANK, |(rank, _)| rank)
    }

    /// `cvta.to.shared`, where other blocks' memory can be meant.
    fn generic_to_window(memory, address: u64) -> u64 {
        match memory.of_generic(address) {
            Some((rank, offset)) if rank != memory.rank => (u64::from(rank) + 1) << RANK_AT | offset,
            _ => address.wrapping_sub(memory.own),
        }
    }

    /// `cvta.shared`, where other blocks' memory can be meant.
    fn window_to_generic(memory, address: u64) -> u64 {
        let base = memory.of_window(address).and_then(|(rank, offset)| Some((memory.base(rank)?, offset)));
        base.map_or_else(|| memory.own.wrapping_add(address), |(base, offset)| base + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_means_the_same_to_all_blocks_and_is_none_without_a_block() {
        let bases = [0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000];
        let of = |rank: u32| ClusterMemory { own: bases[rank as usize], bases: &bases, rank };
        assert_eq!((of(1).of_window(0x40), of(2).of_window(0x40)), (Some((1, 0x40)), Some((2, 0x40))));
        let third = 3 << RANK_AT | 0x40;
        assert_eq!((of(0).of_window(third), of(2).of_window(third)), (Some((2, 0x40)), Some((2, 0x40))));
        for address in [4 << RANK_AT, NO_BLOCK << RANK_AT, u64::MAX, 1 << 32] {
            assert_eq!(of(0).of_window(address), None, "{address:#x}");
        }
        assert_eq!(of(0).of_generic(bases[2] + 8), Some((2, 8)));
        assert_eq!(of(2).of_generic(bases[2] + 8), Some((2, 8)));
        for address in [0, bases[0] - 1, bases[1] + Arena::SHARED_WINDOW, u64::MAX] {
            assert_eq!(of(1).of_generic(address), None, "{address:#x}");
        }
    }
}
