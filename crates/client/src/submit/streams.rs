//! Streams: creation, destruction, default streams, and waiting.

use crate::model::context::{self, ContextState};
use crate::model::handles;
use crate::model::stream::{self, StreamState};
use crate::remote::session;
use crate::submit::{callbacks, capture, event, send, waits};
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Kind as _, Stream};
use causeway_api::sys::{CUresult, CUstream};
use causeway_sync::spin;
use core::cell::RefCell;

/// What the stream handle 0 means to an entry point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultStream {
    /// The legacy default stream.
    Legacy,
    /// The calling thread's own default stream: the `_ptsz` and `_ptds` variants.
    PerThread,
}

thread_local! {
    static OF_THREAD: RefCell<ThreadStreams> = const { RefCell::new(ThreadStreams(Vec::new())) };
}

/// The per-thread default streams of one thread, one a context.
struct ThreadStreams(Vec<(Handle<Context>, Handle<Stream>)>);

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        let _call = crate::call_gate::begin();
        if !crate::process::is_ready() {
            return;
        }
        for (context, stream) in self.0.drain(..) {
            if handles::is_valid(context) {
                // Nobody is left to hear of an error; the context frees the stream at the latest.
                let _ = destroy(stream);
            }
        }
    }
}

/// The stream that the program passed to put work into it. Work in the legacy default stream is refused where
/// it would have to wait for a stream that is being captured.
#[inline]
pub fn resolve(raw: CUstream, default_stream: DefaultStream) -> Result<Handle<Stream>, CUresult> {
    let stream = named(raw, default_stream)?;
    if stream.is_null() {
        capture::refuse_implicit()?;
    }
    Ok(stream)
}

/// The stream that the program passed; 0, 1 and 2 name default streams of the current context, which functions that
/// streams call have none of.
#[inline]
pub fn named(raw: CUstream, default_stream: DefaultStream) -> Result<Handle<Stream>, CUresult> {
    const LEGACY: u64 = 1;
    const PER_THREAD: u64 = 2;
    if Stream::address(raw) <= PER_THREAD && callbacks::is_in_function() {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    match (Stream::address(raw), default_stream) {
        (0, DefaultStream::Legacy) | (LEGACY, _) => {
            context::current()?;
            Ok(Handle::NULL)
        }
        (0, DefaultStream::PerThread) | (PER_THREAD, _) => of_thread(),
        _ => handles::resolve(raw),
    }
}

/// Creates a stream in the current context.
pub fn create(flags: u32, priority: i32) -> Result<Handle<Stream>, CUresult> {
    let context = context::current_state()?;
    create_in(&context, flags, priority, |stream, priority| {
        send::post_in(context.handle, &calls::stream_create { stream, flags, priority })
    })
}

/// Creates a stream in a context; `send` has the server make it, with a priority that the device has.
pub fn create_in(
    context: &ContextState,
    flags: u32,
    priority: i32,
    send: impl FnOnce(Handle<Stream>, i32) -> Result<(), CUresult>,
) -> Result<Handle<Stream>, CUresult> {
    let (lowest, highest) = context.device()?.info.stream_priorities;
    let priority = priority.clamp(highest.min(lowest), lowest.max(highest));
    let handle = handles::create::<Stream>();
    handles::or_drop(handle, send(handle, priority))?;
    stream::keep(context.handle, handle, flags, priority);
    Ok(handle)
}

/// Destroys a stream; what is in it is still carried out.
pub fn destroy(handle: Handle<Stream>) -> Result<(), CUresult> {
    // Before the stream is out of sight, so that whoever asks for the context finds one of both.
    stream::get(handle)?.leave_behind()?;
    let state = stream::take(handle)?;
    capture::stream_ends(&state);
    handles::drop_handle(handle);
    send::post_in(state.context, &calls::stream_destroy { stream: handle })
}

/// Implicit synchronization by a call in `stream` of which the server hears nothing: if that is a legacy default stream, what
/// blocking streams get afterwards comes behind what they hold now.
///
/// NVIDIA's driver orders them by `cuMemFreeAsync`, `cuMemPrefetchAsync`, `cuStreamAttachMemAsync` and a batch of no
/// operations as by a kernel; by `cuMemAllocAsync`, copies and fills of no bytes, the launch of a graph without nodes and
/// the wait for an event that was never recorded it does not (driver 580.159.04 on an H200, 2026-11-30).
pub fn synchronize_implicitly(stream: &StreamState) -> Result<(), CUresult> {
    if !stream.is_legacy() {
        return Ok(());
    }
    // Behind the newest command of the legacy stream is all that came before it, in whichever blocking stream.
    let newest = stream.newest();
    if newest == handles::last_legacy_sequence(stream.context) || stream.has_done(newest) {
        return Ok(());
    }
    event::Mark::at_end_of(stream)?.destroy()
}

/// The calling thread's default stream in the current context, created at its first use.
pub fn of_thread() -> Result<Handle<Stream>, CUresult> {
    let context = context::current()?;
    let known = OF_THREAD.try_with(|streams| {
        streams.borrow().0.iter().find(|(owner, _)| *owner == context).map(|(_, stream)| *stream)
    });
    match known {
        Ok(Some(stream)) if handles::is_valid(stream) => Ok(stream),
        Ok(_) => {
            let stream = create(0, 0)?;
            OF_THREAD.with_borrow_mut(|streams| {
                streams.0.retain(|(owner, _)| *owner != context);
                streams.0.push((context, stream));
            });
            Ok(stream)
        }
        // The thread is ending, its streams with it.
        Err(_) => Err(CUresult::CUDA_ERROR_DEINITIALIZED),
    }
}

impl StreamState {
    /// Waits until everything in the stream is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        capture::refuse_wait(self)?;
        let pending = self.pending_writes();
        let newest = self.newest();
        if self.has_done(newest) {
            session::of(self.context)?.faults().take()?;
        } else {
            let stream = self.handle;
            let plain = calls::stream_synchronize { stream };
            let compared = calls::stream_synchronize_mirrored { stream };
            waits::wait(self.context, &self.watermark, newest, &plain, &compared)?;
        }
        pending.wait()?;
        self.fetch(newest)
    }

    /// Whether everything in the stream is done and its bytes are there; "not ready" is an error.
    pub fn query(&self) -> Result<(), CUresult> {
        capture::refuse_wait(self)?;
        let pending = self.pending_writes();
        let newest = self.newest();
        if self.has_published(newest) {
            return self.synchronize();
        }
        self.require_done(newest, |token| {
            send::call_in(self.context, &calls::stream_query { stream: self.handle, token })
        })?;
        if !pending.is_done() {
            return Err(CUresult::CUDA_ERROR_NOT_READY);
        }
        pending.wait()?;
        self.fetch(newest)
    }

    /// Succeeds when everything up to `sequence` is done, fails with "not ready" when it is not. `query` asks
    /// the server, which is done only when nothing is known and nothing is being watched.
    pub fn require_done(
        &self,
        sequence: u64,
        query: impl FnOnce(u64) -> Result<bool, CUresult>,
    ) -> Result<(), CUresult> {
        session::of(self.context)?.faults().take()?;
        if self.has_done(sequence) {
            return Ok(());
        }
        if self.watermark.is_watched(sequence) {
            // The threads that bring the answer may want the core on which the program asks again and again.
            spin::polled_in_vain();
        } else if self.watermark.query_or_watch(self.context.server(), sequence, query)? {
            return Ok(());
        }
        Err(CUresult::CUDA_ERROR_NOT_READY)
    }
}
