//! Issuing of one command: context, order and reply.

use super::parts::{Engine, State};
use crate::worker::order::{self, CommandOrder};
use crate::worker::rdma;
use crate::worker::session::{Head, ReplyTime, status};
use causeway_api::calls::Request;
use causeway_api::handle::{Context, Handle};
use causeway_gpu::CuResult;
use std::sync::Arc;

impl Engine {
    /// Carries out a command; what it answers goes out here, or later from a completion.
    pub(super) fn issue(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        order: CommandOrder,
        request: &Request<'_>,
        arguments: &[u8],
    ) {
        state.issued += 1;
        // Whatever refuses the command, its bytes wait no longer.
        let payload = self.uploads.take(request);
        let outcome = self
            .session
            .enter_context(head.context)
            .and_then(|()| self.pass_fences(state, head.context, order))
            .inspect_err(|_| {
                if let Ok(None) = payload {
                    rdma::release_exposed(&self.session, request);
                }
            });
        let outcome = outcome.and_then(|()| self.execute(state, head, request, payload?, arguments));
        tracing::trace!(command = head.opcode.name(), call = head.call, status = status(&outcome), "issued");
        if let Request::stream_destroy(destroy) = request {
            // Its staging has been reclaimed by `execute`.
            state.queue.stream_destroyed(destroy.stream);
        }
        if let CommandOrder::InStream { stream, .. } = order {
            state.queue.count(&self.session, stream);
        }
        match outcome {
            Ok(ReplyTime::Now) => {
                let reply = core::mem::take(&mut state.reply);
                self.session.reply(head, Ok(()), &reply);
                state.reply = reply;
            }
            Ok(ReplyTime::Later) => {}
            Err(error) => {
                if head.call == 0 {
                    request.makes(|handle| self.session.objects().fail(handle, error));
                }
                self.session.reply(head, Err(error), &[]);
            }
        }
    }

    /// Puts a command that goes into a stream behind the synchronous copies before it.
    fn pass_fences(&self, state: &mut State, context: Handle<Context>, order: CommandOrder) -> CuResult<()> {
        let (CommandOrder::InStream { stream, .. }, false) = (order, state.fences.is_empty()) else {
            return Ok(());
        };
        let native = || self.session.objects().native(order::handle(stream));
        state.fences.pass(self.session.gpu(), context, stream, state.queue.kinds(), native)
    }
}
