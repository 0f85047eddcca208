//! Commands that wait for the GPU: the engine hands them to the back end's completions and goes on.

use super::engine::{Engine, Head, State};
use causeway_api::calls::Request;
use causeway_api::sys::CUresult;
use causeway_gpu::{Completion, CuResult};
use std::sync::Arc;

impl Engine {
    /// A completion that answers the call with the outcome and nothing else.
    fn answer_when_done(self: &Arc<Self>, head: Head) -> Completion {
        let engine = Arc::clone(self);
        Box::new(move |outcome| engine.answer(head, outcome, &[]))
    }

    /// Executes a waiting command; its answer may come later, from another thread. An error here is the answer.
    pub(super) fn wait(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
    ) -> CuResult<()> {
        match request {
            Request::stream_synchronize(wait) => {
                if state.captures.holds(wait.stream.value()) {
                    return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                }
                let stream = self.objects.native(wait.stream)?;
                self.gpu.after(stream, self.answer_when_done(head))
            }
            Request::event_synchronize(wait) => {
                let event = self.objects.native(wait.event)?;
                self.gpu.after_event(event, self.answer_when_done(head))
            }
            Request::context_synchronize(_) => self.gpu.after_context(self.answer_when_done(head)),
            Request::memory_free(free) => {
                let address = free.address;
                let context = self.objects.native(head.context)?;
                self.when_idle(head, move |engine| {
                    engine.gpu.make_current(context)?;
                    engine.gpu.memory_free(address)
                })
            }
            Request::primary_context_reset(reset) => {
                self.gpu.make_current(self.objects.remove(reset.context)?)?;
                let device = reset.device;
                self.when_idle(head, move |engine| engine.gpu.primary_context_reset(device))
            }
            Request::context_destroy(destroy) => {
                let context = self.objects.remove(destroy.context)?;
                self.gpu.make_current(context)?;
                self.when_idle(head, move |engine| engine.gpu.context_destroy(context))
            }
            _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Runs `job` aside once the current context is idle, and answers with its result. Memory is freed even when
    /// the work before it failed: the failure is the answer then.
    fn when_idle(
        self: &Arc<Self>,
        head: Head,
        job: impl FnOnce(&Engine) -> CuResult<()> + Send + 'static,
    ) -> CuResult<()> {
        let engine = Arc::clone(self);
        self.gpu.after_context(Box::new(move |outcome| {
            let worker = Arc::clone(&engine);
            engine.aside.run(move || {
                let result = job(&worker);
                worker.answer(head, outcome.and(result), &[]);
            });
        }))
    }
}
