//! A cluster on one thread of the pool: blocks that begin together, may wait for each other, and reach each
//! other's shared memory.
//!
//! All blocks of a cluster share a thread, so that its barrier and operations on shared memory need no more
//! synchronisation than those of a block. Without a request for clusters each block is one of its own.

use super::block::{BlockState, Failure, Runner};
use super::context::Launch;
use super::signals::TrapState;

/// Rounds of polling that a block has until the next one of its cluster has its turn.
const POLLING_ROUNDS: u32 = 1;

/// Runs clusters of one launch, one after the other, in memory of its own.
pub(super) struct Cluster<'l> {
    launch: &'l Launch<'l>,
    /// In the order of their ranks.
    blocks: Vec<Runner<'l>>,
}

impl<'l> Cluster<'l> {
    /// Memory for the blocks of a cluster, if there is enough.
    pub(super) fn new(
        launch: &'l Launch<'l>,
        traps: &'l TrapState,
        worker: u32,
        workers: u32,
    ) -> Option<Self> {
        let mut cluster = Self { launch, blocks: Vec::new() };
        for _ in 0..launch.cluster_blocks() {
            let arena = launch
                .space
                .take_arena()
                .map(|mut arena| (arena.make_stacks(launch.threads(), launch.extra_stack), arena));
            match arena {
                Some((true, arena)) => {
                    cluster.blocks.push(Runner::new(launch, arena, traps, worker, workers));
                }
                lacking => {
                    lacking.into_iter().for_each(|(_, arena)| launch.space.return_arena(arena));
                    cluster.end();
                    return None;
                }
            }
        }
        let bases: Vec<u64> = cluster.blocks.iter().map(Runner::shared_base).collect();
        for (rank, block) in (0..).zip(&mut cluster.blocks) {
            block.join_cluster(rank, &bases);
        }
        Some(cluster)
    }

    /// Begins the cluster with this index in the grid and runs it until its blocks are done or have polled for
    /// `rounds` rounds of their threads.
    pub(super) fn begin(&mut self, index: u64, rounds: u32) -> Result<BlockState, Failure> {
        let [x, y, _] = self.launch.clusters().map(u64::from);
        let cluster = [index % x, index / x % y, index / (x * y)].map(|index| index as u32);
        let per_block = self.rounds_per_block(rounds);
        let state = self.each(|block| block.begin(cluster, per_block))?;
        self.run_rounds(state, rounds)
    }

    /// Goes on with a cluster whose blocks poll.
    pub(super) fn resume_rounds(&mut self, rounds: u32) -> Result<BlockState, Failure> {
        let state = self.run_blocks(rounds)?;
        self.run_rounds(state, rounds)
    }

    /// Goes on for the rest of the `rounds`, of which the blocks have had one that they ended in this state.
    fn run_rounds(&mut self, mut state: BlockState, mut rounds: u32) -> Result<BlockState, Failure> {
        while state != BlockState::Done {
            let is_released = self.release_barrier();
            if state == BlockState::Polling {
                rounds = if self.blocks.len() == 1 { 0 } else { rounds.saturating_sub(POLLING_ROUNDS) };
                if rounds == 0 {
                    return Ok(BlockState::Polling);
                }
            } else if !is_released && let Some(block) = self.blocks.iter().find(|block| block.is_alive()) {
                let deadlock = block.deadlock();
                return self.checked(Err(deadlock));
            }
            state = self.run_blocks(rounds)?;
        }
        Ok(BlockState::Done)
    }

    /// Gives each block its turn.
    fn run_blocks(&mut self, rounds: u32) -> Result<BlockState, Failure> {
        let per_block = self.rounds_per_block(rounds);
        self.each(
            |block| if block.is_alive() { block.resume_rounds(per_block) } else { Ok(BlockState::Done) },
        )
    }

    /// Has each block do something. The state of the whole: polling if one of them polls, done if all are.
    fn each(
        &mut self,
        mut run: impl FnMut(&mut Runner<'l>) -> Result<BlockState, Failure>,
    ) -> Result<BlockState, Failure> {
        let mut state = BlockState::Done;
        for index in 0..self.blocks.len() {
            let ran = run(&mut self.blocks[index]);
            match self.checked(ran)? {
                BlockState::Done => {}
                BlockState::Polling => state = BlockState::Polling,
                BlockState::Waiting if state == BlockState::Done => state = BlockState::Waiting,
                BlockState::Waiting => {}
            }
        }
        Ok(state)
    }

    /// Rounds of polling that each block has: a block that is alone need not make room for others.
    fn rounds_per_block(&self, rounds: u32) -> u32 {
        if self.blocks.len() == 1 { rounds } else { POLLING_ROUNDS }
    }

    /// Abandons all blocks where one has failed.
    fn checked(&mut self, ran: Result<BlockState, Failure>) -> Result<BlockState, Failure> {
        if ran.is_err() {
            self.blocks.iter_mut().for_each(Runner::stop);
        }
        ran
    }

    /// Lets threads go on at the barrier of the cluster if all have arrived that have not ended. Whether it does.
    fn release_barrier(&mut self) -> bool {
        let is_complete =
            self.blocks.iter().any(Runner::has_arrivals) && self.blocks.iter().all(Runner::has_arrived);
        if is_complete {
            self.blocks.iter_mut().for_each(Runner::pass_cluster_barrier);
        }
        is_complete
    }

    /// Abandons the blocks if there are any, and returns the memory.
    pub(super) fn end(self) {
        for block in self.blocks {
            self.launch.space.return_arena(block.end());
        }
    }
}
