//! Identifier of rdma_cm (`rdma_cm_id`), and its lifetime.

use core::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Instant;

use super::error::{ManagerError, step_failed};
use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::events::{Channel, Event};
use crate::library::{Libraries, Manager, text};
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, DestroyQueuePair, QueuePair, initial};
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
// SAFETY: as above.
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

    pub(super) fn disconnect(&self) {
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
