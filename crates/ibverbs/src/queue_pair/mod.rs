//! Reliable connected queue pair (RC QP): creation and destruction, states (INIT, RTR, RTS), and posting of
//! work requests. Its settings are a file of their own.

mod settings;

use core::ffi::c_int;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::completion::CompletionQueue;
use crate::description::Port;
use crate::device::{Device, last_error};
use crate::gid::{Gid, LinkLayer};
use crate::memory::{Access, ProtectionDomain};
use crate::sys::*;
use crate::work::{PostError, Receive, Segment, SendBatch};

pub use settings::{PathMtu, Settings};

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
        "the RDMA device `{device}` cannot create a queue pair for {} sends and {} receives with {} inline \
         bytes: {source}",
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
    #[error(
        "a queue pair of the RDMA device `{device}` cannot enter the state {state}: {source}{}",
        advice(source)
    )]
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
    raw: NonNull<ibv_qp>,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    post_receive: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    capacity: Capacity,
    made: Made,
    domain: ProtectionDomain,
    /// Kept, since completions go there: of sends, of receives.
    _completions: [CompletionQueue; 2],
}

// SAFETY: libibverbs allows all calls from any thread.
unsafe impl Send for QueuePair {}
// SAFETY: libibverbs allows all calls from any thread.
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

/// The peer's end of a path, as the peer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteEnd {
    /// Its queue pair's number.
    pub queue_pair: u32,
    /// The number of the first packet that it will send.
    pub packet: u32,
    /// Its port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Its port's GID.
    pub gid: Gid,
}

impl QueuePair {
    /// From reset to *init*: bound to a port, so that receives can be posted. The peer may then write to and
    /// read from memory of the domain that is registered for it.
    pub fn initialise(&self, port: u8) -> Result<(), QueuePairError> {
        self.initialise_for(port, Access::REMOTE_WRITE | Access::REMOTE_READ)
    }

    /// The same, where the peer may do what `access` says.
    pub fn initialise_for(&self, port: u8, access: Access) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = port;
        attributes.qp_access_flags = (access.0 & !IBV_ACCESS_LOCAL_WRITE) as u32;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attributes, mask, "initialised")
    }

    /// From *init* to *ready to receive*: joined with the peer's queue pair. `gid` is the index of this end's
    /// GID in the port's table.
    pub fn receive_from(
        &self,
        port: &Port,
        gid: u32,
        peer: &RemoteEnd,
        settings: &Settings,
    ) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RTR;
        attributes.path_mtu = settings.mtu as c_int;
        attributes.dest_qp_num = peer.queue_pair;
        attributes.rq_psn = peer.packet & 0x00ff_ffff;
        attributes.max_dest_rd_atomic = settings.answered_reads;
        attributes.min_rnr_timer = settings.rnr_timer;
        // InfiniBand within a subnet goes by local identifiers; Ethernet has none, so the GIDs stand in the
        // packets.
        let is_global = port.link_layer != LinkLayer::InfiniBand || peer.lid == 0;
        attributes.ah_attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: crate::sys::Gid(peer.gid.0),
                flow_label: 0,
                sgid_index: gid as u8,
                hop_limit: 64,
                traffic_class: settings.traffic_class,
            },
            dlid: peer.lid,
            sl: settings.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(is_global),
            port_num: port.number,
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attributes, mask, "ready to receive")
    }

    /// From *ready to receive* to *ready to send*. `packet` is the number of the first packet, which the peer
    /// was told.
    pub fn send_from(&self, packet: u32, settings: &Settings) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RTS;
        attributes.timeout = settings.timeout;
        attributes.retry_cnt = settings.retries;
        attributes.rnr_retry = settings.rnr_retries;
        attributes.sq_psn = packet & 0x00ff_ffff;
        attributes.max_rd_atomic = settings.reads;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attributes, mask, "ready to send")
    }

    /// To *error*, from any state: every request comes back as [`FLUSHED`](crate::Status::FLUSHED).
    pub fn end(&self) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_ERR;
        self.modify(&mut attributes, IBV_QP_STATE, "ended")
    }

    /// To *reset*, from any state: requests that are in it are forgotten.
    pub fn reset(&self) -> Result<(), QueuePairError> {
        let mut attributes = blank();
        attributes.qp_state = IBV_QPS_RESET;
        self.modify(&mut attributes, IBV_QP_STATE, "reset")
    }

    fn modify(
        &self,
        attributes: &mut ibv_qp_attr,
        mask: c_int,
        state: &'static str,
    ) -> Result<(), QueuePairError> {
        let device = self.domain.device();
        // SAFETY: the queue pair lives, and the structure has the header's layout.
        let code = unsafe { (device.libraries().verbs.ibv_modify_qp)(self.raw.as_ptr(), attributes, mask) };
        if code == 0 {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(code.abs());
        Err(QueuePairError::State { device: device.name().to_owned(), state, source })
    }
}

/// Attributes of which nothing is set.
fn blank() -> ibv_qp_attr {
    // SAFETY: all fields are numbers, for which 0 is a value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

impl QueuePair {
    /// Posts all requests of a batch with one doorbell, and clears it. After an error the requests before the
    /// one that was refused are on their way.
    ///
    /// # Safety
    /// The bytes of every request must stay mapped until its completion, or that of a later one in this
    /// queue, has been polled, or the queue pair has been dropped; those of sends and writes must be readable
    /// and those of reads writable by nobody else meanwhile. Of a read only its own completion counts, and of
    /// a send or write only its own says that its bytes may be changed: with Soft-iWARP (Linux 6.1) later
    /// requests complete before a read, and TCP fetches the bytes of unsignalled sends and writes when it
    /// comes to them. Bytes of inline requests must be readable now.
    pub unsafe fn post(&self, batch: &mut SendBatch) -> Result<(), PostError> {
        let Some(first) = batch.chain() else { return Ok(()) };
        let mut refused = ptr::null_mut();
        // SAFETY: the chain's vectors are not touched meanwhile; its segments are the caller's duty.
        let code = unsafe { (self.post_send)(self.raw.as_ptr(), first, &mut refused) };
        let posted = match code {
            0 => Ok(()),
            code => Err(PostError::new(batch.position(refused), code)),
        };
        batch.clear();
        posted
    }

    /// Posts receives, in their order.
    ///
    /// # Safety
    /// The bytes of every receive must stay mapped, and nobody else may access them, until its completion has
    /// been polled or the queue pair has been dropped.
    pub unsafe fn post_receives(&self, receives: &[Receive]) -> Result<(), PostError> {
        /// Receives that are handed over at a time.
        const AT_ONCE: usize = 32;
        for (index, some) in receives.chunks(AT_ONCE).enumerate() {
            let mut segments = [ibv_sge { addr: 0, length: 0, lkey: 0 }; AT_ONCE];
            let mut requests =
                [ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
                    AT_ONCE];
            for (position, receive) in some.iter().enumerate() {
                let Segment { address, length, key } = receive.segment;
                segments[position] = ibv_sge { addr: address, length, lkey: key };
                requests[position].wr_id = receive.id;
                requests[position].num_sge = i32::from(length > 0);
            }
            let (first, segment) = (requests.as_mut_ptr(), segments.as_mut_ptr());
            for position in 0..some.len() {
                // SAFETY: both arrays have at least as many elements as there are receives in a chunk.
                unsafe {
                    (*first.add(position)).sg_list = segment.add(position);
                    if position + 1 < some.len() {
                        (*first.add(position)).next = first.add(position + 1);
                    }
                }
            }
            let mut refused: *mut ibv_recv_wr = ptr::null_mut();
            // SAFETY: the chain lies in the arrays above; its segments are the caller's duty.
            let code = unsafe { (self.post_receive)(self.raw.as_ptr(), first, &mut refused) };
            if code != 0 {
                let position = requests.iter().position(|one| ptr::eq(one, refused)).unwrap_or(0);
                return Err(PostError::new(index * AT_ONCE + position, code));
            }
        }
        Ok(())
    }
}
