//! How does rdma_cm connect queue pairs?
//!
//! It finds the device that belongs to an IP address, exchanges what both queue pairs need, and brings them
//! into their states. iWARP devices are connected in no other way. Both ends carry a few bytes of the
//! program's own with the request, by which they recognise each other.
//!
//! Everything here waits, up to a deadline, and is meant for the start of a session.
//!
//! | Module       | Question it answers                                          |
//! |--------------|--------------------------------------------------------------|
//! | `route`      | How is a peer that listens found and connected to?           |
//! | `listener`   | How are the requests of peers received and accepted?         |
//! | `identifier` | What does librdmacm keep for one end, and when does it end?  |
//! | `address`    | In which form do the system's calls take an address?         |

mod address;
mod identifier;
mod listener;
mod route;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use thiserror::Error;

pub(crate) use identifier::Identifier;
pub use listener::{Listener, Request};
pub use route::Route;

use crate::completion::CompletionQueue;
use crate::device::Device;
use crate::events::step_failed;
use crate::library::LoadError;
use crate::memory::ProtectionDomain;
use crate::queue_pair::{Capacity, QueuePair, Settings};
use crate::sys::*;

/// Bytes that may go with a request: what InfiniBand's message has room for, behind rdma_cm's own header.
pub const MOST_PRIVATE_DATA: usize = 56;

/// Why a connection is not made.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// librdmacm cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// A step failed.
    #[error("rdma_cm cannot {step}: {source}{}", advice(source))]
    Step {
        /// What was to be done.
        step: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Something else happened than was waited for.
    #[error("rdma_cm cannot {step}: it reports {event} (status {status})")]
    Event {
        /// What was waited for.
        step: &'static str,
        /// What librdmacm calls it.
        event: &'static str,
        /// The number that came with it.
        status: i32,
    },
    /// Nothing happened in time.
    #[error("rdma_cm cannot {step}: nothing was heard in time")]
    TimedOut {
        /// What was waited for.
        step: &'static str,
    },
    /// The address belongs to no RDMA device.
    #[error("no RDMA device of this machine has the address {0}")]
    NoDevice(IpAddr),
}

impl ManagerError {
    /// Whether the port that rdma_cm chose for this end belongs to somebody else, so that another one may do.
    /// It keeps account of its own ports only, and iWARP's connections need the same number from TCP.
    pub fn is_port_taken(&self) -> bool {
        match self {
            Self::Step { source, .. } => source.raw_os_error() == Some(libc::EADDRINUSE),
            Self::Event { status, .. } => *status == -libc::EADDRINUSE,
            Self::Library(_) | Self::TimedOut { .. } | Self::NoDevice(_) => false,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EADDRINUSE) => ". rdma_cm chose a port that TCP has in use",
        Some(libc::ENOENT | libc::ENODEV) => {
            ". /dev/infiniband/rdma_cm must exist and be accessible, and an RDMA device must have the address"
        }
        _ => "",
    }
}

/// A function that lets an identifier begin to connect: `rdma_connect` or `rdma_accept`.
type Begin = unsafe extern "C" fn(*mut rdma_cm_id, *mut rdma_conn_param) -> i32;

/// This end of a connection that is not made yet.
#[derive(Debug)]
pub struct Unjoined {
    identifier: Arc<Identifier>,
    device: Device,
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
    fn begin(
        &self,
        begin: Begin,
        private_data: &[u8],
        settings: &Settings,
        step: &'static str,
    ) -> Result<(), ManagerError> {
        let mut parameters = rdma_conn_param {
            private_data: private_data.as_ptr().cast(),
            private_data_len: private_data.len().min(MOST_PRIVATE_DATA) as u8,
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
    identifier: Arc<Identifier>,
    private_data: Vec<u8>,
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
