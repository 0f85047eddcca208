//! What compiled code knows about the thread it runs for, and about the launch that this belongs to.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use corosensei::Yielder;
use parking_lot::Mutex;

use super::host::Host;
use crate::fault::{Fault, ThreadPosition};
use crate::memory::AddressSpace;
use crate::pool::Pool;

/// Steps of polling that a thread may take before others run; a power of two large enough to make the switch
/// cheap.
pub(crate) const POLLS_BEFORE_YIELD: u32 = 64;

/// State of one thread, read and written by compiled code at fixed offsets.
///
/// Everything up to `local_top` is constant while a thread runs, and compiled code relies on that.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadContext {
    /// Lowest stack address that compiled code may use; what lies below is for the runtime's own calls.
    pub(crate) stack_limit: u64,
    /// Base of the block's shared memory; shared addresses are offsets from it.
    pub(crate) shared_base: u64,
    /// Bytes of shared memory, static and dynamic, rounded up to 16.
    pub(crate) shared_size: u64,
    /// Base of the thread's local memory; local addresses are offsets from it.
    pub(crate) local_base: u64,
    /// Bytes of local memory.
    pub(crate) local_size: u64,
    /// Address of the kernel's parameters.
    pub(crate) parameters: u64,
    pub(crate) tid: [u32; 3],
    pub(crate) ntid: [u32; 3],
    pub(crate) ctaid: [u32; 3],
    pub(crate) nctaid: [u32; 3],
    /// Index in the warp.
    pub(crate) lane: u32,
    /// Index of the warp in the block.
    pub(crate) warp: u32,
    /// `%smid`: which worker runs the block, and of how many.
    pub(crate) worker: u32,
    pub(crate) workers: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
    /// Address of what the grid's blocks synchronise with, or 0: see
    /// [`Arena::make_workspace`](crate::memory::Arena::make_workspace).
    pub(crate) workspace: u64,
    /// Bases of the shared memory of the blocks that this one reaches: first its own, then those of its
    /// cluster in the order of their ranks.
    pub(crate) shared_bases: *const u64,
    /// Blocks of the cluster.
    pub(crate) cluster_blocks: u64,
    /// The block's number in its cluster.
    pub(crate) cluster_rank: u32,
    /// 1 where the launch or the kernel asks for clusters.
    pub(crate) is_explicit_cluster: u32,
    /// 1 where lanes of a warp converge at accesses through which they may exchange values.
    pub(crate) is_lockstep: u32,
    pub(crate) cluster_ctaid: [u32; 3],
    pub(crate) cluster_nctaid: [u32; 3],
    pub(crate) clusterid: [u32; 3],
    pub(crate) nclusterid: [u32; 3],
    /// Address of the thread's frame, where it has one.
    pub(crate) frame: u64,
    /// 1 where the thread has a frame and no stack of its own: it waits by returning.
    pub(crate) is_stackless: u32,
    /// Offset of the first free byte of local memory: the top of the stack of frames.
    pub(crate) local_top: u64,
    /// Bytes that the call under way passes to a variadic function beyond its parameters.
    pub(crate) variadic_bytes: u64,
    /// Threads of the block behind this one, which a kernel that runs blocks runs in the same call.
    pub(crate) threads_left: u32,
    /// Polling loads and exchanges left before the thread lets others run.
    pub(crate) polls_left: u32,
    /// Where a thread with a frame goes on: 0 for its start.
    pub(crate) resume_index: u32,
    /// What the thread waits for, set before it suspends.
    pub(crate) request: Request,
    /// What the wait brought, set before it resumes.
    pub(crate) warp_result: u64,
    /// How to suspend; valid while the thread runs.
    pub(crate) yielder: *const Yielder<(), ()>,
    /// The launch this thread belongs to; valid while it runs.
    pub(crate) launch: *const Launch<'static>,
}

/// Why a thread suspended itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// Nothing: it has ended.
    Finished,
    /// It executed `exit` inside a function.
    Exit,
    /// It polls and lets others run.
    Yield,
    /// It asks for the phase of an `mbarrier`, and lets others run.
    Phase(PhaseRequest),
    /// It is at an access that the lanes of a warp make together, at the instruction with this number.
    Step(u64),
    /// It cannot go on.
    Fault(Raised),
    /// A `.sync` operation of the warp.
    Warp(WarpRequest),
    /// `activemask`, at the instruction with this number.
    ActiveMask(u64),
    /// A barrier of the block.
    Barrier(BarrierRequest),
    /// The barrier of the cluster.
    ClusterBarrier(ClusterBarrierRequest),
}

/// An operation that the lanes of `mask` execute together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WarpRequest {
    pub(crate) operation: WarpOperation,
    pub(crate) mask: u32,
    pub(crate) value: u64,
    /// Source lane or offset of a shuffle.
    pub(crate) lane: u32,
    /// Clamp and segment mask of a shuffle.
    pub(crate) clamp: u32,
}

/// Operations of a warp; the numbers are what compiled code passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WarpOperation {
    Synchronise,
    ShuffleUp,
    ShuffleDown,
    ShuffleButterfly,
    ShuffleIndex,
    VoteAll,
    VoteAny,
    VoteUniform,
    Ballot,
    MatchAny,
    MatchAll,
    Elect,
    SumUnsigned,
    MinUnsigned,
    MaxUnsigned,
    MinSigned,
    MaxSigned,
    And,
    Or,
    Xor,
    /// The value is the address of a [`MultiplyRequest`](super::matrix::MultiplyRequest).
    MultiplyMatrices,
    /// The value is the address of a [`RearrangeRequest`](super::matrix::RearrangeRequest).
    RearrangeTiles,
}

/// Whether the phase of an `mbarrier` with this parity is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhaseRequest {
    /// Where the object is on the host.
    pub(crate) object: u64,
    pub(crate) parity: u32,
}

/// A thread's arrival at a barrier of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BarrierRequest {
    pub(crate) barrier: u32,
    /// Threads that take part; 0 for all of the block.
    pub(crate) threads: u32,
    pub(crate) predicate: bool,
    /// `false` for `bar.arrive`, which goes on at once.
    pub(crate) waits: bool,
    pub(crate) reduction: Reduction,
}

/// What a thread does at the barrier of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ClusterBarrierRequest {
    /// It goes on at once.
    Arrive,
    /// It goes on once all threads of the cluster have arrived.
    Wait,
}

/// What a barrier computes from the predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reduction {
    None,
    Count,
    And,
    Or,
}

/// A fault as compiled code or a signal reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raised {
    IllegalAddress(u64),
    Misaligned {
        address: u64,
        size: u32,
    },
    Trap,
    Assert,
    StackOverflow,
    IllegalInstruction(&'static str),
    /// No texture or surface has this handle.
    NoObject {
        what: &'static str,
        handle: u64,
    },
    /// An access outside of the surface of this handle.
    OutsideSurface(u64),
    Deadlock,
}

/// The native code of a kernel.
pub(crate) type Entry = unsafe extern "C" fn(*mut ThreadContext);

/// A grid that is being run.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) entry: Entry,
    /// Whether threads wait for each other.
    pub(crate) waits: bool,
    /// Bytes of the frame in which a thread that waits leaves what it knows; `None` where it needs a coroutine of its own
    /// for that.
    pub(crate) frame_size: Option<usize>,
    /// Whether lanes of a warp converge at accesses through which they may exchange values.
    pub(crate) is_lockstep: bool,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Blocks of a cluster along x, y and z, which the grid is a multiple of.
    pub(crate) cluster: [u32; 3],
    /// Whether the launch or the kernel asks for clusters.
    pub(crate) is_explicit_cluster: bool,
    /// Static shared memory; the dynamic part follows it.
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    /// Bytes of local memory for each thread.
    pub(crate) local: u64,
    /// Bytes of stack for compiled code beyond the usual ones.
    pub(crate) extra_stack: usize,
    pub(crate) parameters: &'a [u8],
    /// Blocks of launches with smaller numbers begin before those of this one, on threads of this pool.
    pub(crate) priority: i32,
    pub(crate) pool: &'a Pool,
    /// What the blocks of a cooperative grid synchronise with, or 0.
    pub(crate) workspace: u64,
    pub(crate) space: &'a AddressSpace,
    pub(crate) host: &'a dyn Host,
    pub(crate) progress: Progress,
}

/// How far a launch has come, shared by the threads that work on it.
#[derive(Default)]
pub(crate) struct Progress {
    pub(super) next_cluster: AtomicU64,
    pub(super) stop: AtomicBool,
    pub(super) workers: AtomicU32,
    /// Clusters that have begun and not ended.
    pub(super) started: AtomicU32,
    pub(super) fault: Mutex<Option<Fault>>,
    pub(super) output: Mutex<()>,
}

impl Progress {
    /// Whether another thread has ended the launch.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Launch<'_> {
    /// How many blocks there are.
    pub(super) fn blocks(&self) -> u64 {
        self.grid.iter().map(|&count| u64::from(count)).product()
    }

    /// How many blocks a cluster has.
    pub(super) fn cluster_blocks(&self) -> usize {
        self.cluster.iter().map(|&count| count as usize).product()
    }

    /// How many clusters there are along x, y and z.
    pub(super) fn clusters(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis])
    }

    /// How many threads a block has.
    pub(super) fn threads(&self) -> usize {
        self.block.iter().map(|&count| count as usize).product()
    }

    pub(super) fn out_of_resources(&self, reason: &str) -> Fault {
        Fault::OutOfResources { kernel: self.kernel.to_owned(), reason: reason.to_owned() }
    }

    /// Ends the launch with a fault; the first one counts.
    pub(super) fn fail(&self, fault: Fault) {
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

    pub(super) fn fault(&self, raised: Raised, at: ThreadPosition) -> Fault {
        match raised {
            Raised::IllegalAddress(address) => Fault::IllegalAddress { address, at },
            Raised::Misaligned { address, size } => Fault::Misaligned { address, size, at },
            Raised::Trap => Fault::Trap { at },
            Raised::Assert => Fault::Assert { message: format!("{at} failed an assertion"), at },
            Raised::StackOverflow => Fault::StackOverflow { at },
            Raised::IllegalInstruction(reason) => Fault::IllegalInstruction { reason: reason.to_owned(), at },
            Raised::NoObject { what, handle } => Fault::NoObject { what, handle, at },
            Raised::OutsideSurface(surface) => Fault::OutsideSurface { surface, at },
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
    pub(crate) fn assertion(&self, message: String, at: ThreadPosition) {
        {
            let _one_at_a_time = self.progress.output.lock();
            self.host.assertion(&message);
        }
        self.fail(Fault::Assert { message, at });
    }
}
