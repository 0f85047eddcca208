//! Commands that wait for the GPU: the session hands them to the back end's completions and goes on.

use super::memory::HostMemory;
use super::session::{Head, ReplyTime, Session, status};
use crate::locks::{Mutex, rank};
use causeway_api::calls::{
    Request, client_memory_unmap, context_destroy, cuArrayDestroy, cuMipmappedArrayDestroy, event_query,
    event_watch, green_context_destroy, memory_free, mirror_free, primary_context_reset, stream_query,
};
use causeway_api::handle::{Event, Handle, Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::in_flight::InFlight;
use causeway_gpu::{Completion, CuResult};
use causeway_wire::codec::Encode;
use causeway_wire::message::WorkerMessage;
use std::sync::Arc;

/// A completion that answers the call with the outcome and nothing else.
pub fn reply_when_done(session: &Arc<Session>, head: Head) -> Completion {
    let session = Arc::clone(session);
    Box::new(move |outcome| session.reply(head, outcome, &[]))
}

/// A completion that also says whether a mirror may hold what the client does not have. The client then asks
/// for it, and saves that round trip where nothing has changed.
pub fn reply_when_compared(session: &Arc<Session>, memory: &Arc<HostMemory>, head: Head) -> Completion {
    let (session, memory) = (Arc::clone(session), Arc::clone(memory));
    Box::new(move |outcome| {
        let mut reply = Vec::new();
        if outcome.is_ok() {
            memory.mirrors.may_differ().encode(&mut reply);
        }
        session.reply(head, outcome, &reply);
    })
}

/// Calls `then` when a stream's work is done.
pub fn synchronize_stream(
    session: &Session,
    stream: Handle<Stream>,
    then: Completion,
) -> CuResult<ReplyTime> {
    let stream = session.objects().native(stream)?;
    session.gpu().after(stream, then)?;
    Ok(ReplyTime::Later)
}

/// Calls `then` when an event's last record is done.
pub fn synchronize_event(session: &Session, event: Handle<Event>, then: Completion) -> CuResult<ReplyTime> {
    let event = session.objects().native(event)?;
    session.gpu().after_event(event, then)?;
    Ok(ReplyTime::Later)
}

/// Calls `then` when the work of the command's context is done.
pub fn synchronize_context(session: &Session, then: Completion) -> CuResult<ReplyTime> {
    session.gpu().after_context(then)?;
    Ok(ReplyTime::Later)
}

/// Frees device memory behind the work of the command's context.
pub fn free_memory(session: &Arc<Session>, head: Head, free: &memory_free) -> CuResult<ReplyTime> {
    let address = free.address;
    let context = session.objects().native(head.context)?;
    let memory = session.device_memory().take_address(address);
    when_idle(session, head, move |session| {
        session.gpu().make_current(context)?;
        session.gpu().memory_free(address)?;
        drop(memory);
        Ok(())
    })
}

/// Drops what a stream has used when it gets here.
pub fn release_after(session: &Session, stream: Native<Stream>, used: impl Send + 'static) {
    let used = Mutex::<rank::Leaf, _>::new(Some(used));
    // Where the back end does not say when that is, it is dropped now.
    let release = move |_| {
        // Dropped without the lock.
        let used = used.lock().take();
        drop(used);
    };
    let _ = session.gpu().after_a_while(stream, Box::new(release));
}

/// Drops a mirror behind the work of the command's context.
pub fn free_mirror(
    session: &Arc<Session>,
    memory: &Arc<HostMemory>,
    head: Head,
    free: &mirror_free,
) -> CuResult<ReplyTime> {
    let (mirror, bytes) = memory.mirrors.remove(free.mirror)?;
    if head.context.is_null() {
        // A variable, which its library frees, or an allocation, which has its own end.
        session.reply(head, Ok(()), &[]);
        return Ok(ReplyTime::Later);
    }
    let memory = session.device_memory().take_address(free.mirror);
    drop_when_idle(session, head, (mirror, memory), bytes)
}

/// Unmaps memory of the client behind the work of the command's context.
pub fn unmap_client_memory(
    session: &Arc<Session>,
    memory: &Arc<HostMemory>,
    head: Head,
    unmap: &client_memory_unmap,
) -> CuResult<ReplyTime> {
    let unmapped = memory.shared.remove(unmap.address)?;
    let bytes = unmapped.len();
    drop_when_idle(session, head, unmapped, bytes)
}

/// Destroys a green context behind its work.
pub fn destroy_green_context(
    session: &Arc<Session>,
    head: Head,
    destroy: &green_context_destroy,
) -> CuResult<ReplyTime> {
    let green = session.objects().remove(destroy.green)?;
    let context = session.objects().remove(destroy.context)?;
    session.gpu().make_current(context)?;
    when_idle(session, head, move |session| session.gpu().green_context_destroy(green, context))
}

/// Destroys an array behind the work of the command's context, for which the driver would wait.
pub fn destroy_array(session: &Arc<Session>, head: Head, destroy: &cuArrayDestroy) -> CuResult<ReplyTime> {
    let (context, array) =
        (session.objects().native(head.context)?, session.objects().remove(destroy.hArray)?);
    let memory = session.device_memory().take_array(destroy.hArray.value());
    when_idle(session, head, move |session| {
        session.gpu().make_current(context)?;
        session.gpu().cuArrayDestroy(array)?;
        drop(memory);
        Ok(())
    })
}

/// As [`destroy_array`], for a mipmapped one.
pub fn destroy_mipmapped_array(
    session: &Arc<Session>,
    head: Head,
    destroy: &cuMipmappedArrayDestroy,
) -> CuResult<ReplyTime> {
    let context = session.objects().native(head.context)?;
    let array = session.objects().remove(destroy.hMipmappedArray)?;
    let memory = session.device_memory().take_array(destroy.hMipmappedArray.value());
    when_idle(session, head, move |session| {
        session.gpu().make_current(context)?;
        session.gpu().cuMipmappedArrayDestroy(array)?;
        drop(memory);
        Ok(())
    })
}

/// Resets a primary context behind its work.
pub fn reset_primary_context(
    session: &Arc<Session>,
    memory: &Arc<HostMemory>,
    head: Head,
    reset: &primary_context_reset,
) -> CuResult<ReplyTime> {
    session.gpu().make_current(session.objects().remove(reset.context)?)?;
    let (device, ended, memory) = (reset.device, reset.context, Arc::clone(memory));
    when_idle(session, head, move |session| {
        memory.end_context(ended);
        session.gpu().primary_context_reset(device)?;
        session.device_memory().context_ended(ended);
        Ok(())
    })
}

/// Destroys a context behind its work.
pub fn destroy_context(
    session: &Arc<Session>,
    memory: &Arc<HostMemory>,
    head: Head,
    destroy: &context_destroy,
) -> CuResult<ReplyTime> {
    let context = session.objects().remove(destroy.context)?;
    session.gpu().make_current(context)?;
    let (ended, memory) = (destroy.context, Arc::clone(memory));
    when_idle(session, head, move |session| {
        memory.end_context(ended);
        session.gpu().context_destroy(context)?;
        session.device_memory().context_ended(ended);
        Ok(())
    })
}

/// Whether a stream's work is done; when it is not, the client is told later that it is.
pub fn query_stream(
    session: &Arc<Session>,
    reply: &mut Vec<u8>,
    head: Head,
    request: &stream_query,
) -> CuResult<()> {
    let stream = session.objects().native(request.stream)?;
    query(session, reply, head, request.token, session.gpu().stream_query(stream), |done| {
        session.gpu().after(stream, done)
    })
}

/// As [`query_stream`], for an event's last record.
pub fn query_event(
    session: &Arc<Session>,
    reply: &mut Vec<u8>,
    head: Head,
    request: &event_query,
) -> CuResult<()> {
    let event = session.objects().native(request.event)?;
    query(session, reply, head, request.token, session.gpu().event_query(event), |done| {
        session.gpu().after_event(event, done)
    })
}

/// Tells the client when an event's last record is done.
pub fn watch_event(session: &Arc<Session>, watch: &event_watch) -> CuResult<()> {
    let (reporter, token) = (Arc::clone(session), watch.token);
    let event = session.objects().native(watch.event);
    let registered = event.and_then(|event| {
        session.gpu().after_event(event, Box::new(move |outcome| report(&reporter, token, outcome)))
    });
    // Whoever waits for the event must hear of it either way.
    registered.inspect_err(|status| report(session, token, Err(*status)))
}

fn query(
    session: &Arc<Session>,
    reply: &mut Vec<u8>,
    head: Head,
    token: u64,
    now: CuResult<()>,
    later: impl FnOnce(Completion) -> CuResult<()>,
) -> CuResult<()> {
    let pending = now == Err(CUresult::CUDA_ERROR_NOT_READY);
    // One that was deferred has been answered: what it found is reported whatever it is.
    if pending || head.call == 0 {
        let reporter = Arc::clone(session);
        let registered = later(Box::new(move |outcome| report(&reporter, token, outcome)));
        if head.call == 0 {
            registered.unwrap_or_else(|error| report(session, token, Err(error)));
            return Ok(());
        }
        registered?;
    } else {
        now?;
    }
    pending.encode(reply);
    Ok(())
}

/// Tells the client that what it asked about is over.
fn report(session: &Session, token: u64, outcome: CuResult<()>) {
    let status = status(&outcome);
    // A lost link is noticed by the receiving thread.
    let _ = session.link().send(|out| WorkerMessage::Reached { token, status }.encode(out));
}

/// Answers a query that must stay behind deferred commands: those are not done, so neither is what it asks
/// for. The deferred query then only reports. Other commands are left as they are.
pub fn reply_to_held_query(session: &Session, head: Head, request: &Request<'_>) -> Head {
    if !matches!(request, Request::stream_query(_) | Request::event_query(_)) {
        return head;
    }
    session.reply_with(head, |out| true.encode(out));
    Head { call: 0, received_at: None, ..head }
}

/// Runs `job` in the background once the current context is idle, and answers with its result. Memory is
/// freed even when the work before it failed, and even when the back end does not say when the context is
/// idle: the failure is the answer then. So `job` may only ask for what the driver itself puts behind the
/// work.
fn when_idle(
    session: &Arc<Session>,
    head: Head,
    job: impl FnOnce(&Session) -> CuResult<()> + Send + 'static,
) -> CuResult<ReplyTime> {
    let job = Arc::new(Mutex::<rank::Leaf, _>::new(Some(job)));
    let idle = Arc::clone(session);
    let run = move |outcome: CuResult<()>| {
        let Some(job) = job.lock().take() else { return };
        let worker = Arc::clone(&idle);
        idle.in_background(move || {
            let result = job(&worker);
            worker.reply(head, outcome.and(result), &[]);
        });
    };
    let registered = session.gpu().after_context(Box::new(run.clone()));
    if let Err(error) = registered {
        run(Err(error));
    }
    Ok(ReplyTime::Later)
}

/// Drops memory that kernels reach, in the background, once the current context is idle, and answers. Where
/// the back end does not say when that is, the memory stays as it is.
fn drop_when_idle(
    session: &Arc<Session>,
    head: Head,
    memory: impl Send + 'static,
    bytes: usize,
) -> CuResult<ReplyTime> {
    let idle = Arc::clone(session);
    InFlight::in_context(session.gpu(), memory, bytes).after(session.gpu(), move |outcome| {
        let worker = Arc::clone(&idle);
        idle.in_background(move || worker.reply(head, outcome.map(drop), &[]));
    })?;
    Ok(ReplyTime::Later)
}
