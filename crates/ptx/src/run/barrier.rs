//! The sixteen barriers of a block, and its threads at the barrier of its cluster.

use super::context::{BarrierRequest, ClusterBarrierRequest, Reduction};

/// Barriers a block has; numbers beyond begin anew.
const COUNT: usize = 16;

/// The place of the barrier that a thread is at.
fn barrier_index(request: &BarrierRequest) -> usize {
    request.barrier as usize % COUNT
}

#[derive(Debug)]
pub(super) struct Barriers {
    barriers: [Barrier; COUNT],
    /// For each barrier and each warp the lanes that have arrived, a bit each.
    lanes: Vec<u32>,
    /// Of those whose lanes have come more than once: the index into `lanes`, and how much more often each
    /// lane has come.
    again: Vec<(usize, [u32; LANES])>,
}

/// Lanes of a warp.
const LANES: usize = u32::BITS as usize;

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
    /// Of a block with so many warps.
    pub(super) fn new(warps: usize) -> Self {
        Self { barriers: [Barrier::default(); COUNT], lanes: vec![0; COUNT * warps], again: Vec::new() }
    }

    pub(super) fn reset(&mut self) {
        self.barriers.fill(Barrier::default());
        self.lanes.fill(0);
        self.again.clear();
    }

    fn lanes_at(&self, index: usize) -> &[u32] {
        let warps = self.lanes.len() / COUNT;
        &self.lanes[index * warps..(index + 1) * warps]
    }

    /// Counts a thread: a lane of a warp, given as its bit.
    pub(super) fn arrive(&mut self, request: &BarrierRequest, warp: usize, lane: u32) {
        let (index, warps) = (barrier_index(request), self.lanes.len() / COUNT);
        let slot = index * warps + warp;
        let lanes = &mut self.lanes[slot];
        if *lanes & lane != 0 {
            // Lanes that run apart come again before others have come at all.
            let known = self.again.iter().position(|(known, _)| *known == slot);
            let known = known.unwrap_or_else(|| {
                self.again.push((slot, [0; LANES]));
                self.again.len() - 1
            });
            let count = &mut self.again[known].1[lane.trailing_zeros() as usize];
            *count = count.saturating_add(1);
        }
        *lanes |= lane;
        let barrier = &mut self.barriers[index];
        // `bar.arrive` in a loop counts without end.
        barrier.arrived = barrier.arrived.saturating_add(1);
        barrier.expected = request.threads;
        let votes = request.reduction != Reduction::None;
        barrier.voting = barrier.voting.saturating_add(u32::from(votes));
        barrier.holding = barrier.holding.saturating_add(u32::from(votes && request.predicate));
    }

    /// Counts all lanes of a warp that have not ended, which come with the same request, without a predicate.
    pub(super) fn arrive_all(&mut self, request: &BarrierRequest, warp: usize, lanes: u32) {
        let (index, warps) = (barrier_index(request), self.lanes.len() / COUNT);
        if self.lanes[index * warps + warp] & lanes != 0 {
            return (0..u32::BITS)
                .map(|lane| 1 << lane)
                .filter(|lane| lanes & lane != 0)
                .for_each(|lane| self.arrive(request, warp, lane));
        }
        self.lanes[index * warps + warp] |= lanes;
        let barrier = &mut self.barriers[index];
        barrier.arrived = barrier.arrived.saturating_add(lanes.count_ones());
        barrier.expected = request.threads;
    }

    /// The barriers (a bit each) that everyone expected has reached; `alive` gives the lanes of each warp
    /// that have not ended, which are not waited for. Where a number of threads is expected, a warp counts as
    /// 32 of them, even if it has fewer, once all of its lanes that have not ended have arrived, as on a GPU.
    pub(super) fn complete(&self, alive: impl Fn(usize) -> u32) -> u32 {
        let mut complete = 0;
        for (index, barrier) in self.barriers.iter().enumerate() {
            if barrier.arrived == 0 {
                continue;
            }
            let lanes = || self.lanes_at(index).iter().enumerate();
            let is_complete = if barrier.expected == 0 {
                lanes().all(|(warp, arrived)| alive(warp) & !arrived == 0)
            } else {
                let warps = lanes().map(|(warp, arrived)| self.arrivals(index, warp, *arrived, alive(warp)));
                let threads = warps.fold(0, u32::saturating_add).saturating_mul(u32::BITS);
                threads.max(barrier.arrived) >= barrier.expected
            };
            complete |= u32::from(is_complete) << index;
        }
        complete
    }

    /// How often a warp has arrived as a whole: as often as the lane that has come least often, of those that
    /// have not ended.
    fn arrivals(&self, index: usize, warp: usize, arrived: u32, alive: u32) -> u32 {
        if arrived == 0 || alive & !arrived != 0 {
            return 0;
        }
        let slot = index * (self.lanes.len() / COUNT) + warp;
        let Some((_, again)) = self.again.iter().find(|(known, _)| *known == slot) else { return 1 };
        let counting = if alive == 0 { arrived } else { alive };
        let of_lanes = again.iter().enumerate().filter(|(lane, _)| counting & 1 << lane != 0);
        of_lanes.map(|(_, count)| *count).min().unwrap_or(0).saturating_add(1)
    }

    /// What a thread that waits at one of the `released` barriers gets.
    pub(super) fn warp_result(&self, released: u32, request: &BarrierRequest) -> Option<u64> {
        let index = barrier_index(request);
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
        let warps = self.lanes.len() / COUNT;
        for (index, barrier) in self.barriers.iter_mut().enumerate() {
            if released & 1 << index != 0 {
                *barrier = Barrier::default();
                self.lanes[index * warps..(index + 1) * warps].fill(0);
            }
        }
        self.again.retain(|(slot, _)| released & 1 << (slot / warps) == 0);
    }
}

/// The threads of a block at the barrier of its cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterBarrier {
    warps: Vec<Arrivals>,
    /// Whether a thread has arrived since the barrier was last complete.
    has_arrivals: bool,
    /// Threads that wait.
    waiting: u32,
}

/// Lanes of a warp at the barrier of the cluster; a bit each.
#[derive(Debug, Default, Clone, Copy)]
struct Arrivals {
    /// Arrived since the barrier was last complete.
    arrived: u32,
    /// Of those that arrived before, the ones that have not been at the wait yet.
    passed: u32,
    waiting: u32,
}

impl ClusterBarrier {
    pub(super) fn new(warps: usize) -> Self {
        Self { warps: vec![Arrivals::default(); warps], ..Self::default() }
    }

    pub(super) fn reset(&mut self) {
        self.warps.fill(Arrivals::default());
        (self.has_arrivals, self.waiting) = (false, 0);
    }

    /// Takes note of a lane, given as its bit. Whether it goes on at once.
    pub(super) fn arrive_or_wait(&mut self, warp: usize, lane: u32, request: ClusterBarrierRequest) -> bool {
        let arrivals = &mut self.warps[warp];
        match request {
            ClusterBarrierRequest::Arrive => {
                arrivals.arrived |= lane;
                self.has_arrivals = true;
                true
            }
            ClusterBarrierRequest::Wait if arrivals.passed & lane != 0 => {
                arrivals.passed &= !lane;
                true
            }
            ClusterBarrierRequest::Wait => {
                arrivals.waiting |= lane;
                self.waiting += 1;
                false
            }
        }
    }

    /// Whether a thread waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a thread has arrived since the barrier was last complete.
    pub(super) fn has_arrivals(&self) -> bool {
        self.has_arrivals
    }

    /// Whether all lanes of a warp that are `alive` have arrived: those that have ended are not waited for.
    pub(super) fn has_all(&self, warp: usize, alive: u32) -> bool {
        alive & !self.warps[warp].arrived == 0
    }

    /// Makes the barrier ready to be used again, and gives the lanes of each warp that go on.
    pub(super) fn complete(&mut self) -> impl Iterator<Item = u32> {
        (self.has_arrivals, self.waiting) = (false, 0);
        self.warps.iter_mut().map(|arrivals| {
            let waiting = std::mem::take(&mut arrivals.waiting);
            arrivals.passed |= std::mem::take(&mut arrivals.arrived) & !waiting;
            waiting
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(threads: u32) -> BarrierRequest {
        BarrierRequest { barrier: 1, threads, predicate: false, waits: false, reduction: Reduction::None }
    }

    #[test]
    fn lanes_that_run_apart_count_as_their_warp_once_all_have_come() {
        let all = |_| u32::MAX;
        let mut barriers = Barriers::new(2);
        // Each lane of a warp comes three times before the next one does.
        for lane in 0..32 {
            for _ in 0..3 {
                barriers.arrive(&arrive(128), 0, 1 << lane);
            }
            assert_eq!(barriers.complete(all), 0, "96 threads of 128 at most");
        }
        for lane in 0..31 {
            barriers.arrive(&arrive(128), 1, 1 << lane);
        }
        // 96 and 31 threads have come, and the last one as a warp.
        assert_eq!(barriers.complete(all), 0);
        barriers.arrive(&arrive(128), 1, 1 << 31);
        assert_eq!(barriers.complete(all), 1 << 1);
        barriers.clear(1 << 1);
        barriers.arrive(&arrive(32), 0, 1);
        assert_eq!(barriers.complete(all), 0, "nothing is left of what had come before");
        assert_eq!(barriers.complete(|_| 1), 1 << 1, "lanes that have ended are not waited for");
    }

    #[test]
    fn a_lane_that_comes_often_does_not_stand_for_its_warp() {
        let mut barriers = Barriers::new(1);
        for _ in 0..3 {
            barriers.arrive(&arrive(64), 0, 1);
        }
        (1..32).for_each(|lane| barriers.arrive(&arrive(64), 0, 1 << lane));
        assert_eq!(barriers.complete(|_| u32::MAX), 0, "one warp has come once");
        (1..32).for_each(|lane| barriers.arrive(&arrive(64), 0, 1 << lane));
        assert_eq!(barriers.complete(|_| u32::MAX), 1 << 1);
    }
}
