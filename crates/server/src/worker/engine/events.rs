//! What does the engine do with what the link tells it?

use super::Engine;
use causeway_link::{DescriptorError, Destination, Lease, LinkError, LinkEvents};
use causeway_memory::SealedMemory;
use causeway_sync::delays;
use causeway_wire::message::HOST_DONE_TRANSFER;
use std::sync::Arc;

/// What the link tells the engine.
pub struct Events(pub Arc<Engine>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        delays::inject();
        let engine = Arc::clone(&self.0);
        if transfer & HOST_DONE_TRANSFER != 0 {
            engine.host_done(transfer & !HOST_DONE_TRANSFER);
            return None;
        }
        self.0.incoming.open(&*self.0.gpu, transfer, total, move || engine.wake())
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(arena) = self.0.arena.as_ref().filter(|_| transfer & HOST_DONE_TRANSFER == 0) else {
            return Err(lease);
        };
        self.0.incoming.open_in_place(arena, transfer, lease)?;
        self.0.wake();
        Ok(())
    }

    fn descriptor(&self, number: u64, memory: Result<SealedMemory, DescriptorError>) {
        let memory = memory.inspect_err(|cause| tracing::warn!("memory of the client is not used: {cause}"));
        self.0.client_memory.arrive(number, memory.ok());
        self.0.wake();
    }

    fn lost(&self, cause: &LinkError) {
        tracing::debug!("link lost: {cause}");
    }
}
