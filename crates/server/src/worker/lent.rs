//! Copies that network cards make by themselves, between device memory and memory that the client has lent.
//!
//! A copy to the device reads the client's memory when its stream gets there, and the stream goes on when the bytes are in the
//! device's memory; a copy from the device writes them, to memory that the client has lent or to the client's arena. Where
//! the card does not reach the device's memory, bytes go through staging.

use super::direct::Direct;
use super::engine::{Engine, Head};
use super::incoming::Buffer;
use causeway_api::calls::{Request, copy_from_device, copy_to_device};
use causeway_api::sys::CUresult;
use causeway_api::types::{LentMemory, Payload};
use causeway_gpu::CuResult;
use causeway_link::Piece;
use std::sync::Arc;

/// The most bytes that are lent for one copy; a client that names more gets an error.
const MOST_LENT: u64 = 256 << 20;

/// Where a card writes a copy to the client.
enum Target {
    /// To memory that the client has lent for it.
    Memory(LentMemory),
    /// To the client's arena, in the slots of a piece.
    Arena(Piece),
}

impl Engine {
    /// Looks whether the card can bring lent bytes to where a command wants them. If it cannot, they are brought to staging,
    /// aside, and the command waits for them as for a transfer.
    pub(super) fn see_to_lent(self: &Arc<Self>, copy: &copy_to_device<'_>) {
        let Payload::Lent { number, length, memory } = copy.data else { return };
        let direct = self.direct.as_ref().ok();
        if direct.is_some_and(|direct| direct.reach(&*self.gpu, &copy.destination).is_some())
            || !self.incoming.seek(number)
        {
            return;
        }
        let engine = Arc::clone(self);
        self.aside.run(move || {
            let brought = engine.bring_to_staging(memory, length);
            engine.link.decline(memory);
            engine.incoming.brought(number, brought);
            engine.wake();
        });
    }

    fn bring_to_staging(&self, memory: LentMemory, length: u64) -> CuResult<Buffer> {
        if length > MOST_LENT || !self.incoming.has_room(length) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let staging = self.gpu.staging(length as usize)?;
        // SAFETY: the staging is ours and has as many bytes.
        let read = unsafe { self.link.read_to_host(memory, staging.as_ptr(), staging.len()) };
        read.map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(Buffer::Staged(staging))
    }

    /// A command that names lent memory will not be carried out. Where the bytes were brought to staging, whoever did that has
    /// given the memory back.
    pub(super) fn let_go_of_lent(&self, request: &Request<'_>) {
        if let Some(Payload::Lent { memory, .. }) = request.payload() {
            self.link.decline(memory);
        }
    }

    /// Has the card read lent memory straight into the device's.
    pub(super) fn read_lent(&self, head: Head, request: &copy_to_device<'_>) -> CuResult<()> {
        let Payload::Lent { length, memory, .. } = request.data else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let prepared = || {
            let (stream, context) =
                (self.objects.native(request.stream)?, self.objects.native(head.context)?);
            let direct = self.direct.as_ref().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let reached = direct.reach(&*self.gpu, &request.destination);
            let (device, address, bytes) = reached.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            if bytes as u64 == length {
                Ok((stream, context, device, address, bytes))
            } else {
                Err(CUresult::CUDA_ERROR_INVALID_VALUE)
            }
        };
        let (stream, context, device, address, bytes) =
            prepared().inspect_err(|_| self.link.decline(memory))?;
        let (link, gpu, refused) = (self.link.clone(), Arc::clone(&self.gpu), self.link.clone());
        self.in_turn(
            stream,
            move |stop| {
                let then = Box::new(move |outcome: Result<(), _>| {
                    if outcome.is_ok()
                        && let Err(error) = gpu.finish_direct_writes(context)
                    {
                        tracing::warn!(
                            status = error.0,
                            "what a network card has written to device memory may come late"
                        );
                    }
                    stop.open();
                });
                link.read_to_device(memory, &device, address, bytes, then);
            },
            move |_| refused.decline(memory),
        )
    }

    /// Has the card take a copy to the client straight out of the device's memory. False where it does not reach that, or
    /// nothing is free that it could write to.
    pub(super) fn send_from_device(self: &Arc<Self>, request: &copy_from_device) -> CuResult<bool> {
        let direct = self.direct.as_ref().ok().filter(|_| Direct::is_worth_while(&request.source));
        let Some(direct) = direct else { return Ok(false) };
        let Some((device, address, bytes)) = direct.reach(&*self.gpu, &request.source) else {
            return Ok(false);
        };
        let stream = self.objects.native(request.stream)?;
        let (link, transfer) = (self.link.clone(), request.transfer);
        let to = match request.into {
            Some(memory) => Target::Memory(memory),
            None => match link.piece(bytes) {
                Some(piece) => Target::Arena(piece),
                None => return Ok(false),
            },
        };
        let engine = Arc::clone(self);
        self.in_turn(
            stream,
            move |stop| {
                let then = Box::new(move |_: Result<(), _>| stop.open());
                match to {
                    Target::Memory(to) => link.put_from_device(transfer, &device, address, bytes, to, then),
                    Target::Arena(piece) => link.send_from_device(transfer, &device, address, piece, then),
                }
            },
            move |error| engine.transfer_failed(transfer, error),
        )?;
        Ok(true)
    }
}
