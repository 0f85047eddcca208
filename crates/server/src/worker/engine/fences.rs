//! What a synchronous copy has brought to the device is there for all that comes after it, in whichever stream.
//!
//! The bytes of a small copy travel with the commands, and the program's call returns before they have arrived; that of a long one
//! returns when they are here. What the program does next may be work in a stream that is in no order with the copy's, also
//! of another context: it must find the bytes, as it does with a GPU that is near. So the end of such a copy is marked by an
//! event of ours, a *fence*, and the first command that each other stream gets afterwards waits for it on the device.

use crate::worker::order::{self, ObjectKinds};
use causeway_api::handle::{Context, Event, Handle, Native, Stream};
use causeway_api::sys::CUevent_flags;
use causeway_gpu::{CuResult, Gpu};
use rustc_hash::FxHashSet;

/// The end of the newest synchronous copy of a stream.
struct Fence {
    context: Handle<Context>,
    /// The [key](order::key) of the copy's stream.
    stream: u64,
    event: Native<Event>,
    /// The streams that have waited for it, with the contexts of their commands.
    passed: FxHashSet<(u64, u64)>,
}

/// The fences of a session, one for each stream that had a synchronous copy.
#[derive(Default)]
pub struct Fences(Vec<Fence>);

impl Fences {
    /// Whether there are none, as in a session without synchronous copies.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Marks the end of a copy that was just put into `stream`, whose handle is `handle`. The stream's context must
    /// be current.
    pub fn set(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        handle: Handle<Stream>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let key = order::key(handle, context);
        let known = self.0.iter_mut().find(|fence| fence.is_of(context, key));
        let fence = match known {
            Some(fence) => fence,
            None => {
                let event = gpu.event_create(CUevent_flags::CU_EVENT_DISABLE_TIMING.0)?;
                let passed = FxHashSet::default();
                self.0.push(Fence { context, stream: key, event, passed });
                self.0.last_mut().expect("one was just added")
            }
        };
        fence.passed.clear();
        gpu.event_record(fence.event, stream, 0)
    }

    /// Has `stream`, which is about to get a command, wait for the copies that it is in no order with. Its context must be
    /// current; `native` finds the back end's handle.
    pub fn pass(
        &mut self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        stream: u64,
        kinds: &ObjectKinds,
        native: impl Fn() -> CuResult<Native<Stream>>,
    ) -> CuResult<()> {
        for fence in &mut self.0 {
            let are_in_order = fence.context == context && kinds.are_in_order(fence.stream, stream);
            if are_in_order || !fence.passed.insert((context.value(), stream)) {
                continue;
            }
            gpu.stream_wait_event(native()?, fence.event, 0)?;
        }
        Ok(())
    }

    /// Forgets a stream that the client has destroyed.
    pub fn stream_ends(&mut self, gpu: &dyn Gpu, stream: Handle<Stream>) {
        for fence in &mut self.0 {
            fence.passed.retain(|(_, passed)| *passed != stream.value());
        }
        self.end(gpu, |fence| fence.stream == stream.value());
    }

    /// Forgets a context that is about to end.
    pub fn context_ends(&mut self, gpu: &dyn Gpu, context: Handle<Context>) {
        for fence in &mut self.0 {
            fence.passed.retain(|(passed, _)| *passed != context.value());
        }
        self.end(gpu, |fence| fence.context == context);
    }

    fn end(&mut self, gpu: &dyn Gpu, ends: impl Fn(&Fence) -> bool) {
        for fence in self.0.extract_if(.., |fence| ends(fence)) {
            if let Err(status) = gpu.event_destroy(fence.event) {
                tracing::warn!(status = status.0, "cannot destroy a fence");
            }
        }
    }
}

impl Fence {
    fn is_of(&self, context: Handle<Context>, stream: u64) -> bool {
        self.context == context && self.stream == stream
    }
}
