//! Creation and destruction of a queue pair.

use core::ffi::c_int;
use core::fmt;
use core::ptr::{self, NonNull};
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::completion::CompletionQueue;
use crate::device::{Device, last_error};
use crate::memory::ProtectionDomain;
use crate::sys::*;

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Requests in the send queue.
    pub sends: u32,
    /// Requests in the receive queue.
    pub receives: u32,
    /// Bytes that a request can take into the queue with it.
    pub inline: u32,
}

/// Why a queue pair cannot be made or brought into a state.
#[derive(Debug, Error)]
pub enum QueuePairError {
    /// The device refuses to make it.
    #[error(
        "the RDMA device `{device}` makes no queue pair for {} sends and {} receives with {} inline bytes: {source}",
        capacity.sends, capacity.receives, capacity.inline
    )]
    Make {
        /// Which device.
        device: String,
        /// What was asked for.
        capacity: Capacity,
        /// What the system answered.
        source: io::Error,
    },
    /// The device refuses a state.
    #[error("a queue pair of the RDMA device `{device}` does not become {state}: {source}{}", advice(source))]
    State {
        /// Which device.
        device: String,
        /// Which state, in words.
        state: &'static str,
        /// What the system answered.
        source: io::Error,
    },
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EINVAL) => {
            ". The peer's address, the path MTU or the number of reads does not suit this device"
        }
        Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
            ". The peer's GID cannot be reached from this device"
        }
        _ => "",
    }
}

/// What librdmacm keeps for one end of a connection, and destroys the end's queue pair by.
pub(crate) trait DestroyQueuePair: Send + Sync {
    /// The one queue pair that was made by it is being dropped.
    fn destroy_queue_pair(&self);
}

/// Who made a queue pair, and so who destroys it.
enum Made {
    Here,
    /// Made by librdmacm for an identifier, which is kept.
    ByRdmaCm(Arc<dyn DestroyQueuePair>),
}

/// Two queues of requests, which a reliable connection joins with a queue pair of the peer.
pub struct QueuePair {
    pub(super) raw: NonNull<ibv_qp>,
    pub(super) post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    pub(super) post_receive:
        unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    capacity: Capacity,
    made: Made,
    pub(super) domain: ProtectionDomain,
    /// Kept, since completions go there: of sends, of receives.
    _completions: [CompletionQueue; 2],
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        match &self.made {
            // SAFETY: made by us, and destroyed once; the device no longer touches memory of its requests
            // afterwards.
            Made::Here => unsafe {
                (self.domain.device().libraries().verbs.ibv_destroy_qp)(self.raw.as_ptr());
            },
            Made::ByRdmaCm(identifier) => identifier.destroy_queue_pair(),
        }
    }
}

/// What a queue pair is made with.
pub(crate) fn initial(completions: &CompletionQueue, capacity: Capacity) -> ibv_qp_init_attr {
    ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: completions.raw(),
        recv_cq: completions.raw(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: capacity.sends.max(1),
            max_recv_wr: capacity.receives.max(1),
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: capacity.inline,
        },
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    }
}

impl QueuePair {
    /// Makes a queue pair whose completions all go to `completions`. It can hold at least `capacity`, and
    /// says in [`capacity`](Self::capacity) how much it does hold.
    pub fn new(
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<Self, QueuePairError> {
        let mut attributes = initial(completions, capacity);
        // SAFETY: domain and queue live, and are held by the queue pair from here on.
        let raw = unsafe { (domain.device().libraries().verbs.ibv_create_qp)(domain.raw(), &mut attributes) };
        let raw = NonNull::new(raw).ok_or_else(|| QueuePairError::Make {
            device: domain.device().name().to_owned(),
            capacity,
            source: last_error(),
        })?;
        Ok(Self::from_raw(raw, &attributes, domain, [completions; 2], Made::Here))
    }

    /// A queue pair that librdmacm has made for an identifier.
    pub(crate) fn of_manager(
        raw: NonNull<ibv_qp>,
        attributes: &ibv_qp_init_attr,
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        identifier: Arc<dyn DestroyQueuePair>,
    ) -> Self {
        Self::from_raw(raw, attributes, domain, [completions; 2], Made::ByRdmaCm(identifier))
    }

    /// A queue pair that a provider's own call has made, whose sends and receives complete in these queues.
    pub(crate) fn of_provider(
        raw: NonNull<ibv_qp>,
        attributes: &ibv_qp_init_attr,
        domain: &ProtectionDomain,
        completions: [&CompletionQueue; 2],
    ) -> Self {
        Self::from_raw(raw, attributes, domain, completions, Made::Here)
    }

    pub(crate) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    fn from_raw(
        raw: NonNull<ibv_qp>,
        attributes: &ibv_qp_init_attr,
        domain: &ProtectionDomain,
        completions: [&CompletionQueue; 2],
        made: Made,
    ) -> Self {
        // SAFETY: the queue pair's own context has the functions of its provider.
        let ops = unsafe { &(*raw.as_ref().context).ops };
        let (Some(post_send), Some(post_receive)) = (ops.post_send, ops.post_recv) else {
            unreachable!("every provider can post requests")
        };
        let capacity = Capacity {
            sends: attributes.cap.max_send_wr,
            receives: attributes.cap.max_recv_wr,
            inline: attributes.cap.max_inline_data,
        };
        Self {
            raw,
            post_send,
            post_receive,
            capacity,
            made,
            domain: domain.clone(),
            _completions: completions.map(Clone::clone),
        }
    }

    /// Its number, which the peer needs.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// How much it holds.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }
}
