//! Streams: the context to which each belongs, and stops in one, for host functions.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use causeway_api::handle::{Context, Native, Stream};
use causeway_api::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUresult, CUstreamWaitValue_flags,
};
use causeway_gpu::{CuResult, Gate};
use rustc_hash::FxHashMap;

use crate::context;
use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use crate::pinned::Pages;

/// Words of a page, which is registered as a whole.
const WORDS: usize = 4096 / size_of::<AtomicU32>();

type OnReached = Box<dyn FnOnce() + Send>;

/// A number that streams wait for. It only ever grows (with wrap-around, as the driver's comparison does), so
/// it may be used again before the stream that waited last has looked.
struct Word {
    page: Arc<Pages>,
    index: usize,
    /// Where the GPU finds it.
    device_address: u64,
}

impl Word {
    fn value(&self) -> &AtomicU32 {
        // SAFETY: the page is zeroed and aligned, has `WORDS` numbers, lives as long as `self`, and is
        // accessed from the host only through these atomics.
        unsafe { &*self.page.address().cast::<AtomicU32>().add(self.index) }
    }
}

/// The words that no gate uses now, by context.
pub(crate) struct GateValues {
    free: Mutex<rank::Leaf, FxHashMap<Native<Context>, Vec<Word>>>,
}

impl GateValues {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::default() }
    }

    fn take(&self, functions: &Functions, context: Native<Context>) -> CuResult<Word> {
        let mut free = self.free.lock();
        let words = free.entry(context).or_default();
        if words.is_empty() {
            *words = new_words(functions, context)?;
        }
        words.pop().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn release(&self, context: Native<Context>, word: Word) {
        // No entry: the context has ended meanwhile.
        if let Some(words) = self.free.lock().get_mut(&context) {
            words.push(word);
        }
    }

    pub(crate) fn forget(&self, context: Native<Context>) {
        self.free.lock().remove(&context);
    }
}

fn new_words(functions: &Functions, context: Native<Context>) -> CuResult<Vec<Word>> {
    let mut page = Pages::new(WORDS * size_of::<AtomicU32>())?;
    page.register(functions, context, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)?;
    let mut address = 0;
    context::within(functions, context, || {
        // SAFETY: the page has just been registered; the result is a local.
        unsafe { functions.cuMemHostGetDevicePointer_v2(&mut address, page.address().cast(), 0) }
    })?;
    let page = Arc::new(page);
    let word = |index| Word {
        page: Arc::clone(&page),
        index,
        device_address: address + (index * size_of::<AtomicU32>()) as u64,
    };
    Ok((0..WORDS).map(word).collect())
}

/// A stop that has not been opened.
struct Stop {
    words: Arc<GateValues>,
    context: Native<Context>,
    word: Option<Word>,
    opens_at: u32,
}

impl Gate for Stop {
    fn open(self: Box<Self>) {
        drop(self);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(word) = self.word.take() {
            word.value().store(self.opens_at, Ordering::Release);
            self.words.release(self.context, word);
        }
    }
}

/// What the driver calls when the stream reaches the gate.
unsafe extern "C" fn call_reached(data: *mut c_void) {
    // SAFETY: `data` is the box that `stop` gave to the driver, which calls this once.
    let reached = unsafe { Box::from_raw(data.cast::<OnReached>()) };
    // A panic must not go on into the driver.
    if std::panic::catch_unwind(core::panic::AssertUnwindSafe(*reached)).is_err() {
        tracing::error!("the action at a gate of a stream panicked");
    }
}

impl GateValues {
    /// Enqueues the call of `reached` and the wait. When the second of the two fails, `reached` is called all
    /// the same; a stream that takes no more work is at its end anyway.
    pub(crate) fn stop(
        self: &Arc<Self>,
        functions: &Functions,
        context: Native<Context>,
        stream: Native<Stream>,
        reached: OnReached,
    ) -> CuResult<Box<dyn Gate>> {
        let word = self.take(functions, context)?;
        let opens_at = word.value().load(Ordering::Relaxed).wrapping_add(1);
        let device_address = word.device_address;
        let gate = Stop { words: Arc::clone(self), context, word: Some(word), opens_at };
        let data = Box::into_raw(Box::new(reached));
        // SAFETY: the callback takes over the box.
        let called = unsafe { functions.cuLaunchHostFunc(stream.as_raw(), Some(call_reached), data.cast()) };
        if let Err(status) = called {
            // SAFETY: the driver refused the callback, so the box is still ours.
            drop(unsafe { Box::from_raw(data) });
            return Err(status);
        }
        let until = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
        // SAFETY: the address is of a registered page that lives until the gate is opened.
        unsafe { functions.cuStreamWaitValue32_v2(stream.as_raw(), device_address, opens_at, until)? };
        Ok(Box::new(gate))
    }
}

/// The streams that the session has made.
#[derive(Default)]
pub(crate) struct Streams {
    made: Mutex<rank::Leaf, FxHashMap<Native<Stream>, Native<Context>>>,
}

impl Streams {
    pub(crate) fn add(&self, stream: Native<Stream>, context: Native<Context>) {
        self.made.lock().insert(stream, context);
    }

    pub(crate) fn remove(&self, stream: Native<Stream>) {
        self.made.lock().remove(&stream);
    }

    /// The context of a stream; the legacy default stream belongs to all and gives nothing.
    pub(crate) fn context_of(&self, stream: Native<Stream>) -> Option<Native<Context>> {
        self.made.lock().get(&stream).copied()
    }

    /// All streams of `context`, the legacy default stream first.
    pub(crate) fn of(&self, context: Native<Context>) -> Vec<Native<Stream>> {
        let made = self.made.lock();
        let own = made.iter().filter(|(_, other)| **other == context).map(|(stream, _)| *stream);
        core::iter::once(Native::NULL).chain(own).collect()
    }

    /// All streams but default ones, each with its context.
    pub(crate) fn all(&self) -> Vec<(Native<Stream>, Native<Context>)> {
        self.made.lock().iter().map(|(stream, context)| (*stream, *context)).collect()
    }

    pub(crate) fn forget(&self, context: Native<Context>) {
        self.made.lock().retain(|_, other| *other != context);
    }
}
