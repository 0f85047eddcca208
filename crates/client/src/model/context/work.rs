//! Completion state of a context and its streams.

use super::{ContextState, current_state, state};
use crate::model::handles;
use crate::model::stream::{self, StreamState};
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::CUresult;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl ContextState {
    /// Whether nothing has been put into it since all of its work was last known to be done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let newest = handles::sequence(self.handle);
        self.watermark.done() >= newest || self.is_done_by_streams(newest)
    }

    /// Whether each of its streams is known to have done what was put into the context up to `newest`. So a
    /// program that has waited for its default stream, as with a copy, need not wait again for the device.
    fn is_done_by_streams(&self, newest: u64) -> bool {
        // The legacy default stream answers for all blocking ones.
        let is_done = self.legacy_stream.has_done(newest)
            && self.left_behind.load(Ordering::Acquire) <= self.watermark.done()
            && non_blocking_are_done(self.handle);
        if is_done {
            self.watermark.advance(newest);
        }
        is_done
    }

    /// A stream that the legacy default stream does not wait for is destroyed; `newest` is its newest
    /// sequence number.
    pub fn leave_behind(&self, newest: u64) {
        self.left_behind.fetch_max(newest, Ordering::AcqRel);
    }

    /// Whether nothing is under way in it, as far as is known, but copies that were
    /// [published](Self::publish).
    pub fn has_only_published(&self) -> bool {
        self.has_published(handles::sequence(self.handle)) || self.is_idle()
    }

    /// Everything up to `sequence` is done or belongs to synchronous copies that the server puts all later
    /// work behind.
    pub fn publish(&self, sequence: u64) {
        self.published.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Whether everything up to `sequence` is done or belongs to such copies: to the program it is done, so
    /// that whoever asks waits for it.
    pub fn has_published(&self, sequence: u64) -> bool {
        self.published.load(Ordering::Acquire) >= sequence
    }
}

impl StreamState {
    /// Whether everything up to a sequence number is known to be done.
    pub fn has_done(&self, sequence: u64) -> bool {
        self.watermark.done() >= sequence
            || state(self.context).is_ok_and(|context| context.watermark.done() >= sequence)
    }

    /// Whether everything up to a sequence number is done or belongs to published copies, and some of it is
    /// not known to be done.
    pub fn has_published(&self, sequence: u64) -> bool {
        !self.has_done(sequence) && state(self.context).is_ok_and(|context| context.has_published(sequence))
    }

    /// How many commands may be before the stream's end and not be known to be done, those of other streams
    /// among them.
    pub fn unfinished(&self) -> u64 {
        let context = state(self.context).map_or(0, |context| context.watermark.done());
        self.newest().saturating_sub(self.watermark.done().max(context))
    }
}

/// What is kept of a stream; null means the legacy default stream of the current context.
pub fn stream(handle: Handle<Stream>) -> Result<Arc<StreamState>, CUresult> {
    if handle.is_null() { Ok(current_state()?.legacy_stream.clone()) } else { stream::get(handle) }
}

/// Whether all streams of a context that its legacy default stream does not wait for are known to have done
/// their work.
fn non_blocking_are_done(context: Handle<Context>) -> bool {
    let is_at_work = |stream: &StreamState| {
        stream.context == context && !stream.is_blocking() && !stream.has_done(stream.newest())
    };
    stream::select(is_at_work).is_empty()
}
