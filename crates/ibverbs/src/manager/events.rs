//! Event channel of rdma_cm, and errors of its connections.

use core::ptr::{self, NonNull};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

use crate::library::{LoadError, Manager};
use crate::sys::*;

/// A stream of events, through which identifiers report.
pub struct Channel {
    pub raw: NonNull<rdma_event_channel>,
    pub manager: &'static Manager,
}

// SAFETY: librdmacm allows all calls from any thread.
unsafe impl Send for Channel {}
// SAFETY: librdmacm allows all calls from any thread.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: identifiers hold their channel, so they have gone.
        unsafe { (self.manager.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// What happened, with the library's own structure given back.
pub struct Event {
    pub kind: i32,
    pub status: i32,
    pub id: *mut rdma_cm_id,
    pub private_data: Vec<u8>,
}

impl Channel {
    pub fn new(manager: &'static Manager) -> Result<Arc<Self>, ManagerError> {
        // SAFETY: no arguments.
        let raw = unsafe { (manager.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(|| step_failed("open its channel of events"))?;
        // SAFETY: the descriptor belongs to the channel.
        unsafe {
            let flags = libc::fcntl(raw.as_ref().fd, libc::F_GETFL);
            libc::fcntl(raw.as_ref().fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        }
        Ok(Arc::new(Self { raw, manager }))
    }

    pub fn next(&self, step: &'static str, deadline: Instant) -> Result<Event, ManagerError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // SAFETY: the channel lives.
            let fd = unsafe { self.raw.as_ref().fd };
            let mut waited = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, as said.
            let ready = unsafe { libc::poll(&mut waited, 1, left.as_millis().min(60_000) as i32) };
            match ready {
                0 if left.is_zero() => return Err(ManagerError::TimedOut { step }),
                1.. => {}
                0 => continue,
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
                _ => return Err(step_failed(step)),
            }
            let mut raw: *mut rdma_cm_event = ptr::null_mut();
            // SAFETY: the channel lives, and does not block.
            if unsafe { (self.manager.rdma_get_cm_event)(self.raw.as_ptr(), &mut raw) } != 0 {
                let source = io::Error::last_os_error();
                match source.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                    _ => return Err(ManagerError::Step { step, source }),
                }
            }
            // SAFETY: the event is ours until it is acknowledged; its private data is as long as it says.
            let event = unsafe {
                let rdma_cm_event { id, event, status, ref conn, .. } = *raw;
                let has_data = matches!(event, RDMA_CM_EVENT_CONNECT_REQUEST | RDMA_CM_EVENT_ESTABLISHED);
                let private_data = if has_data && !conn.private_data.is_null() {
                    let length = usize::from(conn.private_data_len);
                    core::slice::from_raw_parts(conn.private_data.cast::<u8>(), length).to_vec()
                } else {
                    Vec::new()
                };
                (self.manager.rdma_ack_cm_event)(raw);
                Event { kind: event, status, id, private_data }
            };
            return Ok(event);
        }
    }
}

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
    #[error("rdma_cm cannot {step}: it reported {event} (status {status})")]
    Event {
        /// What was waited for.
        step: &'static str,
        /// What librdmacm calls it.
        event: &'static str,
        /// The number that came with it.
        status: i32,
    },
    /// Nothing happened in time.
    #[error("rdma_cm cannot {step}: no event was received in time")]
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

/// What the system says of a step that failed.
pub(crate) fn step_failed(step: &'static str) -> ManagerError {
    ManagerError::Step { step, source: io::Error::last_os_error() }
}
