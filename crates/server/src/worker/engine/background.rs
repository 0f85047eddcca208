//! Slow commands, which other threads carry out while the engine goes on.

use super::parts::{Engine, State};
use crate::worker::incoming::Buffer;
use crate::worker::session::Head;
use causeway_api::calls::Request;
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_gpu::dispatch;
use std::sync::Arc;

impl Engine {
    /// Carries out a slow command on another thread. When nobody waits for it, what names an object that it makes is
    /// held up until it has ended. `is_serial`: it is one of those that NVIDIA's driver wants on one thread, the linker's.
    pub(super) fn execute_in_background(
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
            state.queue.begin_making(request);
        }
        let engine = Arc::clone(self);
        let job = move || engine.carry_out(head, &arguments, payload);
        if is_serial { self.linker.run(job) } else { self.session.in_background(job) }
    }

    fn carry_out(&self, head: Head, arguments: &[u8], payload: Option<Buffer>) {
        let mut reply = Vec::new();
        // It was decoded before, so this cannot fail; an answer is owed all the same.
        let Ok(request) = Request::decode(head.opcode, arguments) else {
            return self.session.reply(head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
        };
        let payload = payload.map(Arc::new);
        let bytes = match (&payload, request.payload()) {
            (Some(buffer), _) => buffer.contents(),
            (None, Some(Payload::Inline(bytes))) => bytes.into(),
            (None, _) => Default::default(),
        };
        let session = &self.session;
        let outcome = session
            .enter_context(head.context)
            .and_then(|()| dispatch(session.gpu(), session.objects(), &request, &bytes, &mut reply));
        if outcome.is_ok() && self.journal.is_recording() {
            let image = payload.clone().or_else(|| {
                let Some(Payload::Inline(bytes)) = request.payload() else { return None };
                Some(Arc::new(Buffer::Plain(bytes.to_vec())))
            });
            self.journal.note(&request, head.opcode, head.context.value(), arguments, &reply, image);
        }
        match outcome {
            Err(error) if head.call == 0 => {
                tracing::debug!(command = head.opcode.name(), status = error.0, "failed; its use will tell");
                request.makes(|handle| session.objects().fail(handle, error));
            }
            outcome => session.reply(head, outcome, &reply),
        }
        if head.call == 0 {
            request.makes(|handle| self.made.lock().push(handle));
            session.wake();
        }
        drop(bytes);
        if let (Some(Payload::Image { hash, .. }), Some(buffer)) = (request.payload(), payload) {
            self.uploads.keep(Buffer::Shared(buffer), hash);
        }
    }
}
