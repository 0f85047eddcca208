//! What is known of the streams: to which context each belongs and which of them are being captured.

use causeway_api::handle::{Context, Native, Stream};
use parking_lot::Mutex;
use std::collections::HashMap;

/// The streams that the session has made.
#[derive(Default)]
pub(super) struct Streams {
    made: Mutex<HashMap<Native<Stream>, Native<Context>>>,
    /// Those in which a capture was begun that has not ended.
    capturing: Mutex<HashMap<Native<Stream>, Native<Context>>>,
}

impl Streams {
    pub(super) fn add(&self, stream: Native<Stream>, context: Native<Context>) {
        self.made.lock().insert(stream, context);
    }

    pub(super) fn remove(&self, stream: Native<Stream>) {
        self.made.lock().remove(&stream);
        self.capturing.lock().remove(&stream);
    }

    /// The context of a stream; the legacy default stream belongs to all and gives nothing.
    pub(super) fn context_of(&self, stream: Native<Stream>) -> Option<Native<Context>> {
        self.made.lock().get(&stream).copied()
    }

    pub(super) fn begin_capture(&self, stream: Native<Stream>, context: Native<Context>) {
        self.capturing.lock().insert(stream, context);
    }

    pub(super) fn end_capture(&self, stream: Native<Stream>) {
        self.capturing.lock().remove(&stream);
    }

    /// Whether a capture goes on in a stream of `context`.
    pub(super) fn any_capturing(&self, context: Native<Context>) -> bool {
        self.capturing.lock().values().any(|other| *other == context)
    }

    /// All streams of `context`, the legacy default stream first.
    pub(super) fn of(&self, context: Native<Context>) -> Vec<Native<Stream>> {
        let made = self.made.lock();
        let own = made.iter().filter(|(_, other)| **other == context).map(|(stream, _)| *stream);
        core::iter::once(Native::NULL).chain(own).collect()
    }

    pub(super) fn forget(&self, context: Native<Context>) {
        self.made.lock().retain(|_, other| *other != context);
        self.capturing.lock().retain(|_, other| *other != context);
    }
}
