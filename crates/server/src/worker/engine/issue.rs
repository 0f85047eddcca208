//! In which context, and behind what, is a command carried out?

use super::{Engine, Head, State};
use crate::worker::execute::Answer;
use crate::worker::incoming::Buffer;
use crate::worker::order::{self, Place};
use crate::worker::status;
use causeway_api::calls::Request;
use causeway_api::handle::{Context, Handle};
use causeway_api::types::Payload;
use causeway_gpu::CuResult;
use std::sync::Arc;

impl Engine {
    /// Carries out a command; what it answers goes out here, or later from a completion.
    pub(super) fn issue(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        place: Place,
        request: &Request<'_>,
        arguments: &[u8],
    ) {
        // Whatever refuses the command, its bytes wait no longer.
        let payload = self.take_payload(request);
        let outcome = self
            .enter_context(head.context)
            .and_then(|()| self.pass_fences(state, head.context, place))
            .inspect_err(|_| {
                if let Ok(None) = payload {
                    self.let_go_of_lent(request);
                }
            });
        let outcome = outcome.and_then(|()| self.execute(state, head, request, payload?, arguments));
        tracing::trace!(command = head.opcode.name(), call = head.call, status = status(&outcome), "issued");
        if let Request::stream_destroy(destroy) = request {
            // Its staging has been asked back by `execute`.
            state.kinds.destroyed(destroy.stream);
            state.progress.remove(&destroy.stream.value());
        }
        if let Place::InStream { stream, .. } = place {
            self.count(state, stream);
        }
        match outcome {
            Ok(Answer::Now) => {
                let reply = core::mem::take(&mut state.reply);
                self.answer(head, Ok(()), &reply);
                state.reply = reply;
            }
            Ok(Answer::Later) => {}
            Err(error) => {
                if head.call == 0 {
                    request.makes(|handle| self.objects.fail(handle, error));
                }
                self.answer(head, Err(error), &[]);
            }
        }
    }

    /// The bytes of a command that came on their own, or were brought; nothing where it has others or none.
    fn take_payload(&self, request: &Request<'_>) -> CuResult<Option<Buffer>> {
        match request.payload() {
            Some(Payload::Transfer { number, length } | Payload::Image { number, length, .. }) => {
                self.incoming.take(number, length).map(Some)
            }
            Some(Payload::Lent { number, length, .. }) if self.incoming.knows(number) => {
                self.incoming.take(number, length).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Puts a command that goes into a stream behind the synchronous copies before it.
    fn pass_fences(&self, state: &mut State, context: Handle<Context>, place: Place) -> CuResult<()> {
        let (Place::InStream { stream, .. }, false) = (place, state.fences.is_empty()) else { return Ok(()) };
        let native = || self.objects.native(order::handle(stream));
        state.fences.pass(&*self.gpu, context, stream, &state.kinds, native)
    }

    /// Makes the context of a command current on this thread.
    pub(in crate::worker) fn enter_context(&self, context: Handle<Context>) -> CuResult<()> {
        if context.is_null() {
            return Ok(());
        }
        self.gpu.make_current(self.objects.native(context)?)
    }
}
