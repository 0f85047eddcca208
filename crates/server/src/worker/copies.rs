//! Copies between the client and the GPU: staging memory is lent to the GPU until the stream has passed the copy.

use super::engine::{Engine, Head, State};
use super::incoming::Buffer;
use causeway_api::calls::{copy_from_device, copy_from_device_now, copy_to_device};
use causeway_api::handle::{Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, Payload};
use causeway_fabric::{Carriage, Piece, past_caches};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Staging};
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A stream's lent staging is asked back when it is this much or this many pieces, and at every wait that passes
/// by: one completion for many small copies.
const MOST_LENT_BYTES: usize = 4 << 20;
const MOST_LENT_PIECES: usize = 16;

/// Bytes of copies to the client that may be under way; a copy beyond it is parked. Enough for several milliseconds of any
/// network, and far less than the staging that is kept for reuse: pinning fresh memory is slower than networks are.
const MOST_OUTGOING: usize = 128 << 20;

/// Bytes of copies that may wait for being written to the cache.
const MOST_BEING_KEPT: usize = 512 << 20;

/// The longest reply that carries its bytes itself; the client asks for longer ones as transfers.
const MOST_INLINE: u64 = 1 << 20;

/// Staging that the GPU may still read, for one stream.
#[derive(Default)]
pub struct Lent {
    buffers: Vec<Buffer>,
    bytes: usize,
}

/// A filled piece on its way to the client.
struct Outgoing {
    engine: Arc<Engine>,
    staging: Staging,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.engine.outgoing.fetch_sub(self.staging.len(), Ordering::Relaxed);
        self.engine.wake();
    }
}

/// Where the GPU puts what is copied to the client.
enum Landing {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the client.
    Shared(Piece),
}

/// Host memory that the GPU copies to.
trait HostMemory: Send + 'static {
    /// Its first byte.
    fn start(&self) -> *mut u8;
}

impl HostMemory for Staging {
    fn start(&self) -> *mut u8 {
        self.as_ptr()
    }
}

impl HostMemory for Landing {
    fn start(&self) -> *mut u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Shared(piece) => piece.as_ptr(),
        }
    }
}

impl Engine {
    /// Whether another copy to the client may start.
    pub(super) fn has_outgoing_credit(&self) -> bool {
        self.outgoing.load(Ordering::Relaxed) < MOST_OUTGOING
    }

    /// Starts a copy of the client's bytes into device memory.
    pub(super) fn copy_to_device(
        &self,
        state: &mut State,
        head: Head,
        request: &copy_to_device<'_>,
    ) -> CuResult<()> {
        if let Payload::Lent { number, .. } = request.data
            && !self.incoming.knows(number)
        {
            return self.read_lent(head, request);
        }
        let stream = self.objects.native(request.stream)?;
        let buffer = match request.data {
            Payload::Inline(bytes) => {
                let mut staging = self.gpu.staging(bytes.len())?;
                past_caches::copy_slice(staging.as_mut_slice(), bytes);
                Buffer::Staged(staging)
            }
            Payload::Transfer { number, length } | Payload::Lent { number, length, .. } => {
                self.incoming.take(number, length)?
            }
            Payload::Image { number, length, hash } => {
                self.keep_copied(self.incoming.take(number, length)?, hash)
            }
        };
        let destination = request.destination.natives(&self.objects)?;
        let bytes = buffer.len();
        if request.destination.bytes() != Some(bytes as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if bytes == 0 {
            return Ok(());
        }
        let buffer = self.ready_for_gpu(buffer)?;
        // SAFETY: the buffer has as many bytes as the place, and `lend` keeps it until a completion that is asked
        // for after this call has been called. Nobody but the client changes what is shared with it, to its own loss.
        unsafe {
            self.gpu.start_copy_to_device(&destination, buffer.as_ptr(), stream)?;
        }
        self.lend(state, stream, buffer)
    }

    /// Keeps the bytes of a copy for later ones that name the same content, if they have just come. What would have to
    /// wait too long for the disk is not kept.
    fn keep_copied(&self, buffer: Buffer, named: [u8; 32]) -> Buffer {
        let Some(cache) = self.cache.as_ref().filter(|_| !matches!(buffer, Buffer::Mapped(_))) else {
            return buffer;
        };
        let bytes = buffer.len();
        if self.keeping.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST_BEING_KEPT {
            self.keeping.fetch_sub(bytes, Ordering::Relaxed);
            return buffer;
        }
        let (cache, keeping) = (Arc::clone(cache), Arc::clone(&self.keeping));
        let shared = Arc::new(buffer);
        let kept = Arc::clone(&shared);
        self.keeper.run(move || {
            // Stored under the hash that is computed here: nobody gets what another name promised.
            if cache.keep(&kept.settled()) != named {
                tracing::warn!(
                    "the client sent other bytes than it had named; they are kept by their own hash"
                );
            }
            drop(kept);
            keeping.fetch_sub(bytes, Ordering::Relaxed);
        });
        Buffer::Shared(shared)
    }

    /// Makes sure that the GPU can take the bytes where they are, or moves them to where it can.
    fn ready_for_gpu(&self, buffer: Buffer) -> CuResult<Buffer> {
        let Some(arena) = &self.arena else { return Ok(buffer) };
        let leased = match buffer {
            Buffer::Leased(leased) => leased,
            other => return Ok(other),
        };
        match arena.lend_to_gpu(leased) {
            Ok(leased) => {
                arena.prepare(&*self.gpu, leased.as_ptr(), leased.len());
                Ok(Buffer::Leased(leased))
            }
            Err(leased) => {
                let staging = self.gpu.staging(leased.len())?;
                // SAFETY: the staging has as many bytes.
                unsafe { leased.empty_into(staging.as_ptr()) };
                Ok(Buffer::Staged(staging))
            }
        }
    }

    /// Host memory for a copy to the client: where the client reads it, if there is room, or else staging.
    fn landing(&self, bytes: usize) -> CuResult<Landing> {
        if let Some(arena) = &self.arena
            && let Some(piece) = self.link.piece(bytes)
        {
            arena.prepare(&*self.gpu, piece.as_ptr(), piece.len());
            return Ok(Landing::Shared(piece));
        }
        self.gpu.staging(bytes).map(Landing::Staged)
    }

    /// Starts a copy of device memory to the client, as a transfer.
    pub(super) fn copy_from_device(
        self: &Arc<Self>,
        state: &mut State,
        request: &copy_from_device,
    ) -> CuResult<()> {
        let transfer = request.transfer;
        if self.send_from_device(request)? {
            return Ok(());
        }
        let carriage = Carriage { flow: request.flow, lanes: request.lanes as usize, ..Carriage::default() };
        let started = self.start_from_device(state, request.source, request.stream, Self::landing, {
            let (engine, into) = (Arc::clone(self), request.into);
            move |outcome| match outcome {
                Ok(Landing::Shared(piece)) => {
                    let bytes = piece.len();
                    // A lost link is noticed by the receiving thread.
                    let _ = match into {
                        Some(into) => engine.link.put_piece(transfer, piece, into),
                        None => engine.link.send_piece(transfer, piece),
                    };
                    engine.outgoing.fetch_sub(bytes, Ordering::Relaxed);
                    engine.wake();
                }
                Ok(Landing::Staged(staging)) => engine.put_in_line(transfer, staging, carriage),
                Err(error) => engine.transfer_failed(transfer, error),
            }
        });
        if let Err(error) = started {
            self.transfer_failed(transfer, error);
        }
        started
    }

    /// Hands filled staging to the link's threads.
    fn put_in_line(self: &Arc<Self>, transfer: u64, staging: Staging, carriage: Carriage) {
        let (start, length) = (staging.as_slice().as_ptr(), staging.len());
        let keeper = Outgoing { engine: Arc::clone(self), staging };
        // SAFETY: the memory belongs to the staging, which the keeper owns and nobody writes to. A lost link is noticed by
        // the receiving thread.
        let _ = unsafe { self.link.post_transfer(transfer, start, length, carriage, keeper) };
    }

    /// Starts a short copy of device memory whose bytes come in the reply.
    pub(super) fn copy_from_device_now(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &copy_from_device_now,
    ) -> CuResult<()> {
        if request.source.bytes().is_none_or(|bytes| bytes > MOST_INLINE) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let engine = Arc::clone(self);
        let staged = |engine: &Self, bytes| engine.gpu.staging(bytes);
        self.start_from_device(state, request.source, request.stream, staged, move |outcome| match outcome {
            Ok(staging) => {
                engine.outgoing.fetch_sub(staging.len(), Ordering::Relaxed);
                engine.answer_with(head, |out| {
                    // A `Vec<u8>` as the codec has it, without a step for each byte.
                    (staging.len() as u32).encode(out);
                    out.extend_from_slice(staging.as_slice());
                });
            }
            Err(error) => engine.answer(head, Err(error), &[]),
        })
    }

    fn start_from_device<L: HostMemory>(
        self: &Arc<Self>,
        state: &mut State,
        source: DevicePlace,
        stream: Handle<Stream>,
        landing: impl FnOnce(&Self, usize) -> CuResult<L>,
        done: impl FnOnce(CuResult<L>) + Send + 'static,
    ) -> CuResult<()> {
        let native = self.objects.native(stream)?;
        let place = source.natives(&self.objects)?;
        let bytes = source.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let memory = landing(self, bytes)?;
        if bytes > 0 {
            // SAFETY: the memory has the place's bytes and is owned by the completion asked for right after.
            unsafe { self.gpu.start_copy_from_device(&place, memory.start(), native)? };
        }
        self.outgoing.fetch_add(bytes, Ordering::Relaxed);
        let engine = Arc::clone(self);
        let lent = state.lent.remove(&native.value());
        let asked = self.gpu.after(
            native,
            Box::new(move |outcome| {
                drop(lent);
                if outcome.is_err() {
                    engine.outgoing.fetch_sub(bytes, Ordering::Relaxed);
                }
                done(outcome.map(|()| memory));
            }),
        );
        // No completion comes after a refusal, so nobody else would give the credit back.
        asked.inspect_err(|_| {
            self.outgoing.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    /// Keeps `buffer` until `stream` has passed what it holds now.
    fn lend(&self, state: &mut State, stream: Native<Stream>, buffer: Buffer) -> CuResult<()> {
        let lent = state.lent.entry(stream.value()).or_default();
        lent.bytes += buffer.len();
        lent.buffers.push(buffer);
        let is_scarce = self.arena.as_ref().is_some_and(|arena| arena.is_scarce());
        if lent.bytes < MOST_LENT_BYTES && lent.buffers.len() < MOST_LENT_PIECES && !is_scarce {
            return Ok(());
        }
        self.ask_back(state, stream)
    }

    /// Gets a stream's lent staging back once the stream has passed what it holds now.
    pub(super) fn ask_back(&self, state: &mut State, stream: Native<Stream>) -> CuResult<()> {
        match state.lent.remove(&stream.value()) {
            Some(lent) => self.gpu.after_a_while(stream, Box::new(move |_| drop(lent))),
            None => Ok(()),
        }
    }

    pub(super) fn transfer_failed(&self, transfer: u64, error: CUresult) {
        let status = error.0;
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| WorkerMessage::TransferFailed { transfer, status }.encode(out));
    }
}
