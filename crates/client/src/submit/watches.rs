//! Completion watches: notification of the end of work, and fetching of what kernels wrote.

use crate::model::completion::{self, Watermark};
use crate::model::stream::StreamState;
use crate::remote::mirrored;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::CUresult;

impl Watermark {
    /// Gets what kernels wrote up to `sequence` to memory of the program, unless the program has it.
    /// Everything up to there must be done. `server` is where the work was done.
    pub fn fetch(&self, server: usize, sequence: u64) -> Result<(), CUresult> {
        if mirrored::is_any() && !self.has_fetched(sequence) {
            mirrored::fetch(server)?;
            self.note_fetched(sequence);
        }
        Ok(())
    }
}

impl StreamState {
    /// Gets what kernels wrote to memory of the program up to `sequence`, which must be done.
    pub fn fetch(&self, sequence: u64) -> Result<(), CUresult> {
        self.watermark.fetch(self.context.server(), sequence)
    }
}

/// Calls `call` when the last record of an event is done, or never will be, on a thread that must not be held
/// up.
pub fn when_recorded(
    context: Handle<Context>,
    event: Handle<Event>,
    call: impl FnOnce() + Send + 'static,
) -> Result<(), CUresult> {
    completion::watch(context.server(), call, |token| {
        send::post_in(context, &calls::event_watch { event, token })
    })
}
