//! The sixteen barriers of a block, and that of its cluster.

use super::context::{BarrierRequest, Reduction};

/// Barriers a block has, of which programs know the numbers.
const NUMBERED: u32 = 16;

/// The number of the cluster's barrier, which a cluster of one block has to itself.
pub(crate) const CLUSTER_BARRIER: u32 = NUMBERED;

const COUNT: usize = NUMBERED as usize + 1;

/// The place of the barrier that a thread is at; numbers beyond those that programs know begin anew.
fn place(request: &BarrierRequest) -> usize {
    let is_clusters = request.barrier == CLUSTER_BARRIER;
    (if is_clusters { CLUSTER_BARRIER } else { request.barrier % NUMBERED }) as usize
}

#[derive(Debug, Default)]
pub(super) struct Barriers {
    barriers: [Barrier; COUNT],
}

#[derive(Debug, Default, Clone, Copy)]
struct Barrier {
    arrived: u32,
    /// Threads expected; 0 for all that are alive.
    expected: u32,
    /// Of those that arrived, how many had a true predicate, and how many had one at all.
    holding: u32,
    voting: u32,
}

impl Barriers {
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Counts a thread.
    pub(super) fn arrive(&mut self, request: &BarrierRequest) {
        let barrier = &mut self.barriers[place(request)];
        // `bar.arrive` in a loop counts without end.
        barrier.arrived = barrier.arrived.saturating_add(1);
        barrier.expected = request.threads;
        let votes = request.reduction != Reduction::None;
        barrier.voting = barrier.voting.saturating_add(u32::from(votes));
        barrier.holding = barrier.holding.saturating_add(u32::from(votes && request.predicate));
    }

    /// The barriers (a bit each) that everyone expected has reached, with `alive` threads in the block.
    /// Threads that have ended are not waited for.
    pub(super) fn complete(&self, alive: u32) -> u32 {
        let mut complete = 0;
        for (index, barrier) in self.barriers.iter().enumerate() {
            let expected = if barrier.expected == 0 { alive } else { barrier.expected };
            if barrier.arrived > 0 && barrier.arrived >= expected {
                complete |= 1 << index;
            }
        }
        complete
    }

    /// What a thread that waits at one of the `released` barriers gets.
    pub(super) fn warp_result(&self, released: u32, request: &BarrierRequest) -> Option<u64> {
        let index = place(request);
        let barrier = &self.barriers[index];
        (released & 1 << index != 0).then(|| match request.reduction {
            Reduction::None => 0,
            Reduction::Count => u64::from(barrier.holding),
            Reduction::And => u64::from(barrier.holding == barrier.voting),
            Reduction::Or => u64::from(barrier.holding > 0),
        })
    }

    /// Makes the `released` barriers ready to be used again.
    pub(super) fn clear(&mut self, released: u32) {
        for (index, barrier) in self.barriers.iter_mut().enumerate() {
            if released & 1 << index != 0 {
                *barrier = Barrier::default();
            }
        }
    }
}
