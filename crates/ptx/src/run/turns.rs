//! Block scheduler: which cluster of blocks a thread of the pool runs. What is said of blocks here is true of clusters,
//! which have but one block unless a launch asks for more.
//!
//! A block that polls may wait for one that has not begun. Whoever meets such a block leaves it, begins the
//! next one, and comes back: as many blocks are under way as a GPU would have on its multiprocessors, each
//! gets its turn, and those of a larger grid begin in their order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::block::BlockState;
use super::cluster::Cluster;
use super::context::Launch;
use super::signals::TrapState;
use crate::limits::{MAX_BLOCKS_PER_WORKER, MAX_THREADS_PER_WORKER, WARP_SIZE};

/// Rounds of polling after which a block that has just begun is left for the next one: most that poll wait for
/// threads of their own.
const FIRST_ROUNDS: u32 = 16;
/// Rounds of polling until the next block that polls has its turn.
const FURTHER_ROUNDS: u32 = 2;

/// How many clusters of a grid may have begun and not ended, where `workers` threads work on it and a cluster has so
/// many blocks of so many threads.
pub(crate) fn max_clusters(threads: u64, blocks: u32, workers: u32) -> u32 {
    let threads = (threads as u32).next_multiple_of(WARP_SIZE).max(WARP_SIZE);
    let each = (MAX_THREADS_PER_WORKER / threads).clamp(1, MAX_BLOCKS_PER_WORKER);
    (each / blocks.max(1)).max(1).saturating_mul(workers)
}

/// The clusters that no thread has begun, as one claims them.
struct Claims<'l> {
    launch: &'l Launch<'l>,
    clusters: u64,
    /// Claiming several at once keeps the counter out of the way of small ones. Those that wait for
    /// each other begin in their order.
    chunk: u64,
    next: u64,
    end: u64,
}

impl Claims<'_> {
    fn take(&mut self) -> Option<u64> {
        if self.next == self.end {
            let first = self.launch.progress.next_cluster.fetch_add(self.chunk, Ordering::Relaxed);
            // The counter never comes near its end: a grid has fewer than 2^63 blocks, and a thread that found
            // none left asks no more.
            self.next = first.min(self.clusters);
            self.end = first.saturating_add(self.chunk).min(self.clusters);
        }
        let index = self.next;
        (index < self.end).then(|| {
            self.next += 1;
            index
        })
    }
}

impl Launch<'_> {
    /// Runs clusters until there are none left. Called by every thread that helps.
    pub(crate) fn work(&self, workers: u32) {
        let worker = self.progress.workers.fetch_add(1, Ordering::Relaxed);
        let state = TrapState::default();
        state.scope(|| {
            let new_cluster = || Cluster::new(self, &state, worker, workers);
            let Some(first) = new_cluster() else {
                return self.fail(self.out_of_resources(
                    "no memory could be reserved for the shared and local memory of a block and its threads' stacks",
                ));
            };
            let (mut idle, mut polling) = (vec![first], VecDeque::new());
            self.run_in_rounds(&mut idle, &mut polling, &new_cluster, workers);
            idle.into_iter().chain(polling).for_each(Cluster::end);
        });
    }

    fn run_in_rounds<'l>(
        &'l self,
        idle: &mut Vec<Cluster<'l>>,
        polling: &mut VecDeque<Cluster<'l>>,
        new_cluster: &dyn Fn() -> Option<Cluster<'l>>,
        workers: u32,
    ) {
        let blocks = self.cluster_blocks() as u32;
        let clusters = self.blocks() / u64::from(blocks);
        let limit = max_clusters(self.threads() as u64, blocks, workers);
        let chunk = if self.waits { 1 } else { (clusters / (u64::from(workers) * 8)).clamp(1, 256) };
        let mut claims = Claims { launch: self, clusters, chunk, next: 0, end: 0 };
        let (mut is_more, mut is_memory) = (true, true);
        while !self.progress.stop.load(Ordering::Relaxed) {
            // A block that has begun and polls needs this thread, as somebody may wait for that block.
            if polling.is_empty() {
                self.pool.join_more_urgent(self.priority);
            }
            // Who has no block takes one, however many others have: the earliest block waits for none.
            let may_begin = is_more
                && (polling.is_empty() || is_memory && self.progress.started.load(Ordering::Relaxed) < limit);
            let cluster = if may_begin { idle.pop().or_else(new_cluster) } else { None };
            is_memory &= cluster.is_some() || !may_begin;
            let (cluster, ran) = if let Some(mut cluster) = cluster {
                let Some(index) = claims.take() else {
                    is_more = false;
                    idle.push(cluster);
                    continue;
                };
                self.progress.started.fetch_add(1, Ordering::Relaxed);
                let ran = cluster.begin(index, FIRST_ROUNDS);
                (cluster, ran)
            } else {
                let Some(mut cluster) = polling.pop_front() else { return };
                // What is waited for may be another thread's, which may need this core.
                std::thread::yield_now();
                let ran = cluster.resume_rounds(FURTHER_ROUNDS);
                (cluster, ran)
            };
            if ran == Ok(BlockState::Polling) {
                polling.push_back(cluster);
                continue;
            }
            self.progress.started.fetch_sub(1, Ordering::Relaxed);
            if let Err((raised, at)) = ran {
                self.fail(self.fault(raised, at));
            }
            idle.push(cluster);
        }
    }
}
