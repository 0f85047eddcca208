//! Running kernels: a grid's blocks on the threads of a pool, a block's threads as coroutines.

pub(crate) mod barrier;
mod block;
pub(crate) mod context;
pub(crate) mod functions;
mod host;
pub(crate) mod mbarrier;
mod printf;
pub(crate) mod rounding;
mod signals;
mod warp;

use std::sync::atomic::Ordering;

pub(crate) use context::{Entry, Launch, Progress};
pub use host::Host;

impl Launch<'_> {
    /// Runs blocks until there are none left. Called by every thread that helps.
    pub(crate) fn work(&self, workers: u32) {
        let Some(mut arena) = self.space.take_arena() else {
            self.fail(
                self.out_of_resources("no memory could be reserved for the block's shared and local memory"),
            );
            return;
        };
        if !arena.make_stacks() {
            self.fail(
                self.out_of_resources("no memory could be reserved for the stacks of the block's threads"),
            );
            self.space.return_arena(arena);
            return;
        }
        let worker = self.progress.workers.fetch_add(1, Ordering::Relaxed);
        let state = signals::TrapState::default();
        state.scope(|| {
            let mut runner = block::Runner::new(self, &arena, &state, worker, workers);
            let blocks = self.blocks();
            // Claiming several blocks at once keeps the counter out of the way of small ones.
            let chunk = (blocks / (u64::from(workers) * 8)).clamp(1, 256);
            while !self.progress.stop.load(Ordering::Relaxed) {
                let first = self.progress.next_block.fetch_add(chunk, Ordering::Relaxed);
                if first >= blocks {
                    break;
                }
                for index in first..(first + chunk).min(blocks) {
                    if self.progress.stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err((raised, at)) = runner.run(index) {
                        self.fail(self.fault(raised, at));
                    }
                }
            }
        });
        self.space.return_arena(arena);
    }
}
