//! A block on one thread of the pool, which may leave it where its threads poll and come back.

mod requests;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::barrier::{Barriers, ClusterBarrier};
use super::carrier::Carrier;
use super::context::{BarrierRequest, Launch, POLLS_BEFORE_YIELD, Raised, Request, ThreadContext};
use super::signals::{Outcome, TrapState};
use super::warp::lanes_in;
use crate::fault::ThreadPosition;
use crate::memory::{Arena, SlabStack, StackSlab};

/// Threads of a warp.
const WARP: usize = 32;

type Thread = Coroutine<(), (), Outcome, SlabStack>;

/// Runs blocks of one launch, one after the other, in memory of its own.
///
/// Compiled code knows the contexts by their addresses, so that their number never changes.
pub(super) struct Runner<'l> {
    launch: &'l Launch<'l>,
    arena: Arena,
    traps: &'l TrapState,
    /// One for each thread, or a single one when threads do not wait for each other.
    contexts: Vec<ThreadContext>,
    threads: Vec<Option<Thread>>,
    /// What runs all threads, where they have frames.
    carrier: Carrier,
    warps: Vec<Warp>,
    barriers: Barriers,
    cluster_barrier: ClusterBarrier,
    /// What the contexts name as the shared memory that they reach.
    shared_bases: Box<[u64]>,
}

/// Which lanes of a warp can run and which wait; a bit each.
#[derive(Debug, Clone, Copy, Default)]
struct Warp {
    ready: u32,
    /// At an operation of the warp.
    gathering: u32,
    /// At `activemask`.
    active: u32,
    /// At accesses that lanes make together.
    stepping: u32,
    /// At a barrier of the block.
    barrier: u32,
    /// The barrier that all lanes are at, if they came to it together and nothing is computed there.
    common_barrier: Option<BarrierRequest>,
    /// Gave way to others.
    polling: u32,
    alive: u32,
}

/// How far a block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// All its threads have ended.
    Done,
    /// Some of its threads poll, maybe for what another block does.
    Polling,
    /// All its threads wait, some of them at the barrier of the cluster.
    Waiting,
}

/// Why a block ended early, and which thread did it.
pub(super) type Failure = (Raised, ThreadPosition);

/// What a thread did when it ran.
enum Event {
    Finished,
    Requested(Request),
}

impl<'l> Runner<'l> {
    /// Prepares the contexts that all blocks of a launch share.
    pub(super) fn new(
        launch: &'l Launch<'l>,
        arena: Arena,
        traps: &'l TrapState,
        worker: u32,
        workers: u32,
    ) -> Self {
        // SAFETY: the parameters were checked to fit in front of the workspace, and the arena belongs to this
        // runner.
        unsafe {
            let target = arena.parameters() as *mut u8;
            std::ptr::copy_nonoverlapping(launch.parameters.as_ptr(), target, launch.parameters.len());
        }
        let workspace = match launch.workspace {
            0 if launch.blocks() == 1 => arena.make_workspace(),
            given => given,
        };
        let count = launch.threads();
        let total_shared = launch.static_shared + launch.dynamic_shared;
        let number = if launch.waits { count } else { 1 };
        let carrier = Carrier::new(launch.entry, number, launch.frame_size);
        let mut contexts: Vec<ThreadContext> = (0..number)
            .map(|index| ThreadContext {
                stack_limit: 0,
                shared_base: arena.shared(),
                shared_size: u64::from(total_shared.next_multiple_of(16)),
                local_base: arena.local() + index as u64 * launch.local,
                local_size: launch.local,
                parameters: arena.parameters(),
                tid: [0; 3],
                ntid: launch.block,
                ctaid: [0; 3],
                nctaid: launch.grid,
                lane: 0,
                warp: 0,
                worker,
                workers,
                dynamic_shared: launch.dynamic_shared,
                // The unit in which shared memory is given out.
                total_shared: total_shared.next_multiple_of(128),
                workspace,
                shared_bases: std::ptr::null(),
                cluster_blocks: launch.cluster_blocks() as u64,
                cluster_rank: 0,
                is_explicit_cluster: u32::from(launch.is_explicit_cluster),
                is_lockstep: u32::from(launch.is_lockstep),
                cluster_ctaid: [0; 3],
                cluster_nctaid: launch.cluster,
                clusterid: [0; 3],
                nclusterid: launch.clusters(),
                frame: carrier.frame(index),
                is_stackless: u32::from(launch.frame_size.is_some()),
                local_top: 0,
                variadic_bytes: 0,
                threads_left: 0,
                polls_left: POLLS_BEFORE_YIELD,
                resume_index: 0,
                request: Request::Yield,
                warp_result: 0,
                yielder: std::ptr::null(),
                launch: std::ptr::from_ref(launch).cast(),
            })
            .collect();
        for (index, context) in (0..).zip(&mut contexts) {
            context.set_index(index, launch.block);
        }
        Self {
            launch,
            arena,
            traps,
            contexts,
            threads: (0..if launch.frame_size.is_some() { 0 } else { count }).map(|_| None).collect(),
            carrier,
            warps: vec![Warp::default(); count.div_ceil(WARP)],
            barriers: Barriers::new(count.div_ceil(WARP)),
            cluster_barrier: ClusterBarrier::new(count.div_ceil(WARP)),
            shared_bases: Box::default(),
        }
    }

    /// Where the block's shared memory is.
    pub(super) fn shared_base(&self) -> u64 {
        self.arena.shared()
    }

    /// Makes the block the one with this rank in a cluster: `bases` say where the shared memory of its blocks
    /// is.
    pub(super) fn join_cluster(&mut self, rank: u32, bases: &[u64]) {
        self.shared_bases = std::iter::once(self.shared_base()).chain(bases.iter().copied()).collect();
        let [x, y, _] = self.launch.cluster;
        for context in &mut self.contexts {
            context.shared_bases = self.shared_bases.as_ptr();
            context.cluster_rank = rank;
            context.cluster_ctaid = [rank % x, rank / x % y, rank / (x * y)];
        }
    }

    /// Begins the block in the cluster with these coordinates and runs it until it is done, waits for the
    /// cluster, or has polled for `rounds` rounds of its threads.
    pub(super) fn begin(&mut self, cluster: [u32; 3], rounds: u32) -> Result<BlockState, Failure> {
        let size = self.launch.cluster;
        for context in &mut self.contexts {
            let inner = context.cluster_ctaid;
            context.clusterid = cluster;
            context.ctaid = std::array::from_fn(|axis| cluster[axis] * size[axis] + inner[axis]);
        }
        if self.launch.waits {
            self.make_threads();
            return self.resume_rounds(rounds);
        }
        let result = self.run_round_robin();
        self.stop();
        result.map(|()| BlockState::Done)
    }

    /// Goes on with a block that is not done.
    pub(super) fn resume_rounds(&mut self, rounds: u32) -> Result<BlockState, Failure> {
        let result = self.run_concurrently(rounds);
        match result {
            Ok(BlockState::Polling | BlockState::Waiting) => {}
            // The next block's threads run on it, too.
            Ok(BlockState::Done) if self.launch.frame_size.is_some() => self.traps.leave(),
            _ => self.stop(),
        }
        result
    }

    /// Whether the block has threads that have not ended.
    pub(super) fn is_alive(&self) -> bool {
        self.warps.iter().any(|warp| warp.alive != 0)
    }

    /// Whether any thread has arrived at the barrier of the cluster since that was complete.
    pub(super) fn has_arrivals(&self) -> bool {
        self.cluster_barrier.has_arrivals()
    }

    /// Whether all threads that have not ended have arrived at the barrier of the cluster.
    pub(super) fn has_arrived(&self) -> bool {
        self.warps.iter().enumerate().all(|(index, warp)| self.cluster_barrier.has_all(index, warp.alive))
    }

    /// Lets threads go on that wait at the barrier of the cluster.
    pub(super) fn pass_cluster_barrier(&mut self) {
        for (warp, released) in self.warps.iter_mut().zip(self.cluster_barrier.complete()) {
            warp.ready |= released;
        }
    }

    /// Why no thread of the block, which has some, can go on.
    pub(super) fn deadlock(&self) -> Failure {
        (Raised::Deadlock, self.thread_position(self.first_alive()))
    }

    /// Abandons the block if there is one, and releases the memory.
    pub(super) fn end(mut self) -> Arena {
        self.stop();
        self.arena
    }

    /// Ends the threads that have not ended.
    pub(super) fn stop(&mut self) {
        self.traps.leave();
        self.carrier.discard();
        for thread in &mut self.threads {
            if let Some(mut thread) = thread.take() {
                // SAFETY: what is on its stack are frames of compiled code and of runtime functions that own
                // nothing.
                unsafe { thread.force_reset() };
            }
        }
    }

    fn stacks(&self) -> &StackSlab {
        self.arena.stacks.as_ref().expect("an arena has stacks before it is worked with")
    }

    /// Threads that do not wait for each other run one after the other, all on one coroutine, which is there
    /// to come back from faults.
    fn run_round_robin(&mut self) -> Result<(), Failure> {
        let (count, block, entry) = (self.launch.threads() as u32, self.launch.block, self.launch.entry);
        let mut next = 0;
        while next < count {
            let context: *mut ThreadContext = &mut self.contexts[0];
            // SAFETY: stack 0 is free: the last coroutine that had it is gone.
            let stack = unsafe { self.stacks().stack(0) };
            self.contexts[0].stack_limit = stack.compiled_code_limit();
            let body = move |yielder: &Yielder<(), ()>, ()| {
                // SAFETY: the context outlives the coroutine, and only this coroutine uses it while it runs.
                unsafe {
                    (*context).yielder = yielder;
                    (*context).set_index(next, block);
                    loop {
                        // A kernel that runs the threads of a block in a loop runs these, too.
                        (*context).threads_left = count - 1 - (*context).index();
                        (*context).start();
                        entry(context);
                        if (*context).index() + 1 == count {
                            break;
                        }
                        (*context).advance(block);
                    }
                }
                Outcome::Finished
            };
            self.threads[0] = Some(Thread::with_stack(stack, body));
            loop {
                match self.resume(0)? {
                    Event::Finished => return Ok(()),
                    Event::Requested(Request::Exit) => {
                        next = self.contexts[0].index() + 1;
                        break;
                    }
                    // It polls for what is another kernel's or the program's, which may need this core.
                    Event::Requested(Request::Yield) => std::thread::yield_now(),
                    Event::Requested(_) => {}
                }
            }
            self.discard(0);
        }
        Ok(())
    }

    /// Threads that wait for each other have a frame or a coroutine each.
    fn make_threads(&mut self) {
        let entry = self.launch.entry;
        if self.launch.frame_size.is_some() {
            // SAFETY: stack 0 is the carrier's alone.
            let limit = unsafe { self.stacks().stack(0) }.compiled_code_limit();
            for context in &mut self.contexts {
                context.stack_limit = limit;
                context.start();
            }
        }
        for index in 0..self.threads.len() {
            let context: *mut ThreadContext = &mut self.contexts[index];
            // SAFETY: the stack is free: the coroutine that had it ended with the last block.
            let stack = unsafe { self.stacks().stack(index) };
            self.contexts[index].stack_limit = stack.compiled_code_limit();
            self.contexts[index].start();
            let body = move |yielder: &Yielder<(), ()>, ()| {
                // SAFETY: the context outlives the coroutine, and only this coroutine uses it while it runs.
                unsafe {
                    (*context).yielder = yielder;
                    entry(context);
                }
                Outcome::Finished
            };
            self.threads[index] = Some(Thread::with_stack(stack, body));
        }
        let count = self.launch.threads();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let lanes = (count - index * WARP).min(WARP);
            let alive = if lanes == WARP { u32::MAX } else { (1 << lanes) - 1 };
            *warp = Warp { ready: alive, alive, ..Warp::default() };
        }
        self.barriers.reset();
        self.cluster_barrier.reset();
    }

    /// Warps run in turn, each as far as it can get, until all threads have ended or some have polled in so
    /// many rounds.
    fn run_concurrently(&mut self, rounds: u32) -> Result<BlockState, Failure> {
        let mut left = rounds;
        loop {
            let mut progress = false;
            for warp in 0..self.warps.len() {
                progress |= self.run_warp(warp)?;
            }
            let released = self.release_barriers();
            progress |= released;
            self.resolve_phases();
            let mut polls = false;
            for warp in &mut self.warps {
                polls |= warp.polling != 0;
                warp.ready |= std::mem::take(&mut warp.polling);
            }
            progress |= polls;
            if !self.is_alive() {
                return Ok(BlockState::Done);
            }
            if !progress {
                if self.complete_outsiders() {
                    continue;
                }
                let waits = self.cluster_barrier.has_waiting();
                return if waits { Ok(BlockState::Waiting) } else { Err(self.deadlock()) };
            }
            if polls {
                left = left.saturating_sub(1);
                if left == 0 {
                    return Ok(BlockState::Polling);
                }
                if !released {
                    // What is waited for is another kernel's or the program's, which may need this core.
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Runs a warp until all its lanes wait for others or have ended. Whether any of them ran.
    fn run_warp(&mut self, warp: usize) -> Result<bool, Failure> {
        let mut progress = false;
        loop {
            let ready = std::mem::take(&mut self.warps[warp].ready);
            if self.launch.frame_size.is_some() {
                self.run_lanes(warp, ready)?;
            } else {
                for lane in lanes_in(ready) {
                    self.run_lane(warp, lane)?;
                }
            }
            progress |= ready != 0;
            if !self.complete_gathering(warp) {
                return Ok(progress);
            }
        }
    }

    fn run_lane(&mut self, warp: usize, lane: usize) -> Result<(), Failure> {
        let index = warp * WARP + lane;
        let request = match self.resume(index)? {
            Event::Finished => Request::Finished,
            Event::Requested(request) => request,
        };
        if matches!(request, Request::Exit) {
            self.discard(index);
        }
        self.note(warp, 1 << lane, request);
        Ok(())
    }

    /// Runs these lanes, whose threads have frames, on the carrier, until each waits or has ended.
    fn run_lanes(&mut self, warp: usize, lanes: u32) -> Result<(), Failure> {
        let first = warp * WARP;
        let mut left = lanes;
        while left != 0 {
            let stacks = self.arena.stacks.as_ref().expect("an arena has stacks before it is worked with");
            // SAFETY: the contexts stay where they are, and nothing else uses those of this warp meanwhile.
            // Stack 0 of the arena, which outlives the carrier, is the carrier's alone.
            let run = unsafe {
                let contexts = self.contexts.as_mut_ptr().add(first);
                self.carrier.run(contexts, left, self.traps, || stacks.stack(0))
            };
            let Some((lane, outcome)) = run else { break };
            let index = first + lane;
            let raised = match (outcome, self.contexts[index].request) {
                (Outcome::Finished, Request::Exit) => {
                    self.carrier.discard();
                    left &= !(u32::MAX >> (31 - lane));
                    continue;
                }
                (Outcome::Finished, Request::Fault(raised)) => raised,
                (Outcome::Finished, _) => Raised::Trap,
                (Outcome::Faulted, _) => self.traps.take(),
            };
            return Err((raised, self.thread_position(index)));
        }
        if !self.note_common_barrier(warp, lanes) {
            for lane in lanes_in(lanes) {
                self.note(warp, 1 << lane, self.contexts[first + lane].request);
            }
        }
        Ok(())
    }

    /// Runs a thread until it ends or asks for something.
    fn resume(&mut self, index: usize) -> Result<Event, Failure> {
        let Some(thread) = &mut self.threads[index] else { return Ok(Event::Finished) };
        self.traps.enter(thread.trap_handler());
        match thread.resume(()) {
            CoroutineResult::Yield(()) => match self.context(index).request {
                Request::Fault(raised) => Err((raised, self.thread_position(index))),
                request => Ok(Event::Requested(request)),
            },
            CoroutineResult::Return(Outcome::Finished) => {
                self.threads[index] = None;
                Ok(Event::Finished)
            }
            CoroutineResult::Return(Outcome::Faulted) => {
                Err((self.traps.take(), self.thread_position(index)))
            }
        }
    }

    fn context(&self, index: usize) -> &ThreadContext {
        // Threads that run in turn share one context.
        &self.contexts[index.min(self.contexts.len() - 1)]
    }

    /// Abandons a suspended thread.
    fn discard(&mut self, index: usize) {
        if let Some(mut thread) = self.threads[index].take() {
            // SAFETY: its stack holds frames of compiled code and of runtime functions that own nothing.
            unsafe { thread.force_reset() };
        }
    }

    fn first_alive(&self) -> usize {
        let warp = self.warps.iter().position(|warp| warp.alive != 0).unwrap_or(0);
        warp * WARP + self.warps[warp].alive.trailing_zeros() as usize % WARP
    }

    fn thread_position(&self, index: usize) -> ThreadPosition {
        let context = self.context(index);
        context.thread_position()
    }
}

impl ThreadContext {
    /// Makes this the context of the thread with this index in its block.
    fn set_index(&mut self, index: u32, block: [u32; 3]) {
        let [x, y, _] = block;
        self.tid = [index % x, index / x % y, index / (x * y)];
        self.lane = index % WARP as u32;
        self.warp = index / WARP as u32;
    }

    fn index(&self) -> u32 {
        self.warp * WARP as u32 + self.lane
    }

    /// Makes it that of the next thread: kernels without waits are often so short that divisions would take most of the time.
    fn advance(&mut self, block: [u32; 3]) {
        self.lane += 1;
        if self.lane == WARP as u32 {
            (self.lane, self.warp) = (0, self.warp + 1);
        }
        for (coordinate, size) in self.tid.iter_mut().zip(block) {
            *coordinate += 1;
            if *coordinate < size {
                break;
            }
            *coordinate = 0;
        }
    }

    /// Puts the thread at its start.
    fn start(&mut self) {
        self.local_top = 0;
        self.polls_left = POLLS_BEFORE_YIELD;
        self.resume_index = 0;
    }

    /// Where the thread is, for fault reports.
    pub(super) fn thread_position(&self) -> ThreadPosition {
        // SAFETY: the launch outlives the contexts of its threads.
        let kernel = unsafe { (*self.launch).kernel }.to_owned();
        ThreadPosition { kernel, block: self.ctaid, thread: self.tid }
    }
}
