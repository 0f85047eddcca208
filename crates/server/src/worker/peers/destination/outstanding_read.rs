//! Outstanding read: destination and completion of one piece.

use crate::worker::pool::Pool;
use causeway_api::sys::CUresult;
use causeway_gpu::in_flight::HostMemory;
use causeway_gpu::{CuResult, Staging};
use causeway_link::{Destination, DeviceMemory, Lease, Link, LinkError};
use causeway_pipeline::Piece;
use causeway_wire::remote_region::RemoteRegion;
use std::sync::Arc;

/// Who has asked for a piece: a copy.
pub(super) trait Asker: Send + Sync {
    /// A piece has come, or never will.
    fn arrived(self: Arc<Self>, piece: Piece, outcome: CuResult<Arrived>);
    /// The card has put a piece into the device's memory, or never will.
    fn fetched(self: Arc<Self>, outcome: Result<(), LinkError>);
}

/// A piece that was asked for.
pub(super) struct OutstandingRead {
    pub(super) asker: Arc<dyn Asker>,
    pub(super) piece: Piece,
    /// Where the card may put it: the memory, the first byte's address, and bytes.
    pub(super) by_rdma: Option<(DeviceMemory, u64, usize)>,
    /// The thread on which its asker hears of it.
    pub(super) event_loop: Arc<Pool>,
}

/// The bytes of a piece.
pub(super) enum Arrived {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the other worker.
    Leased(Lease),
}

// SAFETY: staging owns its memory, and a lease keeps its own, until they are dropped.
unsafe impl HostMemory for Arrived {
    fn address(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(lease) => lease.as_ptr(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(lease) => lease.len(),
        }
    }
}

impl OutstandingRead {
    /// Where its bytes go when they come in parts.
    pub(super) fn expect(self, staging: Staging) -> Destination {
        let (start, length) = (staging.as_ptr(), staging.len());
        let arrived = move |outcome: Result<(), _>| {
            let outcome = outcome.map_err(|_| CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE);
            self.end(outcome.map(|()| Arrived::Staged(staging)));
        };
        // SAFETY: the memory belongs to the staging, which the callback owns until it has run.
        unsafe { Destination::raw(start, length, arrived) }
    }

    /// Its bytes have come, or never will.
    pub(super) fn end(self, outcome: CuResult<Arrived>) {
        let Self { asker, piece, event_loop, .. } = self;
        event_loop.run(move || asker.arrived(piece, outcome));
    }

    /// Has the card fetch its bytes from where they lie in the other worker's memory; nothing where it was
    /// not asked for so.
    pub(super) fn fetch(self, link: &Link, memory: RemoteRegion) -> Option<()> {
        let Self { asker, by_rdma, event_loop, .. } = self;
        let (device, address, length) = by_rdma?;
        let then = Box::new(move |outcome: Result<(), LinkError>| {
            event_loop.run(move || asker.fetched(outcome));
        });
        link.read_to_device(memory, &device, address, length, then);
        Some(())
    }
}
