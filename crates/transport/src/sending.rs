//! Outgoing transfer: its source, options, and the lifetime of its memory.

use causeway_pipeline::Plan;

use crate::error::LinkError;

/// How a transfer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferOptions {
    /// With which other transfers it keeps its order and shares its turns on the lanes: those of one stream,
    /// of one thread. Flows take turns.
    pub flow: u64,
    /// The most lanes that carry it at a time.
    pub lanes: usize,
    /// Threads that copy it into staging, where the transport has some.
    pub threads: usize,
    /// Whether its memory stays as it is until the peer has it, or else until the [`Sending`] has been
    /// dropped: then no copy of it need be made, and dropping the `Sending` waits for the peer.
    pub steady: bool,
    /// Whether all its lanes carry parts of it at the same time, although there are more parts then: somebody
    /// waits until the peer has done something with it.
    pub spread: bool,
}

impl Default for TransferOptions {
    /// In no particular flow, on all lanes.
    fn default() -> Self {
        Self { flow: 0, lanes: Plan::MAX_LANES, threads: 1, steady: false, spread: false }
    }
}

impl TransferOptions {
    /// As a plan says, in this flow.
    pub fn planned(plan: &Plan, flow: u64) -> Self {
        Self { flow, lanes: plan.lanes, threads: plan.threads, steady: false, spread: false }
    }
}

/// The place of a transfer's memory. It is carried here and never looked behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub *const u8);

// SAFETY: an address is a number here; who reads behind it says why it may.
unsafe impl Send for Address {}

/// What keeps the memory of a transfer valid; dropped when the bytes have left it for good.
pub type BufferGuard = Box<dyn Send>;

/// A transfer that is to be sent.
pub struct OutgoingTransfer {
    /// Its number on the wire.
    pub transfer: u64,
    /// Its memory.
    pub start: Address,
    /// Its bytes.
    pub length: usize,
    /// How it is carried.
    pub options: TransferOptions,
    /// What keeps the memory valid. Without it the memory is valid as long as the [`Sending`] lives.
    pub guard: Option<BufferGuard>,
}

/// A transport's part of a transfer that is being sent from memory of somebody else.
pub trait Pending: Send {
    /// Waits until the bytes have left the memory.
    fn wait(&self) -> Result<(), LinkError>;

    /// The memory will change: waits until nothing reads it any more.
    fn release(&self);

    /// The same where the peer has said that it has all bytes, so that there may be less to wait for.
    fn on_response(&self) {
        self.release();
    }
}

/// A transfer that is being sent. As long as this lives the memory must not change, and what a failing lane
/// loses can be sent again. Dropping it waits until the bytes have left the memory.
#[must_use = "dropping it waits until the bytes have left the memory"]
pub struct Sending(Option<Box<dyn Pending>>);

impl core::fmt::Debug for Sending {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sending").field("pending", &self.0.is_some()).finish()
    }
}

impl Sending {
    /// One whose memory is not in use any more.
    #[inline]
    pub fn done() -> Self {
        Self(None)
    }

    /// One whose memory is in use until `pending` says that it is not.
    pub fn pending(pending: impl Pending + 'static) -> Self {
        Self(Some(Box::new(pending)))
    }

    /// Waits until the bytes have left the memory.
    pub fn wait(&self) -> Result<(), LinkError> {
        self.0.as_ref().map_or(Ok(()), |pending| pending.wait())
    }

    /// Gives the memory back when the peer has said, in whatever way, that it has all bytes: a transport that
    /// would have to be notified by its other end need not wait for that.
    pub fn on_response(mut self) {
        if let Some(pending) = self.0.take() {
            pending.on_response();
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(pending) = &self.0 {
            pending.release();
        }
    }
}
