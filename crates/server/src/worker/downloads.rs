//! How do bytes of device memory get to the client?

use super::arena::Arena;
use super::landing::Landing;
use super::memory::mirrors::{MOST_READ, Mirrors};
use super::rdma::RdmaCopies;
use super::session::{Head, Session};
use super::uploads_in_flight::UploadsInFlight;
use causeway_api::calls::{copy_from_device, copy_from_device_now, mirror_read};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, RemoteRegion};
use causeway_gpu::in_flight::{HostMemory as _, HostMemoryMut, InFlight};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Staging};
use causeway_link::TransferOptions;
use causeway_sync::delays;
use causeway_wire::codec::Encode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of copies to the client that may be under way; a copy beyond it is deferred. Enough for several
/// milliseconds of any network, and far less than the staging that is kept for reuse: pinning fresh memory is
/// slower than networks are.
const MOST_OUTGOING: usize = 128 << 20;

/// The longest reply that carries its bytes itself; the client asks for longer ones as transfers.
const MOST_INLINE: u64 = 1 << 20;

/// A filled piece on its way to the client.
struct Outgoing {
    session: Arc<Session>,
    account: Account,
    staging: Staging,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.account.give_back(self.staging.len());
        self.session.wake();
    }
}

/// Bytes of copies to the client that are under way.
#[derive(Clone, Default)]
struct Account(Arc<AtomicUsize>);

impl Account {
    fn take(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The session's part in copies to the client.
pub struct Downloads {
    /// Memory shared with the client, where the link has any.
    arena: Option<Arc<Arena>>,
    account: Account,
}

/// What a copy reads, and when.
struct Source {
    context: Handle<Context>,
    place: DevicePlace,
    stream: Handle<Stream>,
}

impl Downloads {
    /// With memory shared with the client, where there is any.
    pub fn new(arena: Option<Arc<Arena>>) -> Self {
        Self { arena, account: Account::default() }
    }

    /// Whether another copy to the client may start.
    pub fn has_credit(&self) -> bool {
        self.account.0.load(Ordering::Relaxed) < MOST_OUTGOING
    }

    /// Host memory for a copy to the client: where the client reads it, if there is room, or else staging.
    fn landing(&self, session: &Session, bytes: usize) -> CuResult<Landing> {
        if let Some(arena) = &self.arena
            && let Some(piece) = session.link().piece(bytes)
        {
            arena.prepare(session.gpu(), piece.as_ptr(), piece.len());
            return Ok(Landing::Shared(piece));
        }
        session.gpu().staging(bytes).map(Landing::Staged)
    }

    /// Starts a copy of device memory to the client, as a transfer.
    pub fn copy(
        &self,
        session: &Arc<Session>,
        in_flight: &mut UploadsInFlight,
        rdma: &RdmaCopies,
        head: Head,
        request: &copy_from_device,
    ) -> CuResult<()> {
        let transfer = request.transfer;
        if rdma.send(session, request)? {
            return Ok(());
        }
        let options = TransferOptions {
            flow: request.flow,
            lanes: request.lanes as usize,
            ..TransferOptions::default()
        };
        let source = Source { context: head.context, place: request.source, stream: request.stream };
        let (sender, account, into) = (Arc::clone(session), self.account.clone(), request.into);
        let started = self.start(
            session,
            in_flight,
            &source,
            |bytes| self.landing(session, bytes),
            move |outcome| match outcome {
                Ok(landing) => send(sender, account, transfer, landing, into, options),
                Err(error) => sender.transfer_failed(transfer, error),
            },
        );
        started.inspect_err(|error| session.transfer_failed(transfer, *error))
    }

    /// Copies memory of a mirror to the client, as a transfer. The device copies at once, whatever its
    /// streams are doing.
    pub fn read_mirror(
        &self,
        session: &Arc<Session>,
        mirrors: &Mirrors,
        request: &mirror_read,
    ) -> CuResult<()> {
        let transfer = request.transfer;
        let landing = self
            .mirror_landed(session, mirrors, request.address, request.size)
            .inspect_err(|error| session.transfer_failed(transfer, *error))?;
        self.account.take(landing.bytes());
        let (flow, lanes) = (request.flow, request.lanes as usize);
        let options = TransferOptions { flow, lanes, ..TransferOptions::default() };
        send(Arc::clone(session), self.account.clone(), transfer, landing, None, options);
        Ok(())
    }

    fn mirror_landed(
        &self,
        session: &Session,
        mirrors: &Mirrors,
        address: u64,
        bytes: usize,
    ) -> CuResult<Landing> {
        if bytes == 0 || bytes > MOST_READ {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let landing = self.landing(session, bytes)?;
        // SAFETY: the landing owns as many bytes, all of which were written before. A client that writes to
        // memory which it shares before it has been sent spoils only what it gets.
        let into = unsafe { core::slice::from_raw_parts_mut(landing.address_mut(), bytes) };
        match mirrors.read(address, into) {
            Ok(()) => Ok(landing),
            Err(error) => {
                // The device may still write to it.
                session.gpu().set_aside().add(landing, bytes);
                Err(error)
            }
        }
    }

    /// Starts a short copy of device memory whose bytes come in the reply.
    pub fn copy_now(
        &self,
        session: &Arc<Session>,
        in_flight: &mut UploadsInFlight,
        head: Head,
        request: &copy_from_device_now,
    ) -> CuResult<()> {
        if request.source.bytes().is_none_or(|bytes| bytes > MOST_INLINE) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let source = Source { context: head.context, place: request.source, stream: request.stream };
        let (answerer, account) = (Arc::clone(session), self.account.clone());
        self.start(
            session,
            in_flight,
            &source,
            |bytes| session.gpu().staging(bytes),
            move |outcome| match outcome {
                Ok(staging) => {
                    account.give_back(staging.len());
                    answerer.answer_with(head, |out| {
                        // A `Vec<u8>` as the codec has it, without a step for each byte.
                        (staging.len() as u32).encode(out);
                        out.extend_from_slice(staging.as_slice());
                    });
                }
                Err(error) => answerer.answer(head, Err(error), &[]),
            },
        )
    }

    /// Starts a copy to memory that `landing` makes. Its bytes are under way until `done` has given them
    /// back, or has got an error.
    fn start<L: HostMemoryMut>(
        &self,
        session: &Session,
        in_flight: &mut UploadsInFlight,
        source: &Source,
        landing: impl FnOnce(usize) -> CuResult<L>,
        done: impl FnOnce(CuResult<L>) + Send + 'static,
    ) -> CuResult<()> {
        let gpu = session.gpu();
        let native = session.objects().native(source.stream)?;
        let place = source.place.natives(session.objects())?;
        let bytes = source.place.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let copy = InFlight::copy_from_device(gpu, &place, landing(bytes)?, native)?;
        self.account.take(bytes);
        let account = self.account.clone();
        let then = move |outcome: CuResult<L>| {
            delays::inject();
            if outcome.is_err() {
                account.give_back(bytes);
            }
            done(outcome);
        };
        let asked = match in_flight.take(source.context, native) {
            Some(in_flight) => {
                copy.and(in_flight).after(gpu, move |both| then(both.map(|(memory, _uploads)| memory)))
            }
            None => copy.after(gpu, then),
        };
        // No completion comes after a refusal, so nobody else would give the credit back.
        asked.inspect_err(|_| self.account.give_back(bytes))
    }
}

/// Sends what lies where the GPU has put it. Its bytes count as under way.
fn send(
    session: Arc<Session>,
    account: Account,
    transfer: u64,
    landing: Landing,
    into: Option<RemoteRegion>,
    options: TransferOptions,
) {
    let link = session.link().clone();
    match landing {
        Landing::Shared(piece) => {
            let bytes = piece.len();
            // A lost link is noticed by the receiving thread.
            let _ = match into {
                Some(into) => link.put_piece(transfer, piece, into),
                None => link.send_piece(transfer, piece),
            };
            account.give_back(bytes);
            session.wake();
        }
        Landing::Staged(staging) => {
            let (start, length) = (staging.as_slice().as_ptr(), staging.len());
            let guard = Outgoing { session, account, staging };
            // SAFETY: the memory belongs to the staging, which the guard owns and nobody writes to. A lost
            // link is noticed by the receiving thread.
            let _ = unsafe { link.post_transfer(transfer, start, length, options, guard) };
        }
    }
}
