//! Layout of the memory that kernels, proxy and host share. The host's side of
//! `device/include/causeway/layout.h`, which says what each field is for.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Ranks of a team.
pub const MAX_RANKS: usize = 64;
/// Windows of a team.
pub const MAX_WINDOWS: usize = 64;
/// Queues of a rank.
pub const MAX_QUEUES: usize = 8;
/// Barriers of a team that may be under way at the same time.
pub const BARRIERS: usize = 16;
/// Bytes of a window are fewer than this.
pub const MAX_WINDOW_BYTES: u64 = 1 << 36;
/// Bytes of one request at most.
pub const MAX_REQUEST_BYTES: u64 = 1 << 30;
/// Classes of sizes, from one power of two to the next.
pub const CLASSES: usize = 40;
/// Numbers of requests in flight that are distinguished: 0, 1, 2 to 3, ... 64 and more.
pub const FLIGHTS: usize = 8;
/// Who calls together: a thread, a warp, a block.
pub const SCOPES: usize = 3;
/// `automatic`, `direct`, `proxy`, `verbs`.
pub const INITIATORS: usize = 4;
/// Why an initiator was taken: `Reason` of the header.
pub const REASONS: usize = 5;
/// Where the rings of messages begin in the control window, and what each rank's takes.
pub const INBOX_AT: u64 = 16384;
/// Bytes of one rank's ring.
pub const CONTROL_BYTES_OF_RANK: u64 = 8 * 2048;

/// Words that cards write for the kernels of a rank. The first is of answers that are not read.
pub const VERBS_RESULTS: usize = 256;

/// In [`Team::shape`]: kernels of all ranks are this process's, on one GPU.
pub const ON_ONE_GPU: u8 = 0x80;

/// An answer of the proxy.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Response {
    /// What was there before.
    pub value: AtomicU64,
    /// The request's number plus 1.
    pub number: AtomicU64,
    /// The same, once the kernel has read it.
    pub taken: AtomicU64,
    /// Where the proxy has a word copied to.
    pub brought: AtomicU64,
}

/// A counter that has 128 bytes for itself.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Line(pub AtomicU64);

/// How far the proxy has come with a queue. Answers follow.
#[derive(Debug)]
#[repr(C)]
pub struct QueueCounters {
    /// Requests that were read.
    pub accepted: Line,
    /// Requests that are done.
    pub completed: Line,
}

/// The kernel's side of a queue.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Queue {
    /// Addresses in pinned memory of the host.
    pub slots: u64,
    /// The counters' address there.
    pub counters: u64,
    /// A power of two.
    pub capacity: u64,
    /// What changes has a line of its own.
    pub changing: Changing,
}

/// What kernels write of a queue.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Changing {
    /// Requests so far.
    pub head: u64,
    /// What was last seen of the counters.
    pub accepted: u64,
    /// Likewise.
    pub completed: u64,
}

/// Why the team has come to an end.
#[derive(Debug)]
#[repr(C)]
pub struct ErrorRecord {
    /// `Status` of the header, written last.
    pub code: AtomicU32,
    /// `Verb` of the header.
    pub verb: AtomicU32,
    /// The rank that was meant.
    pub peer: AtomicU32,
    /// The window.
    pub window: AtomicU32,
    /// Bytes from the window's start.
    pub offset: AtomicU64,
    /// How many.
    pub bytes: AtomicU64,
    /// `blockIdx.x`.
    pub block: AtomicU32,
    /// `threadIdx.x`.
    pub thread: AtomicU32,
    /// Of a request that a network card has ended with an error: the queue pair's number.
    pub queue_pair: AtomicU32,
    /// Its operation, as the card numbers it.
    pub operation: AtomicU32,
    /// The card's cause.
    pub syndrome: AtomicU32,
    reserved: u32,
}

/// What the host and kernels tell each other.
#[derive(Debug)]
#[repr(C)]
pub struct HostControl {
    /// Not 0 ends all waits.
    pub abort: AtomicU32,
    padding: [u32; 31],
    /// The first error of this rank's kernels.
    pub error: ErrorRecord,
    padding_behind: [u32; 18],
}

/// A window of one rank.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct WindowState {
    /// The team's number.
    pub team: u32,
    /// The window's.
    pub id: u32,
    /// Bytes of each rank's part.
    pub bytes: u64,
    /// Whether the window is memory of the host.
    pub in_host: u32,
    /// Whether the owner's proxy makes all changes that are to be atomic, though it is memory of GPUs.
    pub atomics_by_proxy: u32,
    /// Where each rank's part lies for this rank's kernels, 0 where they don't reach it.
    pub peers: [u64; MAX_RANKS],
    /// A bit for each peer whose part is on a GPU on which this one has no atomic operations.
    pub without_atomics: u64,
    /// The network card's key of this rank's part.
    pub local_key: u32,
    /// Whether it has one.
    pub is_registered: u32,
    /// Whether network cards make all changes that are to be atomic.
    pub atomics_by_verbs: u32,
    /// 0.
    pub reserved: u32,
    /// Where each rank's part lies as this rank's card names it, 0 where that does not reach it.
    pub remote: [u64; MAX_RANKS],
    /// And the keys.
    pub keys: [u32; MAX_RANKS],
}

/// The queue pair of a rank's kernels for a peer.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct VerbsPeer {
    /// Address of the `causeway::verbs::QueuePair`; 0 where no card reaches the peer.
    pub queue_pair: u64,
    /// Address of the `causeway::verbs::CompletionQueue`.
    pub completions: u64,
    /// A word of the peer's GPU; 0 where cards do not reach its memory.
    pub flush: u64,
    /// A word of the peer's host, for writes that mean nothing.
    pub sink: u64,
    /// Their keys.
    pub flush_key: u32,
    /// Of the other one.
    pub sink_key: u32,
    /// The kernels'.
    pub written: u32,
    /// Likewise.
    pub filled: u32,
    /// Likewise.
    pub fenced: u64,
    /// Likewise.
    pub marked: u64,
}

/// What the host and kernels tell each other of peers that a network card reaches.
#[derive(Debug)]
#[repr(C)]
pub struct NetworkChoice {
    /// Changes with the rows, behind them.
    pub version: AtomicU32,
    reserved: u32,
    /// The kernels': requests that were waited for alone, and the nanoseconds that took.
    pub timed: [AtomicU64; 2],
    /// By class of size, as [`TeamState::choice`].
    pub rows: [AtomicU64; CLASSES],
}

/// What kernels of a rank need to post for peers.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TeamVerbs {
    /// A word of this GPU; 0 where the card does not reach its memory.
    pub flush: u64,
    /// Address of [`VERBS_RESULTS`] words of pinned memory.
    pub results: u64,
    /// The keys of both.
    pub flush_key: u32,
    /// Of the words.
    pub results_key: u32,
    /// Address of the [`NetworkChoice`].
    pub shared: u64,
    /// The kernels'.
    pub timed: [u64; 2],
    /// Of the rows that kernels have.
    pub version: u32,
    /// The kernels'.
    pub has_long: u32,
    padding: u64,
    /// The kernels'.
    pub next: u64,
    /// By class of size, a byte for each number in flight.
    pub choice: [u64; CLASSES],
    /// The kernels'.
    pub is_taken: [u32; VERBS_RESULTS],
    /// By rank.
    pub peers: [VerbsPeer; MAX_RANKS],
}

impl TeamVerbs {
    /// One that reaches no rank.
    pub fn empty() -> Self {
        Self {
            flush: 0,
            results: 0,
            flush_key: 0,
            results_key: 0,
            shared: 0,
            timed: [0; 2],
            version: 0,
            has_long: 0,
            padding: 0,
            next: 0,
            choice: [0; CLASSES],
            is_taken: [0; VERBS_RESULTS],
            peers: [VerbsPeer::default(); MAX_RANKS],
        }
    }
}

/// What a kernel is given of a window.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Window {
    /// This rank's own part.
    pub base: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The address of its [`WindowState`].
    pub state: u64,
    /// The window's number.
    pub id: u32,
    /// The team's.
    pub team: u32,
}

/// Messages by scope, class of size, initiator and reason.
pub type Counts = [[[[u64; REASONS]; INITIATORS]; CLASSES]; SCOPES];

/// What a rank knows of its team.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub struct TeamState {
    /// The team's number.
    pub id: u32,
    /// This rank.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// How many queues.
    pub queues: u32,
    /// Address of the [`HostControl`].
    pub host: u64,
    /// Nanoseconds that a wait takes at most.
    pub limit: u64,
    /// Cells of barriers and messages.
    pub control: Window,
    /// The first error of this rank's kernels.
    pub failure: u32,
    /// The initiator that reaches everybody's control window.
    pub control_by: u32,
    /// Address of the [`TeamVerbs`]; 0 where no peer is reached by a network card.
    pub verbs: u64,
    padding: [u32; 12],
    /// Of each barrier.
    pub epochs: [u64; BARRIERS],
    /// Pieces sent to each rank.
    pub sent: [u64; MAX_RANKS],
    /// Pieces received from each rank.
    pub received: [u64; MAX_RANKS],
    /// By scope and class of size, a byte for each number in flight.
    pub choice: [[u64; CLASSES]; SCOPES],
    /// Bytes by initiator.
    pub moved: [u64; INITIATORS],
    /// By scope, bytes of copies that were timed, and the nanoseconds that they took.
    pub timed: [[u64; 2]; SCOPES],
    /// Messages by scope, class of size, initiator and reason.
    pub counts: Counts,
    padding_behind: [u64; 14],
    /// The queues.
    pub queues_of: [Queue; MAX_QUEUES],
}

/// What a kernel is given of a team.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Team {
    /// Address of the [`TeamState`].
    pub state: u64,
    /// This rank.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// The team's number.
    pub id: u32,
    /// By scope: messages of a smaller class go direct, whatever else is in flight.
    pub direct_below: [u8; SCOPES],
    /// How many queues, and [`ON_ONE_GPU`].
    pub shape: u8,
}

impl TeamState {
    /// One of zeros, which is no team.
    pub fn empty() -> Self {
        let queue = Queue { slots: 0, counters: 0, capacity: 0, changing: Changing::default() };
        Self {
            id: 0,
            rank: 0,
            ranks: 0,
            queues: 0,
            host: 0,
            limit: 0,
            control: Window { base: 0, bytes: 0, state: 0, id: 0, team: 0 },
            failure: 0,
            control_by: 0,
            verbs: 0,
            padding: [0; 12],
            epochs: [0; BARRIERS],
            sent: [0; MAX_RANKS],
            received: [0; MAX_RANKS],
            choice: [[0; CLASSES]; SCOPES],
            moved: [0; INITIATORS],
            timed: [[0; 2]; SCOPES],
            counts: [[[[0; REASONS]; INITIATORS]; CLASSES]; SCOPES],
            padding_behind: [0; 14],
            queues_of: [queue; MAX_QUEUES],
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};
    use std::collections::BTreeMap;

    use super::*;

    /// The header's `static_assert`s by what they say of whom.
    fn asserted() -> BTreeMap<String, usize> {
        let header = include_str!("../../../../device/include/causeway/layout.h");
        let facts = header.lines().filter_map(|line| {
            let fact = line.strip_prefix("static_assert(")?.strip_suffix(");")?;
            let (what, number) = fact.split_once(" == ")?;
            Some((what.replace("__builtin_", ""), number.parse().ok()?))
        });
        facts.collect()
    }

    #[test]
    fn the_host_has_the_layout_that_the_header_asserts() {
        let mut here = BTreeMap::new();
        macro_rules! fact {
            ($type:ident) => {
                here.insert(format!("sizeof({})", stringify!($type)), size_of::<$type>())
            };
            ($type:ident, $field:ident) => {
                here.insert(
                    format!("offsetof({}, {})", stringify!($type), stringify!($field)),
                    offset_of!($type, $field),
                )
            };
        }
        here.insert("sizeof(Request)".to_owned(), size_of::<[u64; 2]>());
        fact!(Response);
        fact!(QueueCounters);
        fact!(QueueCounters, completed);
        fact!(Queue);
        here.insert("offsetof(Queue, head)".to_owned(), offset_of!(Queue, changing));
        fact!(ErrorRecord);
        fact!(HostControl);
        fact!(HostControl, error);
        fact!(WindowState);
        fact!(WindowState, peers);
        fact!(WindowState, local_key);
        fact!(WindowState, remote);
        fact!(WindowState, keys);
        fact!(VerbsPeer);
        fact!(VerbsPeer, fenced);
        fact!(NetworkChoice);
        fact!(NetworkChoice, rows);
        fact!(TeamVerbs);
        fact!(TeamVerbs, shared);
        fact!(TeamVerbs, next);
        fact!(TeamVerbs, choice);
        fact!(TeamVerbs, peers);
        fact!(Window);
        fact!(Team);
        fact!(TeamState, control);
        fact!(TeamState, verbs);
        fact!(TeamState, failure);
        fact!(TeamState, epochs);
        fact!(TeamState, sent);
        fact!(TeamState, received);
        fact!(TeamState, choice);
        fact!(TeamState, moved);
        fact!(TeamState, timed);
        fact!(TeamState, counts);
        fact!(TeamState, queues_of);
        fact!(TeamState);
        assert_eq!(here, asserted());
    }
}
