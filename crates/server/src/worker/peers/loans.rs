//! Memory that one worker's device lends another's: how does it get there, what is copied from it, and when
//! does it go?
//!
//! The lender sends a descriptor of the allocation over the link, the borrower maps it. From then on a copy
//! from it is a command in a stream like any other, which the device carries out by itself.

use super::destination::Reader;
use super::links::Links;
use crate::worker::session::{Head, Session};
use causeway_api::calls::{peer_borrow, peer_copy_borrowed, peer_lend};
use causeway_api::handle::{Allocation, Context, Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, Region};
use causeway_gpu::CuResult;
use causeway_gpu::borrowed::Borrowed;
use causeway_gpu::busy::Busy;
use causeway_gpu::objects::Translate as _;
use causeway_wire::codec::Encode;
use causeway_wire::handshake::LaneToken;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Memory of other workers' devices, by the client's numbers.
#[derive(Clone, Default)]
pub struct Loans(Arc<Mutex<FxHashMap<u64, Loan>>>);

/// Memory of another worker's device that copies read.
struct Loan {
    memory: Arc<Mapped>,
    /// Streams that have got copies from it, each with the context that the command named.
    streams: FxHashSet<(Handle<Stream>, Handle<Context>)>,
}

/// Mapped memory, which goes when nothing copies from it any more.
struct Mapped {
    session: Arc<Session>,
    borrowed: Option<Borrowed>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let (session, borrowed) = (Arc::clone(&self.session), self.borrowed.take());
        // The driver may wait for the device.
        self.session.in_background(move || {
            if let Some(Err(error)) = borrowed.map(|borrowed| session.gpu().return_memory(borrowed)) {
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

/// Hands an allocation to the worker that has come with a ticket.
pub fn lend(session: &Arc<Session>, links: &Arc<Links>, head: Head, request: &peer_lend) -> CuResult<()> {
    let allocation = session.objects().native(request.allocation)?;
    let (lender, links) = (Arc::clone(session), Arc::clone(links));
    let (ticket, loan) = (LaneToken(request.ticket.secret), request.loan);
    session.in_background(move || {
        let trouble = hand_out(&lender, &links, ticket, loan, allocation).err().unwrap_or_default();
        lender.answer_with(head, |out| trouble.encode(out));
    });
    Ok(())
}

fn hand_out(
    session: &Session,
    links: &Links,
    ticket: LaneToken,
    loan: u64,
    allocation: Native<Allocation>,
) -> Result<(), String> {
    let descriptor = session
        .gpu()
        .export_allocation(allocation)
        .map_err(|status| format!("the driver does not export this allocation (error {})", status.0))?;
    let link = links.wait_for(ticket).ok_or("the other worker has gone")?;
    link.send_allocation(loan, descriptor.as_fd()).map_err(|cause| cause.to_string())
}

impl Loans {
    /// Maps what another worker has lent, for copies to a device.
    pub fn borrow(&self, session: &Arc<Session>, reader: Arc<Reader>, head: Head, request: &peer_borrow) {
        let (loans, borrower) = (self.clone(), Arc::clone(session));
        let (loan, size, device) = (request.loan, request.size as u64, request.device);
        // The descriptor may be on its way.
        session.in_background(move || {
            let descriptor = reader.lent().take(loan).ok_or("its descriptor did not come".to_owned());
            let borrowed = descriptor.and_then(|descriptor| {
                borrower.gpu().borrow_memory(descriptor, size, device).map_err(|cause| cause.to_string())
            });
            let trouble = match borrowed {
                Ok(borrowed) => {
                    tracing::debug!(loan, size, "memory of another server's device is mapped");
                    let memory =
                        Arc::new(Mapped { session: Arc::clone(&borrower), borrowed: Some(borrowed) });
                    loans.0.lock().insert(loan, Loan { memory, streams: FxHashSet::default() });
                    String::new()
                }
                Err(trouble) => {
                    tracing::info!("memory of another server's device is not mapped: {trouble}");
                    trouble
                }
            };
            borrower.answer_with(head, |out| trouble.encode(out));
        });
    }

    /// Puts a copy from borrowed memory into a stream.
    pub fn copy(&self, session: &Session, head: Head, copy: &peer_copy_borrowed) -> CuResult<()> {
        let stream = session.objects().native(copy.stream)?;
        let destination = copy.destination.natives(session.objects())?;
        let mut loans = self.0.lock();
        let loan = loans.get_mut(&copy.loan).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let source = loan.memory.borrowed.as_ref().and_then(|memory| placed(&copy.source, memory));
        let source = source.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        loan.streams.insert((copy.stream, head.context));
        session.gpu().copy_within_device(destination, source.into(), stream)
    }

    /// Ends a loan; its memory stays mapped until the copies that were put into streams are done.
    pub fn give_back(&self, session: &Session, loan: u64) {
        let Some(Loan { memory, streams }) = self.0.lock().remove(&loan) else { return };
        for (stream, context) in streams {
            // With a context its work has ended.
            if session.enter_context(context).is_err() {
                continue;
            }
            let held = Arc::clone(&memory);
            // Of a stream that was destroyed the copies may still be under way, somewhere in its context.
            let busy = match session.objects().native(stream) {
                Ok(stream) => Busy::in_stream(session.gpu(), held, 0, stream),
                Err(_) => Busy::in_context(session.gpu(), held, 0),
            };
            // Where no completion comes the memory stays mapped.
            let _ = busy.drop_after_a_while(session.gpu());
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
}
