//! Batch of work requests that are posted with one doorbell.

use core::ffi::c_uint;
use core::ptr;
use std::io;

use thiserror::Error;

use crate::sys::*;

/// Bytes of registered memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of the first byte, as its region names it.
    pub address: u64,
    /// How many there are.
    pub length: u32,
    /// The region's local key.
    pub key: u32,
}

impl Segment {
    /// No bytes.
    pub const EMPTY: Self = Self { address: 0, length: 0, key: 0 };

    /// Bytes for a request that is posted inline, which need not be registered.
    pub fn inline(bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).expect("inline data is shorter than 4 GiB");
        Self { address: bytes.as_ptr() as u64, length, key: 0 }
    }
}

/// Where memory of the peer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// The address of its first byte, as the peer's region names it.
    pub address: u64,
    /// The region's remote key.
    pub key: u32,
}

/// What a request does with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends them into the memory of a receive that the peer has posted.
    Send {
        /// A number for the peer's completion; not on iWARP.
        immediate: Option<u32>,
    },
    /// Writes them to memory of the peer. iWARP has no immediate numbers.
    Write {
        /// Where to.
        to: RemoteMemory,
        /// A number for a completion of the peer; it takes up one of the receives that it has posted.
        immediate: Option<u32>,
    },
    /// Fills them from memory of the peer.
    Read {
        /// Where from.
        from: RemoteMemory,
    },
}

/// A request to a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// What its completion is called.
    pub id: u64,
    /// What it does.
    pub operation: Operation,
    /// With which bytes.
    pub segment: Segment,
    /// Which bytes go behind them, in the same message.
    pub tail: Segment,
    /// The request has a completion when it succeeds; failures always have one. A queue whose requests are
    /// all unsignalled fills up for good, because completions are what frees its entries.
    pub is_signalled: bool,
    /// The bytes are taken into the queue when they are posted.
    pub is_inline: bool,
    /// The request wakes a peer that waits for solicited completions only.
    pub is_solicited: bool,
    /// The request waits for reads of the same queue that were posted before it.
    pub is_fenced: bool,
}

impl SendRequest {
    /// A signalled request.
    pub fn new(id: u64, operation: Operation, segment: Segment) -> Self {
        Self {
            id,
            operation,
            segment,
            tail: Segment::EMPTY,
            is_signalled: true,
            is_inline: false,
            is_solicited: false,
            is_fenced: false,
        }
    }
}

/// A request to a receive queue: one message of the peer goes there.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// What its completion is called.
    pub id: u64,
    /// Where the bytes go. May be empty, for writes with an immediate number.
    pub segment: Segment,
}

/// Why requests were not taken.
#[derive(Debug, Error)]
pub enum PostError {
    /// The queue has no free entry.
    #[error("the queue is full: request {taken} of the batch found no entry")]
    Full {
        /// How many of the batch were taken before.
        taken: usize,
    },
    /// The provider refuses a request.
    #[error("request {taken} of the batch was refused: {source}")]
    Refused {
        /// How many of the batch were taken before.
        taken: usize,
        /// What the provider answered.
        source: io::Error,
    },
}

impl PostError {
    /// How many requests of the batch are on their way all the same.
    pub fn taken(&self) -> usize {
        match self {
            Self::Full { taken } | Self::Refused { taken, .. } => *taken,
        }
    }

    pub(crate) fn new(taken: usize, code: i32) -> Self {
        // Providers answer the number, or its negative.
        match code.abs() {
            libc::ENOMEM => Self::Full { taken },
            code => Self::Refused { taken, source: io::Error::from_raw_os_error(code) },
        }
    }
}

/// Requests to a send queue that are posted together, so that its doorbell is rung once. It keeps its memory
/// when it is cleared.
#[derive(Default)]
pub struct SendBatch {
    requests: Vec<ibv_send_wr>,
    segments: Vec<[ibv_sge; 2]>,
}

// SAFETY: the pointers in it are set when it is posted, and used only then.
unsafe impl Send for SendBatch {}
// SAFETY: the pointers in it are set when it is posted, and used only then.
unsafe impl Sync for SendBatch {}

impl core::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SendBatch").field("requests", &self.requests.len()).finish_non_exhaustive()
    }
}

impl SendBatch {
    /// Room for `capacity` requests without another allocation.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { requests: Vec::with_capacity(capacity), segments: Vec::with_capacity(capacity) }
    }

    /// Puts a request behind the others.
    pub fn push(&mut self, request: &SendRequest) {
        let SendRequest { id, operation, segment, tail, .. } = *request;
        let (opcode, remote, immediate) = match operation {
            Operation::Send { immediate: None } => (IBV_WR_SEND, None, 0),
            Operation::Send { immediate: Some(number) } => (IBV_WR_SEND_WITH_IMM, None, number),
            Operation::Write { to, immediate: None } => (IBV_WR_RDMA_WRITE, Some(to), 0),
            Operation::Write { to, immediate: Some(number) } => {
                (IBV_WR_RDMA_WRITE_WITH_IMM, Some(to), number)
            }
            Operation::Read { from } => (IBV_WR_RDMA_READ, Some(from), 0),
        };
        let flag = |is_set: bool, flag: c_uint| if is_set { flag } else { 0 };
        let remote = remote.unwrap_or(RemoteMemory { address: 0, key: 0 });
        let entry = |Segment { address, length, key }| ibv_sge { addr: address, length, lkey: key };
        self.segments.push([entry(segment), entry(tail)]);
        self.requests.push(ibv_send_wr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: i32::from(segment.length > 0) + i32::from(tail.length > 0),
            opcode,
            send_flags: flag(request.is_signalled, IBV_SEND_SIGNALED)
                | flag(request.is_inline, IBV_SEND_INLINE)
                | flag(request.is_solicited, IBV_SEND_SOLICITED)
                | flag(request.is_fenced, IBV_SEND_FENCE),
            imm_data: immediate.to_be(),
            remote_addr: remote.address,
            rkey: remote.key,
            _wr: [0; 5],
            _qp_type: 0,
            _tail: [0; 6],
        });
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes all requests out.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.segments.clear();
    }

    /// The first of the requests, each of which points at the next one; `None` without any.
    pub(crate) fn chain(&mut self) -> Option<*mut ibv_send_wr> {
        let (requests, segments) = (self.requests.as_mut_ptr(), self.segments.as_mut_ptr());
        for index in 0..self.requests.len() {
            // SAFETY: both vectors have `len` elements, which stay where they are until the next push.
            unsafe {
                let is_last = index + 1 == self.requests.len();
                (*requests.add(index)).sg_list = segments.add(index).cast::<ibv_sge>();
                (*requests.add(index)).next = if is_last { ptr::null_mut() } else { requests.add(index + 1) };
            }
        }
        (!self.is_empty()).then_some(requests)
    }

    /// The place of a request in the batch.
    pub(crate) fn position(&self, request: *const ibv_send_wr) -> usize {
        self.requests.iter().position(|one| ptr::eq(one, request)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_chain_in_the_order_of_its_requests() {
        let mut batch = SendBatch::with_capacity(1);
        for id in 0..5 {
            let to = RemoteMemory { address: 0x1000 + id, key: 7 };
            let segment = Segment { address: id, length: id as u32, key: 3 };
            let operation = Operation::Write { to, immediate: (id == 4).then_some(0x0102_0304) };
            let tail = if id == 3 { Segment { address: 9, length: 1, key: 3 } } else { Segment::EMPTY };
            batch.push(&SendRequest {
                is_signalled: id == 4,
                tail,
                ..SendRequest::new(id, operation, segment)
            });
        }
        let mut at = batch.chain().unwrap();
        for id in 0..5_u64 {
            // SAFETY: the chain has five requests, whose vectors are not touched meanwhile.
            unsafe {
                assert_eq!(((*at).wr_id, (*at).remote_addr, (*at).rkey), (id, 0x1000 + id, 7));
                let segments = [0, 1, 1, 2, 1][id as usize];
                assert_eq!((*at).num_sge, segments, "an empty request has no segment");
                assert_eq!((*(*at).sg_list).addr, id);
                assert!(id != 3 || (*(*at).sg_list.add(1)).addr == 9);
                assert_eq!((*at).send_flags & IBV_SEND_SIGNALED != 0, id == 4);
                if id == 4 {
                    assert_eq!((*at).opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
                    assert_eq!((*at).imm_data.to_ne_bytes(), [1, 2, 3, 4]);
                }
                at = (*at).next;
            }
        }
        assert!(at.is_null());
        batch.clear();
        assert!(batch.is_empty() && batch.chain().is_none());
    }
}
