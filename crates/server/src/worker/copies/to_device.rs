//! How do the client's bytes get into device memory?

use crate::worker::engine::{Engine, Head, State};
use crate::worker::incoming::Buffer;
use causeway_api::calls::copy_to_device;
use causeway_api::types::Payload;
use causeway_gpu::CuResult;
use causeway_gpu::busy::Busy;
use causeway_gpu::objects::Translate;
use causeway_memory::past_caches;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of copies that may wait for being written to the cache.
const MOST_BEING_KEPT: usize = 512 << 20;

impl Engine {
    /// Starts a copy of the client's bytes into device memory. `payload` is what the command has taken of those that came, or
    /// were brought.
    pub(in crate::worker) fn copy_to_device(
        &self,
        state: &mut State,
        head: Head,
        request: &copy_to_device<'_>,
        payload: Option<Buffer>,
    ) -> CuResult<()> {
        let buffer = match (payload, request.data) {
            (Some(buffer), Payload::Image { hash, .. }) => self.keep_copied(buffer, hash),
            (Some(buffer), _) => buffer,
            (None, Payload::Inline(bytes)) => {
                let mut staging = self.gpu.staging(bytes.len())?;
                past_caches::copy_slice(staging.as_mut_slice(), bytes);
                Buffer::Staged(staging)
            }
            (None, _) => return self.read_lent(head, request),
        };
        let stream = self.objects.native(request.stream)?;
        let destination = request.destination.natives(&self.objects)?;
        let buffer = self.ready_for_gpu(buffer)?;
        // Nobody but the client changes what is shared with it, to its own loss.
        let busy = Busy::copy_to_device(&*self.gpu, &destination, buffer, stream)?;
        self.lend(state, head.context, stream, busy)
    }

    /// Keeps the bytes of a copy for later ones that name the same content, if they have just come. What would have to
    /// wait too long for the disk is not kept.
    fn keep_copied(&self, buffer: Buffer, named: [u8; 32]) -> Buffer {
        let Some(images) = self.images.as_ref().filter(|_| !matches!(buffer, Buffer::Mapped(_))) else {
            return buffer;
        };
        let bytes = buffer.len();
        if self.keeping.fetch_add(bytes, Ordering::Relaxed) + bytes > MOST_BEING_KEPT {
            self.keeping.fetch_sub(bytes, Ordering::Relaxed);
            return buffer;
        }
        let (images, keeping) = (Arc::clone(images), Arc::clone(&self.keeping));
        let shared = Arc::new(buffer);
        let kept = Arc::clone(&shared);
        self.keeper.run(move || {
            // Stored under the hash that is computed here: nobody gets what another name promised.
            if images.keep(&kept.settled()) != named {
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
}
