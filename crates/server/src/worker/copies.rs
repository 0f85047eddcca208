//! Copies between the client and the GPU: staging memory is lent to the GPU until the stream has passed the copy.

use super::engine::{Engine, Head, State};
use super::incoming::Buffer;
use causeway_api::calls::{copy_from_device, copy_from_device_now, copy_to_device};
use causeway_api::handle::{Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, Payload};
use causeway_fabric::Carriage;
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

/// Bytes of copies to the client that may be under way; a copy beyond it is parked.
const MOST_OUTGOING: usize = 512 << 20;

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

impl Engine {
    /// Whether another copy to the client may start.
    pub(super) fn has_outgoing_credit(&self) -> bool {
        self.outgoing.load(Ordering::Relaxed) < MOST_OUTGOING
    }

    /// Starts a copy of the client's bytes into device memory.
    pub(super) fn copy_to_device(&self, state: &mut State, request: &copy_to_device<'_>) -> CuResult<()> {
        let stream = self.objects.native(request.stream)?;
        let buffer = match request.data {
            Payload::Inline(bytes) => {
                let mut staging = self.gpu.staging(bytes.len())?;
                staging.as_mut_slice().copy_from_slice(bytes);
                Buffer::Staged(staging)
            }
            Payload::Transfer { number, length } => self.incoming.take(number, length)?,
            Payload::Image { number, length, hash } => {
                self.keep_copied(self.incoming.take(number, length)?, hash)
            }
        };
        let destination = request.destination.natives(&self.objects)?;
        let bytes = buffer.as_slice().len();
        if request.destination.bytes() != Some(bytes as u64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer has as many bytes as the place, and `lend` keeps it until a completion that is asked
        // for after this call has been called.
        unsafe {
            self.gpu.start_copy_to_device(&destination, buffer.as_slice().as_ptr(), stream)?;
        }
        self.lend(state, stream, buffer)
    }

    /// Keeps the bytes of a copy for later ones that name the same content, if they have just come. What would have to
    /// wait too long for the disk is not kept.
    fn keep_copied(&self, buffer: Buffer, named: [u8; 32]) -> Buffer {
        let Some(cache) = self.cache.as_ref().filter(|_| !matches!(buffer, Buffer::Mapped(_))) else {
            return buffer;
        };
        let bytes = buffer.as_slice().len();
        if self.keeping.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST_BEING_KEPT {
            self.keeping.fetch_sub(bytes, Ordering::Relaxed);
            return buffer;
        }
        let (cache, keeping) = (Arc::clone(cache), Arc::clone(&self.keeping));
        let shared = Arc::new(buffer);
        let kept = Arc::clone(&shared);
        self.keeper.run(move || {
            // Stored under the hash that is computed here: nobody gets what another name promised.
            if cache.keep(kept.as_slice()) != named {
                tracing::warn!(
                    "the client sent other bytes than it had named; they are kept by their own hash"
                );
            }
            drop(kept);
            keeping.fetch_sub(bytes, Ordering::Relaxed);
        });
        Buffer::Shared(shared)
    }

    /// Starts a copy of device memory to the client, as a transfer.
    pub(super) fn copy_from_device(
        self: &Arc<Self>,
        state: &mut State,
        request: &copy_from_device,
    ) -> CuResult<()> {
        let transfer = request.transfer;
        let carriage =
            Carriage { flow: request.stream.value(), lanes: request.lanes as usize, ..Carriage::default() };
        let started = self.start_from_device(state, request.source, request.stream, {
            let engine = Arc::clone(self);
            move |outcome| match outcome {
                Ok(staging) => engine.put_in_line(transfer, staging, carriage),
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
        self.start_from_device(state, request.source, request.stream, move |outcome| match outcome {
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

    fn start_from_device(
        self: &Arc<Self>,
        state: &mut State,
        source: DevicePlace,
        stream: Handle<Stream>,
        done: impl FnOnce(CuResult<Staging>) + Send + 'static,
    ) -> CuResult<()> {
        let native = self.objects.native(stream)?;
        let place = source.natives(&self.objects)?;
        let bytes = source.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let staging = self.gpu.staging(bytes)?;
        if bytes > 0 {
            // SAFETY: the staging has the place's bytes and is owned by the completion asked for right after.
            unsafe { self.gpu.start_copy_from_device(&place, staging.as_ptr(), native)? };
        }
        self.outgoing.fetch_add(bytes, Ordering::Relaxed);
        let engine = Arc::clone(self);
        let lent = state.lent.remove(&native.value());
        let asked = self.gpu.after(
            native,
            Box::new(move |outcome| {
                drop(lent);
                if outcome.is_err() {
                    engine.outgoing.fetch_sub(staging.len(), Ordering::Relaxed);
                }
                done(outcome.map(|()| staging));
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
        lent.bytes += buffer.as_slice().len();
        lent.buffers.push(buffer);
        if lent.bytes < MOST_LENT_BYTES && lent.buffers.len() < MOST_LENT_PIECES {
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

    fn transfer_failed(&self, transfer: u64, error: CUresult) {
        let status = error.0;
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| WorkerMessage::TransferFailed { transfer, status }.encode(out));
    }
}
