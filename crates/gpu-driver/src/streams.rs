//! To which context does each stream belong?

use causeway_api::handle::{Context, Native, Stream};
use causeway_sync::face::Mutex;
use rustc_hash::FxHashMap;

/// The streams that the session has made.
#[derive(Default)]
pub(crate) struct Streams {
    made: Mutex<FxHashMap<Native<Stream>, Native<Context>>>,
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
