//! Commands that wait for the GPU: the engine hands them to the back end's completions and goes on.

use super::engine::{Engine, Head, State};
use super::execute::Answer;
use super::status;
use causeway_api::calls::{
    Request, client_memory_unmap, context_destroy, cuArrayDestroy, cuMipmappedArrayDestroy, event_query,
    event_synchronize, event_watch, green_context_destroy, memory_free, mirror_free, primary_context_reset,
    stream_query, stream_synchronize,
};
use causeway_api::sys::CUresult;
use causeway_gpu::busy::Busy;
use causeway_gpu::{Completion, CuResult};
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use parking_lot::Mutex;
use std::sync::Arc;

impl Engine {
    /// A completion that answers the call with the outcome and nothing else.
    fn answer_when_done(self: &Arc<Self>, head: Head) -> Completion {
        let engine = Arc::clone(self);
        Box::new(move |outcome| engine.answer(head, outcome, &[]))
    }

    /// Answers when a stream's work is done.
    pub(super) fn synchronize_stream(
        self: &Arc<Self>,
        head: Head,
        wait: &stream_synchronize,
    ) -> CuResult<Answer> {
        let stream = self.objects.native(wait.stream)?;
        self.gpu.after(stream, self.answer_when_done(head))?;
        Ok(Answer::Later)
    }

    /// Answers when an event's last record is done.
    pub(super) fn synchronize_event(
        self: &Arc<Self>,
        head: Head,
        wait: &event_synchronize,
    ) -> CuResult<Answer> {
        let event = self.objects.native(wait.event)?;
        self.gpu.after_event(event, self.answer_when_done(head))?;
        Ok(Answer::Later)
    }

    /// Answers when the work of the command's context is done.
    pub(super) fn synchronize_context(self: &Arc<Self>, head: Head) -> CuResult<Answer> {
        self.gpu.after_context(self.answer_when_done(head))?;
        Ok(Answer::Later)
    }

    /// Frees device memory behind the work of the command's context.
    pub(super) fn free_memory(self: &Arc<Self>, head: Head, free: &memory_free) -> CuResult<Answer> {
        let address = free.address;
        let context = self.objects.native(head.context)?;
        self.when_idle(head, move |engine| {
            engine.gpu.make_current(context)?;
            engine.gpu.memory_free(address)
        })
    }

    /// Drops a mirror behind the work of the command's context.
    pub(super) fn free_mirror(self: &Arc<Self>, head: Head, free: &mirror_free) -> CuResult<Answer> {
        let (mirror, bytes) = self.mirrors.remove(free.mirror)?;
        if head.context.is_null() {
            // A variable, which its library frees, or an allocation, which has its own end.
            self.answer(head, Ok(()), &[]);
            return Ok(Answer::Later);
        }
        self.drop_when_idle(head, mirror, bytes)
    }

    /// Unmaps memory of the client behind the work of the command's context.
    pub(super) fn unmap_client_memory(
        self: &Arc<Self>,
        head: Head,
        unmap: &client_memory_unmap,
    ) -> CuResult<Answer> {
        let memory = self.client_memory.remove(unmap.address)?;
        let bytes = memory.len();
        self.drop_when_idle(head, memory, bytes)
    }

    /// Destroys a green context behind its work.
    pub(super) fn destroy_green_context(
        self: &Arc<Self>,
        head: Head,
        destroy: &green_context_destroy,
    ) -> CuResult<Answer> {
        let green = self.objects.remove(destroy.green)?;
        let context = self.objects.remove(destroy.context)?;
        self.gpu.make_current(context)?;
        self.when_idle(head, move |engine| engine.gpu.green_context_destroy(green, context))
    }

    /// Destroys an array behind the work of the command's context, for which the driver would wait.
    pub(super) fn destroy_array(self: &Arc<Self>, head: Head, destroy: &cuArrayDestroy) -> CuResult<Answer> {
        let (context, array) = (self.objects.native(head.context)?, self.objects.remove(destroy.hArray)?);
        self.when_idle(head, move |engine| {
            engine.gpu.make_current(context)?;
            engine.gpu.cuArrayDestroy(array)
        })
    }

    /// As [`Engine::destroy_array`], for a mipmapped one.
    pub(super) fn destroy_mipmapped_array(
        self: &Arc<Self>,
        head: Head,
        destroy: &cuMipmappedArrayDestroy,
    ) -> CuResult<Answer> {
        let context = self.objects.native(head.context)?;
        let array = self.objects.remove(destroy.hMipmappedArray)?;
        self.when_idle(head, move |engine| {
            engine.gpu.make_current(context)?;
            engine.gpu.cuMipmappedArrayDestroy(array)
        })
    }

    /// Resets a primary context behind its work.
    pub(super) fn reset_primary_context(
        self: &Arc<Self>,
        head: Head,
        reset: &primary_context_reset,
    ) -> CuResult<Answer> {
        self.gpu.make_current(self.objects.remove(reset.context)?)?;
        let (device, ended) = (reset.device, reset.context);
        self.when_idle(head, move |engine| {
            engine.mirrors.end_context(ended);
            engine.client_memory.end_context(ended);
            engine.gpu.primary_context_reset(device)
        })
    }

    /// Destroys a context behind its work.
    pub(super) fn destroy_context(
        self: &Arc<Self>,
        head: Head,
        destroy: &context_destroy,
    ) -> CuResult<Answer> {
        let context = self.objects.remove(destroy.context)?;
        self.gpu.make_current(context)?;
        let ended = destroy.context;
        self.when_idle(head, move |engine| {
            engine.mirrors.end_context(ended);
            engine.client_memory.end_context(ended);
            engine.gpu.context_destroy(context)
        })
    }

    /// Whether a stream's work is done; when it is not, the client is told later that it is.
    pub(super) fn query_stream(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        query: &stream_query,
    ) -> CuResult<()> {
        let stream = self.objects.native(query.stream)?;
        self.query(state, head, query.token, self.gpu.stream_query(stream), |done| {
            self.gpu.after(stream, done)
        })
    }

    /// As [`Engine::query_stream`], for an event's last record.
    pub(super) fn query_event(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        query: &event_query,
    ) -> CuResult<()> {
        let event = self.objects.native(query.event)?;
        self.query(state, head, query.token, self.gpu.event_query(event), |done| {
            self.gpu.after_event(event, done)
        })
    }

    /// Tells the client when an event's last record is done.
    pub(super) fn watch_event(self: &Arc<Self>, watch: &event_watch) -> CuResult<()> {
        let (engine, token) = (Arc::clone(self), watch.token);
        let event = self.objects.native(watch.event);
        let asked = event.and_then(|event| {
            self.gpu.after_event(event, Box::new(move |outcome| engine.report(token, outcome)))
        });
        // Whoever waits for the event must hear of it either way.
        asked.inspect_err(|status| self.report(token, Err(*status)))
    }

    fn query(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        token: u64,
        now: CuResult<()>,
        later: impl FnOnce(Completion) -> CuResult<()>,
    ) -> CuResult<()> {
        let pending = now == Err(CUresult::CUDA_ERROR_NOT_READY);
        // One that was parked has been answered: what it found is reported whatever it is.
        if pending || head.call == 0 {
            let engine = Arc::clone(self);
            let asked = later(Box::new(move |outcome| engine.report(token, outcome)));
            if head.call == 0 {
                asked.unwrap_or_else(|error| self.report(token, Err(error)));
                return Ok(());
            }
            asked?;
        } else {
            now?;
        }
        pending.encode(&mut state.reply);
        Ok(())
    }

    /// Tells the client that what it asked about is over.
    fn report(&self, token: u64, outcome: CuResult<()>) {
        let status = status(&outcome);
        // A lost link is noticed by the receiving thread.
        let _ = self.link.send(|out| WorkerMessage::Reached { token, status }.encode(out));
    }

    /// Answers a query that must stay behind parked commands: those are not done, so neither is what it asks for.
    /// The parked query then only reports. Other commands are left as they are.
    pub(super) fn answer_held_up_query(&self, head: Head, request: &Request<'_>) -> Head {
        if !matches!(request, Request::stream_query(_) | Request::event_query(_)) {
            return head;
        }
        self.answer_with(head, |out| true.encode(out));
        Head { call: 0, ..head }
    }

    /// Runs `job` aside once the current context is idle, and answers with its result. Memory is freed even when the work before it
    /// failed, and even when the back end does not say when the context is idle: the failure is the answer then. So `job`
    /// may only ask for what the driver itself puts behind the work.
    fn when_idle(
        self: &Arc<Self>,
        head: Head,
        job: impl FnOnce(&Engine) -> CuResult<()> + Send + 'static,
    ) -> CuResult<Answer> {
        let job = Arc::new(Mutex::new(Some(job)));
        let engine = Arc::clone(self);
        let run = move |outcome: CuResult<()>| {
            let Some(job) = job.lock().take() else { return };
            let worker = Arc::clone(&engine);
            engine.aside.run(move || {
                let result = job(&worker);
                worker.answer(head, outcome.and(result), &[]);
            });
        };
        let asked = self.gpu.after_context(Box::new(run.clone()));
        if let Err(error) = asked {
            run(Err(error));
        }
        Ok(Answer::Later)
    }

    /// Drops memory that kernels reach aside once the current context is idle, and answers. Where the back end does not say when that
    /// is, the memory stays as it is.
    fn drop_when_idle(
        self: &Arc<Self>,
        head: Head,
        memory: impl Send + 'static,
        bytes: usize,
    ) -> CuResult<Answer> {
        let engine = Arc::clone(self);
        Busy::in_context(&*self.gpu, memory, bytes).after(&*self.gpu, move |outcome| {
            let worker = Arc::clone(&engine);
            engine.aside.run(move || worker.answer(head, outcome.map(drop), &[]));
        })?;
        Ok(Answer::Later)
    }
}
