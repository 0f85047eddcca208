//! Block scheduler: which block a thread of the pool runs.
//!
//! A block that polls may wait for one that has not begun. Whoever meets such a block leaves it, begins the
//! next one, and comes back: as many blocks are under way as a GPU would have on its multiprocessors, each
//! gets its turn, and those of a larger grid begin in their order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::block::{BlockState, Runner};
use super::context::Launch;
use super::signals::TrapState;
use crate::limits::{MAX_BLOCKS_PER_WORKER, MAX_THREADS_PER_WORKER, WARP_SIZE};

/// Rounds of polling after which a block that has just begun is left for the next one: most that poll wait for
/// threads of their own.
const FIRST_ROUNDS: u32 = 16;
/// Rounds of polling until the next block that polls has its turn.
const FURTHER_ROUNDS: u32 = 2;

/// How many blocks of a grid may have begun and not ended, where `workers` threads work on it.
pub(crate) fn max_started(threads: u64, workers: u32) -> u32 {
    let threads = (threads as u32).next_multiple_of(WARP_SIZE).max(WARP_SIZE);
    (MAX_THREADS_PER_WORKER / threads).clamp(1, MAX_BLOCKS_PER_WORKER).saturating_mul(workers)
}

/// The blocks that no thread has begun, as one claims them.
struct Claims<'l> {
    launch: &'l Launch<'l>,
    blocks: u64,
    /// Claiming several blocks at once keeps the counter out of the way of small ones. Those that wait for
    /// each other begin in their order.
    chunk: u64,
    next: u64,
    end: u64,
}

impl Claims<'_> {
    fn take(&mut self) -> Option<u64> {
        if self.next == self.end {
            let first = self.launch.progress.next_block.fetch_add(self.chunk, Ordering::Relaxed);
            // The counter never comes near its end: a grid has fewer than 2^63 blocks, and a thread that found
            // none left asks no more.
            self.next = first.min(self.blocks);
            self.end = first.saturating_add(self.chunk).min(self.blocks);
        }
        let index = self.next;
        (index < self.end).then(|| {
            self.next += 1;
            index
        })
    }
}

impl Launch<'_> {
    /// Runs blocks until there are none left. Called by every thread that helps.
    pub(crate) fn work(&self, workers: u32) {
        let worker = self.progress.workers.fetch_add(1, Ordering::Relaxed);
        let state = TrapState::default();
        state.scope(|| {
            let Some(first) = self.runner(&state, worker, workers) else {
                return self.fail(self.out_of_resources(
                    "no memory could be reserved for the shared and local memory of a block and its threads' stacks",
                ));
            };
            let (mut idle, mut polling) = (vec![first], VecDeque::new());
            self.run_in_rounds(&mut idle, &mut polling, || self.runner(&state, worker, workers), workers);
            idle.into_iter().chain(polling).for_each(|runner| self.space.return_arena(runner.end()));
        });
    }

    fn run_in_rounds<'l>(
        &'l self,
        idle: &mut Vec<Runner<'l>>,
        polling: &mut VecDeque<Runner<'l>>,
        new_runner: impl Fn() -> Option<Runner<'l>>,
        workers: u32,
    ) {
        let blocks = self.blocks();
        let most = max_started(self.threads() as u64, workers);
        let chunk = if self.waits { 1 } else { (blocks / (u64::from(workers) * 8)).clamp(1, 256) };
        let mut claims = Claims { launch: self, blocks, chunk, next: 0, end: 0 };
        let (mut is_more, mut is_memory) = (true, true);
        while !self.progress.stop.load(Ordering::Relaxed) {
            // A block that has begun and polls needs this thread, as somebody may wait for that block.
            if polling.is_empty() {
                self.pool.join_more_urgent(self.priority);
            }
            // Who has no block takes one, however many others have: the earliest block waits for none.
            let may_begin = is_more
                && (polling.is_empty() || is_memory && self.progress.started.load(Ordering::Relaxed) < most);
            let runner = if may_begin { idle.pop().or_else(&new_runner) } else { None };
            is_memory &= runner.is_some() || !may_begin;
            let (runner, ran) = if let Some(mut runner) = runner {
                let Some(index) = claims.take() else {
                    is_more = false;
                    idle.push(runner);
                    continue;
                };
                self.progress.started.fetch_add(1, Ordering::Relaxed);
                let ran = runner.begin(index, FIRST_ROUNDS);
                (runner, ran)
            } else {
                let Some(mut runner) = polling.pop_front() else { return };
                // What is waited for may be another thread's, which may need this core.
                std::thread::yield_now();
                let ran = runner.resume_rounds(FURTHER_ROUNDS);
                (runner, ran)
            };
            if ran == Ok(BlockState::Polling) {
                polling.push_back(runner);
                continue;
            }
            self.progress.started.fetch_sub(1, Ordering::Relaxed);
            if let Err((raised, at)) = ran {
                self.fail(self.fault(raised, at));
            }
            idle.push(runner);
        }
    }

    /// Memory for a block more, if there is any.
    fn runner<'l>(&'l self, traps: &'l TrapState, worker: u32, workers: u32) -> Option<Runner<'l>> {
        let mut arena = self.space.take_arena()?;
        if arena.make_stacks() {
            return Some(Runner::new(self, arena, traps, worker, workers));
        }
        self.space.return_arena(arena);
        None
    }
}
