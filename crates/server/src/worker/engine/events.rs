//! Link events that the engine handles, and what its receiving thread polls while the client is silent.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_gpu::IdlePoller;
use causeway_link::{DescriptorError, Destination, IdleHook, Lease, LinkError, LinkEvents};
use causeway_memory::SealedMemory;
use causeway_sync::delays;
use causeway_wire::message::HOST_DONE_TRANSFER;

use crate::worker::engine::state::Engine;
use crate::worker::suspension;

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
        let memory = memory.inspect_err(|cause| tracing::warn!("cannot use memory of the client: {cause}"));
        self.0.memory.shared.arrive(number, memory.ok());
        self.0.session.wake();
    }

    fn allocation(&self, number: u64, file: Result<OwnedFd, DescriptorError>) {
        let file = file.inspect_err(|cause| tracing::warn!("cannot use a file of the client: {cause}"));
        self.0.memory.shared.file_arrives(number, file.ok());
        self.0.session.wake();
    }

    fn descriptors_end(&self) {
        self.0.memory.shared.end_restoring();
    }

    fn lost(&self, cause: &LinkError) {
        tracing::debug!("link lost: {cause}");
    }
}

/// For the end of work, since a program that waits for the device says nothing until that is noticed; and for
/// what has become ready, which it issues itself.
pub struct IdleWork<'a> {
    gpu: IdlePoller<'a>,
    engine: Arc<Engine>,
    /// Whether the engine knows.
    is_polling: bool,
}

impl<'a> IdleWork<'a> {
    /// It has not begun.
    pub fn new(gpu: IdlePoller<'a>, engine: Arc<Engine>) -> Self {
        Self { gpu, engine, is_polling: false }
    }

    fn end(&mut self) {
        if core::mem::take(&mut self.is_polling) {
            self.engine.session().exchange().progress().at_work(|| self.engine.end_polling());
        }
    }
}

impl IdleHook for IdleWork<'_> {
    fn is_waited_for(&self) -> bool {
        self.gpu.is_waited_for()
    }

    fn poll(&mut self) {
        if !core::mem::replace(&mut self.is_polling, true) {
            self.engine.begin_polling();
        }
        self.engine.session().exchange().progress().at_work(|| {
            self.gpu.poll();
            self.engine.poll();
        });
    }

    fn leave(&mut self) {
        self.end();
        self.gpu.leave();
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.end();
        self.gpu.asleep(sleep)
    }
}

impl Drop for IdleWork<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
