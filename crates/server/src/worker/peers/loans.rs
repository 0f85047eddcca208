//! Memory that one worker's device lends another's: how does it get there, what is copied from it, and when does it go?
//!
//! The lender sends a descriptor of the allocation over the link, the borrower maps it. From then on a copy from it is a
//! command in a stream like any other, which the device carries out by itself.

use super::PATIENCE;
use crate::worker::engine::{Engine, Head};
use causeway_api::calls::{peer_borrow, peer_copy_borrowed, peer_lend};
use causeway_api::handle::{Allocation, Context, Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, Region};
use causeway_gpu::CuResult;
use causeway_gpu::borrowed::Borrowed;
use causeway_gpu::busy::Busy;
use causeway_gpu::objects::Translate as _;
use causeway_link::DescriptorError;
use causeway_wire::codec::Encode;
use causeway_wire::handshake::LaneToken;
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Descriptors that may wait for the client's word. A client names each one before it has the next one sent.
const MOST_WAITING: usize = 64;

/// Descriptors of another worker's memory, by loan.
#[derive(Default)]
pub struct Descriptors {
    waiting: Mutex<FxHashMap<u64, Option<OwnedFd>>>,
    came: Condvar,
}

impl Descriptors {
    /// Takes in what came for a loan; false when too many wait.
    pub fn arrive(&self, loan: u64, descriptor: Result<OwnedFd, DescriptorError>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST_WAITING {
            return false;
        }
        waiting.insert(loan, descriptor.ok());
        self.came.notify_all();
        true
    }

    /// The descriptor for a loan, which may still be on its way.
    fn take(&self, loan: u64) -> Option<OwnedFd> {
        let deadline = Instant::now() + PATIENCE;
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(descriptor) = waiting.remove(&loan) {
                return descriptor;
            }
            if self.came.wait_until(&mut waiting, deadline).timed_out() {
                return waiting.remove(&loan).flatten();
            }
        }
    }
}

/// Memory of another worker's device that copies read.
pub struct Loan {
    memory: Arc<Mapped>,
    /// Streams that have got copies from it, each with the context that the command named.
    streams: FxHashSet<(Handle<Stream>, Handle<Context>)>,
}

/// Mapped memory, which goes when nothing copies from it any more.
struct Mapped {
    engine: Arc<Engine>,
    borrowed: Option<Borrowed>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (engine, borrowed) = (Arc::clone(&self.engine), self.borrowed.take());
        // The driver may wait for the device.
        self.engine.aside.run(move || {
            if let Some(Err(error)) = borrowed.map(|borrowed| engine.gpu.return_memory(borrowed)) {
                tracing::warn!(status = error.0, "memory of another server could not be given back");
            }
        });
    }
}

/// A part of a loan's memory where that lies here; nothing when it is not inside.
fn placed(source: &DevicePlace, memory: &Borrowed) -> Option<Region> {
    let DevicePlace::Memory(part) = source else { return None };
    part.moved(0, memory.size, memory.address)
}

impl Engine {
    /// Hands an allocation to the worker that has come with a ticket.
    pub(in crate::worker) fn lend_to_peer(self: &Arc<Self>, head: Head, lend: &peer_lend) -> CuResult<()> {
        let allocation = self.objects.native(lend.allocation)?;
        let (engine, ticket, loan) = (Arc::clone(self), LaneToken(lend.ticket.secret), lend.loan);
        self.aside.run(move || {
            let trouble = engine.hand_out(ticket, loan, allocation).err().unwrap_or_default();
            engine.answer_with(head, |out| trouble.encode(out));
        });
        Ok(())
    }

    fn hand_out(&self, ticket: LaneToken, loan: u64, allocation: Native<Allocation>) -> Result<(), String> {
        let descriptor = self
            .gpu
            .export_allocation(allocation)
            .map_err(|status| format!("the driver does not export this allocation (error {})", status.0))?;
        let link = self.peers.link_of(ticket).ok_or("the other worker has gone")?;
        link.send_allocation(loan, descriptor.as_fd()).map_err(|cause| cause.to_string())
    }

    /// Maps what another worker has lent, for copies to a device.
    pub(in crate::worker) fn borrow_from_peer(
        self: &Arc<Self>,
        head: Head,
        borrow: &peer_borrow,
    ) -> CuResult<()> {
        let reader = self.peers.reader(borrow.peer)?;
        let (engine, loan, size, device) = (Arc::clone(self), borrow.loan, borrow.size as u64, borrow.device);
        // The descriptor may be on its way.
        self.aside.run(move || {
            let descriptor = reader.lent().take(loan).ok_or("its descriptor did not come".to_owned());
            let borrowed = descriptor.and_then(|descriptor| {
                engine.gpu.borrow_memory(descriptor, size, device).map_err(|cause| cause.to_string())
            });
            let trouble = match borrowed {
                Ok(borrowed) => {
                    tracing::debug!(loan, size, "memory of another server's device is mapped");
                    let memory = Arc::new(Mapped { engine: Arc::clone(&engine), borrowed: Some(borrowed) });
                    engine.peers.loans.lock().insert(loan, Loan { memory, streams: FxHashSet::default() });
                    String::new()
                }
                Err(trouble) => {
                    tracing::info!("memory of another server's device is not mapped: {trouble}");
                    trouble
                }
            };
            engine.answer_with(head, |out| trouble.encode(out));
        });
        Ok(())
    }

    /// Puts a copy from borrowed memory into a stream.
    pub(in crate::worker) fn copy_borrowed(&self, head: Head, copy: &peer_copy_borrowed) -> CuResult<()> {
        let stream = self.objects.native(copy.stream)?;
        let destination = copy.destination.natives(&self.objects)?;
        let mut loans = self.peers.loans.lock();
        let loan = loans.get_mut(&copy.loan).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let source = loan.memory.borrowed.as_ref().and_then(|memory| placed(&copy.source, memory));
        let source = source.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        loan.streams.insert((copy.stream, head.context));
        self.gpu.copy_within_device(destination, source.into(), stream)
    }

    /// Ends a loan; its memory stays mapped until the copies that were put into streams are done.
    pub(in crate::worker) fn give_back_loan(&self, loan: u64) {
        let Some(Loan { memory, streams }) = self.peers.loans.lock().remove(&loan) else { return };
        for (stream, context) in streams {
            // With a context its work has ended.
            if self.enter_context(context).is_err() {
                continue;
            }
            let held = Arc::clone(&memory);
            // Of a stream that was destroyed the copies may still be under way, somewhere in its context.
            let busy = match self.objects.native(stream) {
                Ok(stream) => Busy::in_stream(&*self.gpu, held, 0, stream),
                Err(_) => Busy::in_context(&*self.gpu, held, 0),
            };
            // Where no completion comes the memory stays mapped.
            let _ = busy.drop_after_a_while(&*self.gpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_the_memory_that_was_lent_are_copied() {
        let memory = Borrowed { address: 0x1000, size: 100 };
        let placed = |region: Region| placed(&region.into(), &memory);
        assert_eq!(placed(Region::linear(10, 90)).unwrap().address, 0x100a);
        assert_eq!(placed(Region::linear(10, 91)), None);
    }

    #[test]
    fn descriptors_wait_for_the_clients_word_and_are_bounded() {
        let descriptors = Descriptors::default();
        assert!(descriptors.arrive(0, Err(DescriptorError::NotReceived)));
        assert!(descriptors.take(0).is_none());
        let file = || Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        assert!((0..MOST_WAITING as u64).all(|loan| descriptors.arrive(loan, file())));
        assert!(!descriptors.arrive(1000, file()));
        assert!(descriptors.take(3).is_some() && descriptors.arrive(1000, file()));
    }
}
