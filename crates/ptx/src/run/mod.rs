//! Running kernels: a grid's blocks on the threads of a pool, a block's threads as coroutines.

pub(crate) mod barrier;
mod block;
pub(crate) mod context;
pub(crate) mod functions;
pub(crate) mod mbarrier;
mod printf;
pub(crate) mod rounding;
mod signals;
mod stack;
mod warp;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::fault::{Fault, ThreadPlace};
use crate::memory::AddressSpace;
use context::{Raised, ThreadContext};
use stack::StackSlab;

/// What a kernel says to the outside.
///
/// Called from any thread of the pool, what is told by one at a time for each launch.
pub trait Host: Sync {
    /// The output of one `printf`, whole.
    fn print(&self, text: &[u8]);
    /// A device-side `assert` failed; the launch ends with [`Fault::Assert`].
    fn assertion(&self, message: &str);
    /// A thread sets the value that steers a conditional node of a graph; false when nothing has this handle,
    /// which ends the launch with [`Fault::IllegalAddress`].
    fn set_condition(&self, handle: u64, value: u32) -> bool;
}

/// The native code of a kernel.
pub(crate) type Entry = unsafe extern "C" fn(*mut ThreadContext);

/// Threads of a warp.
pub(crate) const WARP: usize = 32;

/// The memory that one block at a time uses: parameters, shared memory, and the local memory of its threads.
///
/// It is part of the address space, so that generic addresses reach it, and is reused from block to block.
/// Accesses in the `.shared` and `.local` windows are checked to the byte of what the block and the thread
/// have. A generic address is not: one that runs past a thread's local memory meets that of the next thread
/// of the block, and one that runs past the block's shared memory meets unused bytes, up to the pages without
/// access around each part.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    /// Made when the arena is first used.
    stacks: Option<StackSlab>,
}

impl Arena {
    /// Bytes of address an arena takes.
    pub(crate) const SPAN: u64 = 256 << 20;
    const PARAMETERS: Range<u64> = 0x1000..0xa000;
    const SHARED: Range<u64> = 0x1_0000..0x5_0000;
    /// Offset of the part of shared memory that belongs to the system, behind all that a block may have.
    pub(crate) const RESERVED_SHARED: Range<u32> = 0x3_f000..0x3_f400;
    const LOCAL: Range<u64> = (1 << 20)..(Self::SPAN - (1 << 20));
    /// The parts that may be accessed, relative to the start.
    pub(crate) const WRITABLE: [Range<u64>; 3] = [Self::PARAMETERS, Self::SHARED, Self::LOCAL];

    pub(crate) fn new(base: u64) -> Self {
        Self { base, stacks: None }
    }

    /// Bytes of local memory each of `threads` threads can have.
    pub(crate) fn local_limit(threads: u64) -> u64 {
        (Self::LOCAL.end - Self::LOCAL.start) / threads.max(1)
    }

    /// Reserves stacks for the threads of a block, unless the arena has them. Returns whether it has them
    /// now.
    fn make_stacks(&mut self) -> bool {
        if self.stacks.is_none() {
            self.stacks = StackSlab::new(crate::MAX_THREADS_PER_BLOCK as usize);
        }
        self.stacks.is_some()
    }

    /// Where the workspace of a grid lies: two words, its size in bytes and the barrier of the grid, which
    /// programs find by `%envreg1` (the upper half of the address) and `%envreg2`, as NVIDIA's cooperative
    /// groups do.
    fn workspace(&self) -> u64 {
        self.base + Self::PARAMETERS.end - 64
    }

    fn parameters(&self) -> u64 {
        self.base + Self::PARAMETERS.start
    }

    fn shared(&self) -> u64 {
        self.base + Self::SHARED.start
    }

    fn local(&self) -> u64 {
        self.base + Self::LOCAL.start
    }
}

/// A grid that is being run.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) entry: Entry,
    /// Whether threads wait for each other, so that each needs a coroutine of its own.
    pub(crate) waits: bool,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Static shared memory; the dynamic part follows it.
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    /// Bytes of local memory for each thread.
    pub(crate) local: u64,
    pub(crate) parameters: &'a [u8],
    pub(crate) space: &'a AddressSpace,
    pub(crate) host: &'a dyn Host,
    pub(crate) progress: Progress,
}

/// How far a launch has come, shared by the threads that work on it.
#[derive(Default)]
pub(crate) struct Progress {
    next_block: AtomicU64,
    stop: AtomicBool,
    workers: AtomicU32,
    fault: Mutex<Option<Fault>>,
    output: Mutex<()>,
}

impl Launch<'_> {
    fn blocks(&self) -> u64 {
        self.grid.iter().map(|&count| u64::from(count)).product()
    }

    fn threads(&self) -> usize {
        self.block.iter().map(|&count| count as usize).product()
    }

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

    fn out_of_resources(&self, reason: &str) -> Fault {
        Fault::OutOfResources { kernel: self.kernel.to_owned(), reason: reason.to_owned() }
    }

    /// Ends the launch with a fault; the first one counts.
    fn fail(&self, fault: Fault) {
        self.progress.fault.lock().get_or_insert(fault);
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    /// The fault that ended the launch, once all workers are done.
    pub(crate) fn into_result(self) -> Result<(), Fault> {
        match self.progress.fault.into_inner() {
            None => Ok(()),
            Some(fault) => Err(fault),
        }
    }

    fn fault(&self, raised: Raised, at: ThreadPlace) -> Fault {
        match raised {
            Raised::IllegalAddress(address) => Fault::IllegalAddress { address, at },
            Raised::Misaligned { address, size } => Fault::Misaligned { address, size, at },
            Raised::Trap => Fault::Trap { at },
            Raised::Assert => Fault::Assert { message: format!("{at} failed an assertion"), at },
            Raised::StackOverflow => Fault::StackOverflow { at },
            Raised::IllegalInstruction(reason) => Fault::IllegalInstruction { reason: reason.to_owned(), at },
            Raised::Deadlock => Fault::Deadlock { at },
        }
    }

    pub(crate) fn print(&self, text: &[u8]) {
        let _one_at_a_time = self.progress.output.lock();
        self.host.print(text);
    }

    pub(crate) fn set_condition(&self, handle: u64, value: u32) -> bool {
        self.host.set_condition(handle, value)
    }

    /// Reports a failed assertion of the thread at `at` and ends the launch.
    pub(crate) fn assertion(&self, message: String, at: ThreadPlace) {
        {
            let _one_at_a_time = self.progress.output.lock();
            self.host.assertion(&message);
        }
        self.fail(Fault::Assert { message, at });
    }
}
