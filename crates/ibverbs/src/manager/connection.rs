//! Connection of rdma_cm: parameters, and its states before and after it is established.

use std::sync::Arc;

use super::error::{ManagerError, step_failed};
use super::identifier::Identifier;
use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, QueuePair, Settings};
use crate::sys::*;

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
