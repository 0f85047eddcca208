//! What is read of another worker when, and when does the stream go on?
//!
//! A copy takes one step after the other on the one thread of [`Peers::steps`](super::Peers), so that whoever notices something, a lane's
//! thread or a completion of the back end, has only to say so there.
//!
//! | Module   | Question it answers                                                           |
//! |----------|-------------------------------------------------------------------------------|
//! | `copy`   | Which pieces of a copy are under way, and when does its stream go on?         |
//! | `turns`  | Which copies read of one worker, and which wait until others have ended?      |
//! | `wanted` | Where do the bytes of a piece go, and what becomes of it when they have come? |

mod copy;
mod turns;
mod wanted;

use super::loans::Descriptors;
use crate::worker::arena::Arena;
use crate::worker::direct::Direct;
use crate::worker::engine::Engine;
use causeway_api::sys::CUresult;
use causeway_link::{Counters, DescriptorError, Destination, Lease, Link, LinkError, LinkEvents, Receiver};
use causeway_sync::threads;
use causeway_wire::lent::LentMemory;
use causeway_wire::message::{Messages, PeerMessage};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use turns::Turns;
use wanted::{Arrived, Wanted};

/// A worker of another server, of which this one reads.
pub struct Reader {
    engine: Arc<Engine>,
    link: Link,
    /// Memory shared with it, where the link has any.
    arena: Option<Arc<Arena>>,
    /// Device memory that the link's card reaches, where it has one.
    direct: Option<Direct>,
    next_transfer: AtomicU64,
    /// Which pieces were asked for, by the numbers of the transfers that bring them.
    wanted: Mutex<FxHashMap<u64, Wanted>>,
    turns: Mutex<Turns>,
    /// Device memory that it lends.
    lent: Descriptors,
}

/// What the link tells the reader.
struct Events(Arc<Reader>);

impl LinkEvents for Events {
    fn open_transfer(&self, transfer: u64, total: u64) -> Option<Destination> {
        let wanted = self.0.wanted.lock().remove(&transfer)?;
        match wanted.copy.reader.engine.gpu.staging(wanted.piece.bytes()) {
            Ok(staging) if staging.len() as u64 == total => Some(wanted.expect(staging)),
            Ok(_) => {
                wanted.end(Err(CUresult::CUDA_ERROR_UNKNOWN));
                None
            }
            Err(status) => {
                wanted.end(Err(status));
                None
            }
        }
    }

    fn open_in_place(&self, transfer: u64, lease: Lease) -> Result<(), Lease> {
        let Some(wanted) = self.0.wanted.lock().remove(&transfer) else { return Err(lease) };
        wanted.end(Ok(Arrived::Leased(lease)));
        Ok(())
    }

    fn allocation(&self, number: u64, allocation: Result<OwnedFd, DescriptorError>) {
        if !self.0.lent.arrive(number, allocation) {
            tracing::warn!("another server's worker lends more than anybody has asked it for");
            self.0.close();
        }
    }

    fn lost(&self, cause: &LinkError) {
        tracing::warn!("the link to another server is lost: {cause}");
        let wanted = core::mem::take(&mut *self.0.wanted.lock());
        wanted.into_values().for_each(|wanted| wanted.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }
}

impl Reader {
    /// Begins to listen to what the other worker says. `direct` is GPUDirect for the link, where it has any.
    pub fn start(
        engine: &Arc<Engine>,
        link: Link,
        mut receiver: Receiver,
        direct: Option<Direct>,
    ) -> Arc<Self> {
        let reader = Arc::new(Self {
            engine: Arc::clone(engine),
            arena: link.regions().map(Arena::new),
            link,
            direct,
            next_transfer: AtomicU64::new(1),
            wanted: Mutex::default(),
            turns: Mutex::default(),
            lent: Descriptors::default(),
        });
        reader.link.start(Arc::new(Events(Arc::clone(&reader))));
        let listener = Arc::clone(&reader);
        let started = threads::spawn("peer", move || {
            while let Ok(body) = receiver.recv() {
                for message in Messages::<PeerMessage>::new(body) {
                    match message {
                        Ok(PeerMessage::Failed { transfer, status }) => {
                            let failed = listener.wanted.lock().remove(&transfer);
                            if let Some(failed) = failed {
                                failed.end(Err(CUresult(status)));
                            }
                        }
                        Ok(PeerMessage::Lent { transfer, memory }) if listener.fetch(transfer, memory) => {}
                        _ => {
                            tracing::warn!("another server's worker says something senseless");
                            listener.close();
                            return;
                        }
                    }
                }
            }
        });
        if let Err(cause) = started {
            tracing::error!("another server's worker cannot be listened to: {cause}");
            reader.close();
        }
        reader
    }

    /// Has the card fetch a transfer; false where it was not asked for so.
    fn fetch(&self, transfer: u64, memory: LentMemory) -> bool {
        let wanted = self.wanted.lock().remove(&transfer);
        wanted.is_some_and(|wanted| wanted.fetch(memory).is_some())
    }

    /// Ends the link; nothing more comes of what was asked for.
    pub fn close(&self) {
        let Counters { transfer_bytes_received: all, direct_bytes_received: direct, .. } =
            self.link.counters();
        tracing::info!("{all} bytes came from another server, {direct} of them by GPUDirect");
        self.link.close();
        let wanted = core::mem::take(&mut *self.wanted.lock());
        wanted.into_values().for_each(|wanted| wanted.end(Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)));
    }

    /// What the other worker has lent and nobody has taken yet.
    pub fn lent(&self) -> &Descriptors {
        &self.lent
    }
}
