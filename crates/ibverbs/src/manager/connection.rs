//! Connection of rdma_cm: its identifier (`rdma_cm_id`), its parameters, and its states before and after it
//! is established.

use core::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Instant;

use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::library::{Libraries, Manager, text};
use crate::manager::events::{Channel, Event, ManagerError, step_failed};
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, DestroyQueuePair, QueuePair, Settings, initial};
use crate::sys::*;

/// librdmacm's end of one connection, or of a listener.
pub(crate) struct Identifier {
    pub(super) raw: NonNull<rdma_cm_id>,
    pub(super) channel: Arc<Channel>,
}

impl core::fmt::Debug for Identifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Identifier").finish_non_exhaustive()
    }
}

// SAFETY: librdmacm allows all calls from any thread.
unsafe impl Send for Identifier {}
// SAFETY: librdmacm allows all calls from any thread.
unsafe impl Sync for Identifier {}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: its queue pair, which holds it, has gone; no event of it is unacknowledged.
        unsafe { (self.channel.manager.rdma_destroy_id)(self.raw.as_ptr()) };
    }
}

impl Identifier {
    pub(super) fn new(channel: Arc<Channel>) -> Result<Self, ManagerError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives, and is held by the identifier.
        let code = unsafe {
            (channel.manager.rdma_create_id)(channel.raw.as_ptr(), &mut raw, ptr::null_mut(), RDMA_PS_TCP)
        };
        match NonNull::new(raw) {
            Some(raw) if code == 0 => Ok(Self { raw, channel }),
            _ => Err(step_failed("make an identifier")),
        }
    }

    pub(super) fn manager(&self) -> &'static Manager {
        self.channel.manager
    }

    /// The device that it is bound to.
    pub(super) fn device(self: &Arc<Self>, libraries: Libraries) -> Option<Device> {
        // SAFETY: the identifier lives; the context stays open as long as it does.
        let context = unsafe { self.raw.as_ref().verbs };
        let owner: Arc<dyn core::any::Any + Send + Sync> = Arc::<Self>::clone(self);
        (!context.is_null()).then(|| Device::of_manager(libraries, context, owner))
    }

    pub(super) fn queue_pair(
        self: &Arc<Self>,
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<QueuePair, ManagerError> {
        let mut attributes = initial(completions, capacity);
        // SAFETY: identifier, domain and queue live, and are held by the queue pair from here on.
        let code =
            unsafe { (self.manager().rdma_create_qp)(self.raw.as_ptr(), domain.raw(), &mut attributes) };
        // SAFETY: the identifier lives.
        let raw = unsafe { self.raw.as_ref().qp };
        match NonNull::new(raw) {
            Some(raw) if code == 0 => {
                Ok(QueuePair::of_manager(raw, &attributes, domain, completions, Arc::<Self>::clone(self)))
            }
            _ => Err(step_failed("make a queue pair")),
        }
    }

    pub fn disconnect(&self) {
        // SAFETY: the identifier lives. An error says that there is no connection any more.
        unsafe { (self.manager().rdma_disconnect)(self.raw.as_ptr()) };
    }

    /// Waits for an event of this identifier.
    pub(super) fn expect(
        &self,
        kind: i32,
        step: &'static str,
        deadline: Instant,
    ) -> Result<Event, ManagerError> {
        let event = self.channel.next(step, deadline)?;
        if event.kind == kind { Ok(event) } else { Err(self.unexpected(&event, step)) }
    }

    pub(super) fn unexpected(&self, event: &Event, step: &'static str) -> ManagerError {
        // SAFETY: the function takes any number and answers a constant string.
        let name = text(unsafe { (self.manager().rdma_event_str)(event.kind) });
        ManagerError::Event { step, event: name, status: event.status }
    }
}

impl DestroyQueuePair for Identifier {
    fn destroy_queue_pair(&self) {
        // SAFETY: the one queue pair of this identifier is being dropped.
        unsafe { (self.manager().rdma_destroy_qp)(self.raw.as_ptr()) };
    }
}

/// Bytes that may go with a request: what InfiniBand's message has room for, behind rdma_cm's own header.
pub const MAX_PRIVATE_DATA: usize = 56;

/// A function that lets an identifier begin to connect: `rdma_connect` or `rdma_accept`.
type Begin = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> i32;

/// This end of a connection that is not made yet.
#[derive(Debug)]
pub struct Unjoined {
    pub(super) identifier: Arc<Identifier>,
    pub(super) device: Device,
}

impl Unjoined {
    /// The device over which the peer is reached.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes this end's queue pair, in which receives can be posted before the connection is made.
    pub fn queue_pair(
        &self,
        domain: &ProtectionDomain,
        completions: &CompletionQueue,
        capacity: Capacity,
    ) -> Result<QueuePair, ManagerError> {
        self.identifier.queue_pair(domain, completions, capacity)
    }

    /// Begins to connect. rdma_cm takes MTU and timeouts from the path; of `settings` it uses the rest.
    pub(super) fn begin(
        &self,
        begin: Begin,
        private_data: &[u8],
        settings: &Settings,
        step: &'static str,
    ) -> Result<(), ManagerError> {
        let mut parameters = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: private_data.len().min(MAX_PRIVATE_DATA) as u8,
            responder_resources: settings.answered_reads,
            initiator_depth: settings.reads,
            flow_control: 0,
            retry_count: settings.retries,
            rnr_retry_count: settings.rnr_retries,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: the identifier lives; the private data is copied.
        match unsafe { begin(self.identifier.raw.as_ptr(), &mut parameters) } {
            0 => Ok(()),
            _ => Err(step_failed(step)),
        }
    }
}

/// A joined pair of queue pairs, as librdmacm sees it. The connection ends when this and its queue pair have
/// been dropped.
#[derive(Debug)]
pub struct Connection {
    pub(super) identifier: Arc<Identifier>,
    pub(super) private_data: Vec<u8>,
}

impl Connection {
    /// What the peer sent with its answer. May be followed by zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Ends the connection: the queue pairs of both sides end with it.
    pub fn disconnect(&self) {
        self.identifier.disconnect();
    }
}
