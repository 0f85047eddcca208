//! How do bytes of device memory get to the client?

use crate::worker::engine::{Engine, Head, State};
use crate::worker::mirrors::MOST_READ;
use causeway_api::calls::{copy_from_device, copy_from_device_now, mirror_read};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::CUresult;
use causeway_api::types::{DevicePlace, LentMemory};
use causeway_gpu::busy::{Busy, HostMemory, HostMemoryMut};
use causeway_gpu::objects::Translate;
use causeway_gpu::{CuResult, Staging};
use causeway_link::{Carriage, Piece};
use causeway_sync::delays;
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of copies to the client that may be under way; a copy beyond it is parked. Enough for several milliseconds of any
/// network, and far less than the staging that is kept for reuse: pinning fresh memory is slower than networks are.
const MOST_OUTGOING: usize = 128 << 20;

/// The longest reply that carries its bytes itself; the client asks for longer ones as transfers.
const MOST_INLINE: u64 = 1 << 20;

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

/// Where the GPU puts what a client or another worker reads.
pub(in crate::worker) enum Landing {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the reader.
    Shared(Piece),
}

// SAFETY: staging owns its memory and a piece its slots, until they are dropped.
unsafe impl HostMemory for Landing {
    fn address(&self) -> *const u8 {
        self.address_mut()
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Shared(piece) => piece.len(),
        }
    }
}

// SAFETY: as above; nobody reads a piece before it is sent.
unsafe impl HostMemoryMut for Landing {
    fn address_mut(&self) -> *mut u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Shared(piece) => piece.as_ptr(),
        }
    }
}

impl Engine {
    /// Whether another copy to the client may start.
    pub(in crate::worker) fn has_outgoing_credit(&self) -> bool {
        self.outgoing.load(Ordering::Relaxed) < MOST_OUTGOING
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
    pub(in crate::worker) fn copy_from_device(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &copy_from_device,
    ) -> CuResult<()> {
        let transfer = request.transfer;
        if self.send_from_device(request)? {
            return Ok(());
        }
        let carriage = Carriage { flow: request.flow, lanes: request.lanes as usize, ..Carriage::default() };
        let started =
            self.start_from_device(state, head.context, (request.source, request.stream), Self::landing, {
                let (engine, into) = (Arc::clone(self), request.into);
                move |outcome| match outcome {
                    Ok(landing) => engine.send_landed(transfer, landing, into, carriage),
                    Err(error) => engine.transfer_failed(transfer, error),
                }
            });
        if let Err(error) = started {
            self.transfer_failed(transfer, error);
        }
        started
    }

    /// Copies memory of a mirror to the client, as a transfer. The device copies at once, whatever its streams are doing.
    pub(in crate::worker) fn read_mirror(self: &Arc<Self>, request: &mirror_read) -> CuResult<()> {
        let transfer = request.transfer;
        let landed = self.mirror_landed(request.address, request.size);
        match landed {
            Ok(landing) => {
                self.outgoing.fetch_add(landing.bytes(), Ordering::Relaxed);
                let (flow, lanes) = (request.flow, request.lanes as usize);
                self.send_landed(transfer, landing, None, Carriage { flow, lanes, ..Carriage::default() });
                Ok(())
            }
            Err(error) => {
                self.transfer_failed(transfer, error);
                Err(error)
            }
        }
    }

    fn mirror_landed(&self, address: u64, bytes: usize) -> CuResult<Landing> {
        if bytes == 0 || bytes > MOST_READ {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let landing = self.landing(bytes)?;
        // SAFETY: the landing owns as many bytes, all of which were written before. A client that writes to memory which it shares before
        // it has been sent spoils only what it gets.
        let into = unsafe { core::slice::from_raw_parts_mut(landing.address_mut(), bytes) };
        match self.mirrors.read(address, into) {
            Ok(()) => Ok(landing),
            Err(error) => {
                // The device may still write to it.
                self.gpu.set_aside().add(landing, bytes);
                Err(error)
            }
        }
    }

    /// Sends what lies where the GPU has put it. Its bytes count as outgoing.
    fn send_landed(
        self: &Arc<Self>,
        transfer: u64,
        landing: Landing,
        into: Option<LentMemory>,
        carriage: Carriage,
    ) {
        match landing {
            Landing::Shared(piece) => {
                let bytes = piece.len();
                // A lost link is noticed by the receiving thread.
                let _ = match into {
                    Some(into) => self.link.put_piece(transfer, piece, into),
                    None => self.link.send_piece(transfer, piece),
                };
                self.outgoing.fetch_sub(bytes, Ordering::Relaxed);
                self.wake();
            }
            Landing::Staged(staging) => self.put_in_line(transfer, staging, carriage),
        }
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
    pub(in crate::worker) fn copy_from_device_now(
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
        self.start_from_device(
            state,
            head.context,
            (request.source, request.stream),
            staged,
            move |outcome| match outcome {
                Ok(staging) => {
                    engine.outgoing.fetch_sub(staging.len(), Ordering::Relaxed);
                    engine.answer_with(head, |out| {
                        // A `Vec<u8>` as the codec has it, without a step for each byte.
                        (staging.len() as u32).encode(out);
                        out.extend_from_slice(staging.as_slice());
                    });
                }
                Err(error) => engine.answer(head, Err(error), &[]),
            },
        )
    }

    fn start_from_device<L: HostMemoryMut>(
        self: &Arc<Self>,
        state: &mut State,
        context: Handle<Context>,
        (source, stream): (DevicePlace, Handle<Stream>),
        landing: impl FnOnce(&Self, usize) -> CuResult<L>,
        done: impl FnOnce(CuResult<L>) + Send + 'static,
    ) -> CuResult<()> {
        let native = self.objects.native(stream)?;
        let place = source.natives(&self.objects)?;
        let bytes = source.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let memory = landing(self, bytes)?;
        let busy = Busy::copy_from_device(&*self.gpu, &place, memory, native)?;
        self.outgoing.fetch_add(bytes, Ordering::Relaxed);
        let engine = Arc::clone(self);
        let then = move |outcome: CuResult<L>| {
            delays::inject();
            if outcome.is_err() {
                engine.outgoing.fetch_sub(bytes, Ordering::Relaxed);
            }
            done(outcome);
        };
        let asked = match state.lending.take(context, native) {
            Some(lent) => {
                busy.and(lent).after(&*self.gpu, move |both| then(both.map(|(memory, _lent)| memory)))
            }
            None => busy.after(&*self.gpu, then),
        };
        // No completion comes after a refusal, so nobody else would give the credit back.
        asked.inspect_err(|_| {
            self.outgoing.fetch_sub(bytes, Ordering::Relaxed);
        })
    }

    pub(in crate::worker) fn transfer_failed(&self, transfer: u64, error: CUresult) {
        let status = error.0;
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| WorkerMessage::TransferFailed { transfer, status }.encode(out));
    }
}
