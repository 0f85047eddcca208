//! Layout of the memory that kernels and host share. The host's side of
//! `device/include/causeway/verbs_layout.h`.

/// Queue pairs whose completions come to one completion queue.
pub const MAX_QUEUE_PAIRS: usize = 32;
/// Slots of a ring: the card counts them in 16 bits, and tells a full ring from an empty one by them.
pub const MAX_SLOTS: u32 = 1 << 15;
/// Bytes of a slot of a send queue.
pub const SEND_SLOT_BYTES: u32 = 64;

/// `SendRequest::operation` and `WorkCompletion::operation`.
pub mod operation {
    /// The operations' numbers in requests.
    pub const RDMA_WRITE: u32 = 0x08;
    /// A write that takes a receive of the peer.
    pub const RDMA_WRITE_WITH_IMM: u32 = 0x09;
    /// A message.
    pub const SEND: u32 = 0x0a;
    /// A message with 32 bits beside it.
    pub const SEND_WITH_IMM: u32 = 0x0b;
    /// A read of the peer's memory.
    pub const RDMA_READ: u32 = 0x10;
    /// The peer's 8 bytes are exchanged where they are as expected.
    pub const COMPARE_AND_SWAP: u32 = 0x11;
    /// Something is added to the peer's 8 bytes.
    pub const FETCH_AND_ADD: u32 = 0x12;
    /// Of completions: a receive.
    pub const RECEIVE: u32 = 0x80;
    /// Of completions: a receive that a write with immediate data took.
    pub const RECEIVE_RDMA_WITH_IMM: u32 = 0x81;
}

/// The numbers of `IBV_SEND_*`.
pub mod send_flags {
    /// Begin after the reads and atomic operations before.
    pub const FENCE: u32 = 1;
    /// Write a completion.
    pub const SIGNALED: u32 = 2;
    /// Wake the peer's receiver.
    pub const SOLICITED: u32 = 4;
    /// The bytes are in the request.
    pub const INLINE: u32 = 8;
}

/// A request, as `ibv_send_wr` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SendRequest {
    /// The program's own number for it.
    pub wr_id: u64,
    /// Of [`operation`].
    pub operation: u32,
    /// Of [`send_flags`].
    pub flags: u32,
    /// Of this side's bytes.
    pub address: u64,
    /// How many.
    pub bytes: u32,
    /// The key of this side's memory.
    pub lkey: u32,
    /// Of the peer's bytes.
    pub remote_address: u64,
    /// The key of the peer's memory.
    pub rkey: u32,
    /// 32 bits for the peer.
    pub immediate: u32,
    /// What is added, or compared with.
    pub compare_add: u64,
    /// What is written where the comparison holds.
    pub swap: u64,
}

/// A receive, as `ibv_recv_wr` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReceiveRequest {
    /// The program's own number for it.
    pub wr_id: u64,
    /// Where the bytes go.
    pub address: u64,
    /// How many it has space for.
    pub bytes: u32,
    /// The key of the memory.
    pub lkey: u32,
}

/// A completion, as `ibv_wc` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WorkCompletion {
    /// The request's.
    pub wr_id: u64,
    /// 0, or why the request has failed.
    pub syndrome: u32,
    /// What the card's maker knows of that.
    pub vendor_syndrome: u32,
    /// Of [`operation`].
    pub operation: u32,
    /// The number of the queue pair.
    pub queue_pair: u32,
    /// Bytes that came.
    pub bytes: u32,
    /// 32 bits of the peer.
    pub immediate: u32,
    /// Whether there are such.
    pub has_immediate: u32,
    /// 0.
    pub reserved: u32,
}

/// What a ring remembers of the request that begins in a slot.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Slot {
    /// The request's.
    pub wr_id: u64,
    /// Where it ends, counted from the queue's beginning.
    pub end: u64,
    /// Where the requests end that were written together, of which it is the first.
    pub mark: u64,
    /// What the doorbell is told of the last of them.
    pub control: u64,
}

/// A count in a line of its own.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Count {
    /// Slots from the queue's beginning.
    pub slots: u64,
    padding: [u64; 7],
}

impl Count {
    /// One that begins here.
    pub fn new(slots: u64) -> Self {
        Self { slots, ..Self::default() }
    }
}

/// How far a ring is published, and who publishes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Publishing {
    /// Slots.
    pub published: u64,
    /// 0.
    pub unused: u64,
    /// Marks that were written and not yet looked at: not 0 while a thread publishes.
    pub unpublished: u32,
    /// 1 while a thread posts by the one-at-a-time form.
    pub mutex: u32,
    padding: [u64; 5],
}

impl Publishing {
    /// One that begins here.
    pub fn new(published: u64) -> Self {
        Self { published, ..Self::default() }
    }
}

/// A ring of requests.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Ring {
    /// Where the card reads requests.
    pub buffer: u64,
    /// Slots, a power of two.
    pub count: u32,
    /// Of each.
    pub slot_bytes: u32,
    /// Where the card reads how many are published.
    pub doorbell_record: u64,
    /// Of a send queue.
    pub doorbell: u64,
    /// [`Slot`]s.
    pub slots: u64,
    /// 0.
    pub padding: [u64; 3],
    /// Slots that threads have reserved.
    pub reserved: Count,
    /// Slots that the card knows of.
    pub publishing: Publishing,
    /// Slots that it has done.
    pub completed: Count,
}

/// What a kernel is given of a queue pair, by its address.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct QueuePair {
    /// Its number.
    pub number: u32,
    /// The first syndrome that came of it.
    pub failure: u32,
    /// Bytes of an inline request.
    pub max_inline: u32,
    /// 0.
    pub reserved: u32,
    /// The address of the host's word: not 0 ends all waits.
    pub abort: u64,
    /// Nanoseconds of a wait.
    pub limit: u64,
    /// 0.
    pub padding: [u64; 4],
    /// The send queue.
    pub send: Ring,
    /// The receive queue.
    pub receive: Ring,
}

/// How far completions have been read, and who reads.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Polling {
    /// Entries.
    pub consumed: u64,
    /// 1 while a thread polls.
    pub poller: u32,
    padding: [u32; 13],
}

/// What a kernel is given of a completion queue, by its address.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct CompletionQueue {
    /// Where the card writes completions.
    pub buffer: u64,
    /// Entries, a power of two.
    pub count: u32,
    /// Of each.
    pub entry_bytes: u32,
    /// Where the card reads how many are read.
    pub doorbell_record: u64,
    /// The address of the host's word.
    pub abort: u64,
    /// Nanoseconds of a wait.
    pub limit: u64,
    /// Its number.
    pub number: u32,
    /// How many queue pairs follow.
    pub queue_pair_count: u32,
    /// 0.
    pub padding: [u64; 2],
    /// How far it has been read.
    pub polling: Polling,
    /// The addresses of the queue pairs.
    pub queue_pairs: [u64; MAX_QUEUE_PAIRS],
}

#[cfg(test)]
mod tests {
    use core::mem::{offset_of, size_of};
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_host_has_the_layout_that_the_header_asserts() {
        let header = include_str!("../../../../../device/include/causeway/verbs_layout.h");
        let asserted: BTreeMap<String, usize> = header
            .lines()
            .filter_map(|line| {
                let (what, number) =
                    line.strip_prefix("static_assert(")?.strip_suffix(");")?.split_once(" == ")?;
                Some((what.replace("__builtin_", ""), number.parse().ok()?))
            })
            .collect();
        let here = [
            ("sizeof(SendRequest)", size_of::<SendRequest>()),
            ("sizeof(ReceiveRequest)", size_of::<ReceiveRequest>()),
            ("sizeof(WorkCompletion)", size_of::<WorkCompletion>()),
            ("sizeof(Slot)", size_of::<Slot>()),
            ("sizeof(Ring)", size_of::<Ring>()),
            ("sizeof(QueuePair)", size_of::<QueuePair>()),
            ("sizeof(CompletionQueue)", size_of::<CompletionQueue>()),
            ("offsetof(Ring, reserved)", offset_of!(Ring, reserved)),
            ("offsetof(Ring, published)", offset_of!(Ring, publishing)),
            ("offsetof(Ring, completed)", offset_of!(Ring, completed)),
            ("offsetof(QueuePair, send)", offset_of!(QueuePair, send)),
            ("offsetof(QueuePair, receive)", offset_of!(QueuePair, receive)),
            ("offsetof(CompletionQueue, consumed)", offset_of!(CompletionQueue, polling)),
            ("offsetof(CompletionQueue, queue_pairs)", offset_of!(CompletionQueue, queue_pairs)),
        ];
        let here: BTreeMap<String, usize> =
            here.into_iter().map(|(what, number)| (what.to_owned(), number)).collect();
        assert_eq!(here, asserted);
    }
}
