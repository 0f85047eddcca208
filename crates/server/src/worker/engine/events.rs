//! Link events that the engine handles.

use super::parts::Engine;
use crate::worker::suspension;
use causeway_link::{DescriptorError, Destination, Lease, LinkError, LinkEvents};
use causeway_memory::SealedMemory;
use causeway_sync::delays;
use causeway_wire::message::HOST_DONE_TRANSFER;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What the link tells the engine.
pub struct Events(pub Arc<Engine>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        delays::inject();
        if transfer & HOST_DONE_TRANSFER != 0 {
            self.0.host_functions.returned(transfer & !HOST_DONE_TRANSFER);
            return None;
        }
        // The session ends when its memory does not come back, and nobody wants the bytes.
        let _entered = suspension::enter(&self.0.session).ok()?;
        self.0.uploads.open(&self.0.session, transfer, total)
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        if transfer & HOST_DONE_TRANSFER != 0 {
            return Err(lease);
        }
        let Ok(_entered) = suspension::enter(&self.0.session) else { return Err(lease) };
        self.0.uploads.open_in_place(&self.0.session, transfer, lease)
    }

    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let memory = memory.inspect_err(|cause| tracing::warn!("memory of the client is not used: {cause}"));
        self.0.memory.shared.arrive(number, memory.ok());
        self.0.session.wake();
    }

    fn allocation(&self, number: u64, file: Result<OwnedFd, DescriptorError>) {
        let file = file.inspect_err(|cause| tracing::warn!("a file of the client is not used: {cause}"));
        self.0.memory.shared.file_arrives(number, file.ok());
        self.0.session.wake();
    }

    fn lost(&self, cause: &LinkError) {
        tracing::debug!("link lost: {cause}");
    }
}
