//! Device-to-host copies.

use super::arena::{Arena, DownloadBuffer};
use super::credit::{Account, DownloadCredit};
use super::memory::mirrors::{MAX_READ_BYTES, Mirrors};
use super::order;
use super::rdma::RdmaCopies;
use super::session::{Head, Session};
use super::uploads_in_flight::UploadsInFlight;
use causeway_api::calls::{copy_from_device, copy_from_device_now, mirror_read};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, RemoteRegion};
use causeway_gpu::in_flight::{HostMemory as _, HostMemoryMut, InFlight};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Staging};
use causeway_link::{Direction, TransferOptions};
use causeway_sync::delays;
use causeway_wire::codec::Encode;
use std::sync::Arc;

/// Stands for the stream of what waits for none.
const NO_STREAM: u64 = u64::MAX;

/// The longest reply that carries its bytes itself; the client asks for longer ones as transfers.
const MAX_INLINE_BYTES: u64 = 1 << 20;

/// A filled piece on its way to the client.
struct Outgoing {
    _staging: Staging,
    _credit: DownloadCredit,
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
    place: DeviceLocation,
    stream: Handle<Stream>,
}

impl Downloads {
    /// With memory shared with the client, where there is any.
    pub fn new(arena: Option<Arc<Arena>>) -> Self {
        Self { arena, account: Account::default() }
    }

    /// Whether another copy of a stream to the client may start.
    pub fn has_credit(&self, stream: u64) -> bool {
        self.account.has_credit(stream)
    }

    /// Whether no copy to the client is under way.
    pub fn are_all_sent(&self) -> bool {
        self.account.is_unused()
    }

    /// Host memory for a copy to the client: where the client reads it, if there is room, or else staging.
    fn download_buffer(&self, session: &Session, bytes: usize) -> CuResult<DownloadBuffer> {
        if let Some(arena) = &self.arena
            && let Some(share) = arena.lease_for_download(bytes)
            && let Some(piece) = session.link().piece(bytes)
        {
            arena.prepare(session.gpu(), piece.as_ptr(), piece.len());
            return Ok(DownloadBuffer::Shared(piece, Some(share)));
        }
        session.gpu().staging(bytes).map(DownloadBuffer::Staged)
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
        if rdma.send(session, request, self.arena.as_ref())? {
            return Ok(());
        }
        let options = TransferOptions {
            flow: request.flow,
            lanes: request.lanes as usize,
            ..TransferOptions::default()
        };
        let source = Source { context: head.context, place: request.source, stream: request.stream };
        let (sender, into) = (Arc::clone(session), request.into);
        let started = self.start(
            session,
            in_flight,
            &source,
            |bytes| self.download_buffer(session, bytes),
            move |outcome, credit| match outcome {
                Ok(download_buffer) => send(&sender, credit, transfer, download_buffer, into, options),
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
        let download_buffer = self
            .read_mirror_into_buffer(session, mirrors, request.address, request.size)
            .inspect_err(|error| session.transfer_failed(transfer, *error))?;
        // It is under way at once, and waits for no stream.
        let credit = self.account.take(session, NO_STREAM, download_buffer.bytes());
        let (flow, lanes) = (request.flow, request.lanes as usize);
        let options = TransferOptions { flow, lanes, ..TransferOptions::default() };
        send(session, credit, transfer, download_buffer, None, options);
        Ok(())
    }

    fn read_mirror_into_buffer(
        &self,
        session: &Session,
        mirrors: &Mirrors,
        address: u64,
        bytes: usize,
    ) -> CuResult<DownloadBuffer> {
        if bytes == 0 || bytes > MAX_READ_BYTES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let download_buffer = self.download_buffer(session, bytes)?;
        // SAFETY: the buffer owns as many bytes, all of which were written before. A client that writes to
        // memory which it shares before it has been sent spoils only what it gets.
        let into = unsafe { core::slice::from_raw_parts_mut(download_buffer.address_mut(), bytes) };
        match mirrors.read(address, into) {
            Ok(()) => Ok(download_buffer),
            Err(error) => {
                // The device may still write to it.
                session.gpu().set_aside().add(download_buffer, bytes);
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
        if request.source.bytes().is_none_or(|bytes| bytes > MAX_INLINE_BYTES) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        session.exchange().count_inline(Direction::Sent, request.source.bytes().unwrap_or(0));
        let source = Source { context: head.context, place: request.source, stream: request.stream };
        let answerer = Arc::clone(session);
        self.start(
            session,
            in_flight,
            &source,
            |bytes| session.gpu().staging(bytes),
            move |outcome, _credit| match outcome {
                Ok(staging) => {
                    answerer.reply_with(head, |out| {
                        // A `Vec<u8>` as the codec has it, without a step for each byte.
                        (staging.len() as u32).encode(out);
                        out.extend_from_slice(staging.as_slice());
                    });
                }
                Err(error) => answerer.reply(head, Err(error), &[]),
            },
        )
    }

    /// Starts a copy to memory that `allocate` makes. Its bytes are under way until `done` drops the credit.
    fn start<B: HostMemoryMut>(
        &self,
        session: &Arc<Session>,
        in_flight: &mut UploadsInFlight,
        source: &Source,
        allocate: impl FnOnce(usize) -> CuResult<B>,
        done: impl FnOnce(CuResult<B>, DownloadCredit) + Send + 'static,
    ) -> CuResult<()> {
        let gpu = session.gpu();
        let native = session.objects().native(source.stream)?;
        let place = source.place.natives(session.objects())?;
        let bytes = source.place.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let copy = InFlight::copy_from_device(gpu, &place, allocate(bytes)?, native)?;
        // No completion comes after a refusal, and then the credit goes with what asked for one.
        let credit = self.account.take(session, order::key(source.stream, source.context), bytes);
        let then = move |outcome: CuResult<B>| {
            delays::inject();
            done(outcome, credit);
        };
        match in_flight.take(source.context, native) {
            Some(in_flight) => {
                copy.and(in_flight).after(gpu, move |both| then(both.map(|(memory, _uploads)| memory)))
            }
            None => copy.after(gpu, then),
        }
    }
}

/// Sends what lies where the GPU has put it. Its bytes count as under way.
fn send(
    session: &Session,
    credit: DownloadCredit,
    transfer: u64,
    download_buffer: DownloadBuffer,
    into: Option<RemoteRegion>,
    options: TransferOptions,
) {
    let link = session.link().clone();
    match download_buffer {
        DownloadBuffer::Shared(piece, _share) => {
            // A lost link is noticed by the receiving thread.
            let _ = match into {
                Some(into) => link.put_piece(transfer, piece, into),
                None => link.send_piece(transfer, piece),
            };
        }
        DownloadBuffer::Staged(staging) => {
            let (start, length) = (staging.as_slice().as_ptr(), staging.len());
            let guard = Outgoing { _staging: staging, _credit: credit };
            // SAFETY: the memory belongs to the staging, which the guard owns and nobody writes to. A lost
            // link is noticed by the receiving thread.
            let _ = unsafe { link.post_transfer(transfer, start, length, options, guard) };
        }
    }
}
