//! Replay: commands of a journal, which another worker has carried out before.

use std::sync::Arc;

use causeway_api::calls::{Executor, Request};
use causeway_api::handle::Handle;
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, dispatch};

use crate::worker::engine::state::Engine;
use crate::worker::journal::Entry;
use crate::worker::session::Head;

impl Engine {
    /// Carries out a command again. It is noted as it was the first time.
    ///
    /// # Errors
    /// When it fails, or answers something else than the client knows.
    pub fn replay(self: &Arc<Self>, entry: &Entry) -> CuResult<()> {
        let request = Request::decode(entry.opcode, &entry.arguments);
        let request = request.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let context = Handle::from_value(entry.context);
        let head = Head { call: 0, context, opcode: entry.opcode, received_at: None };
        self.session.enter_context(context)?;
        let mut state = self.state.lock();
        if let Some((stream, flags)) = request.new_stream() {
            state.queue.stream_created(stream, context, flags);
        }
        let outcome = if let Executor::Background { .. } = request.executor() {
            let bytes = entry.image.as_ref().map(|image| image.contents()).unwrap_or_default();
            let mut reply = Vec::new();
            let (gpu, objects) = (self.session.gpu(), self.session.objects());
            let done = dispatch(gpu, objects, &request, &bytes, &mut reply);
            if done.is_ok() {
                let (context, image) = (entry.context, entry.image.clone());
                self.journal.note(&request, entry.opcode, context, &entry.arguments, &reply, image);
            }
            done
        } else {
            let executed = self.execute(&mut state, head, &request, None, &entry.arguments);
            let is_same = entry.reply.as_ref().is_none_or(|known| **known == *state.reply);
            executed.and_then(|_| is_same.then_some(()).ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS))
        };
        self.state.release(state, |state| self.resume(state));
        outcome
    }
}
