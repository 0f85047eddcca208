//! To which context each stream belongs.

use causeway_api::handle::{Context, Native, Stream};
use parking_lot::Mutex;
use std::collections::HashMap;

/// The streams that the session has made.
#[derive(Default)]
pub(super) struct Streams {
    made: Mutex<HashMap<Native<Stream>, Native<Context>>>,
}

impl Streams {
    pub(super) fn add(&self, stream: Native<Stream>, context: Native<Context>) {
        self.made.lock().insert(stream, context);
    }

    pub(super) fn remove(&self, stream: Native<Stream>) {
        self.made.lock().remove(&stream);
    }

    /// The context of a stream; the legacy default stream belongs to all and gives nothing.
    pub(super) fn context_of(&self, stream: Native<Stream>) -> Option<Native<Context>> {
        self.made.lock().get(&stream).copied()
    }

    /// All streams of `context`, the legacy default stream first.
    pub(super) fn of(&self, context: Native<Context>) -> Vec<Native<Stream>> {
        let made = self.made.lock();
        let own = made.iter().filter(|(_, other)| **other == context).map(|(stream, _)| *stream);
        core::iter::once(Native::NULL).chain(own).collect()
    }

    pub(super) fn forget(&self, context: Native<Context>) {
        self.made.lock().retain(|_, other| *other != context);
    }
}
