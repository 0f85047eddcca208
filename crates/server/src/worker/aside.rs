//! Slow commands, which other threads carry out while the engine goes on, and the images of modules that they load.

use super::engine::{Engine, Head, State};
use super::incoming::Buffer;
use causeway_api::calls::Request;
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_gpu::dispatch;
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use std::sync::Arc;

impl Engine {
    /// Looks for the image that a command names, or for the bytes of a copy. The command can be issued when it is found, or else when the client,
    /// which is asked for it, has sent it.
    pub(super) fn seek_image(self: &Arc<Self>, number: u64, length: u64, hash: [u8; 32], is_copy: bool) {
        if !self.incoming.seek(number) {
            return;
        }
        let engine = Arc::clone(self);
        // Opening a file may take long where folders are on a network.
        self.aside.run(move || {
            let found = engine.images.as_ref().and_then(|images| images.find(hash.into(), length));
            let message = match &found {
                Some(_) => WorkerMessage::ImageKnown { transfer: number },
                None => WorkerMessage::ImageWanted { transfer: number },
            };
            engine.incoming.sought(number, found, is_copy);
            // A lost link is noticed by the receiving thread.
            let _ = engine.link.send(|out| message.encode(out));
            engine.wake();
        });
    }

    /// The client has sent an image that it was asked for among its messages.
    pub(super) fn image_came(self: &Arc<Self>, number: u64, bytes: &[u8]) {
        if self.incoming.put(number, bytes) {
            self.wake();
        } else {
            tracing::warn!("the client sent an image that it was not asked for");
        }
    }

    /// Carries out a slow command on another thread. When nobody waits for it, what names an object that it makes is
    /// held up until it has ended. `is_serial`: it is one of those that NVIDIA's driver wants on one thread, the linker's.
    pub(super) fn execute_aside(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        is_serial: bool,
        payload: Option<Buffer>,
        arguments: &[u8],
    ) {
        let arguments = arguments.to_vec();
        if head.call == 0 {
            state.blockers.begin_making(request);
        }
        let engine = Arc::clone(self);
        let threads = if is_serial { &self.linker } else { &self.aside };
        threads.run(move || engine.carry_out_aside(head, &arguments, payload));
    }

    fn carry_out_aside(self: &Arc<Self>, head: Head, arguments: &[u8], payload: Option<Buffer>) {
        let mut reply = Vec::new();
        // It was decoded before, so this cannot fail; an answer is owed all the same.
        let Ok(request) = Request::decode(head.opcode, arguments) else {
            return self.answer(head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
        };
        let bytes = match (&payload, request.payload()) {
            (Some(buffer), _) => buffer.settled(),
            (None, Some(Payload::Inline(bytes))) => bytes.into(),
            (None, _) => Default::default(),
        };
        let outcome = self
            .enter_context(head.context)
            .and_then(|()| dispatch(&*self.gpu, &self.objects, &request, &bytes, &mut reply));
        match outcome {
            Err(error) if head.call == 0 => {
                tracing::debug!(command = head.opcode.name(), status = error.0, "failed; its use will tell");
                request.makes(|handle| self.objects.fail(handle, error));
            }
            outcome => self.answer(head, outcome, &reply),
        }
        if head.call == 0 {
            request.makes(|handle| self.made.lock().push(handle));
            self.wake();
        }
        drop(bytes);
        let named = request.payload();
        if let (Some(Payload::Image { hash, .. }), Some(buffer @ Buffer::Plain(_)), Some(images)) =
            (named, payload, &self.images)
        {
            let images = Arc::clone(images);
            self.keeper.run(move || {
                if images.keep(&buffer.settled()) != hash {
                    tracing::warn!(
                        "the client sent another image than it had named; it is kept by its own hash"
                    );
                }
            });
        }
    }
}
