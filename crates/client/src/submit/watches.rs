//! How is the end of work learned of, and who gets what kernels wrote?

use crate::model::completion::{self, Watermark};
use crate::model::stream::StreamState;
use crate::remote::visible;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::CUresult;

impl Watermark {
    /// Gets what kernels wrote up to `ticket` to memory of the program, unless the program has it. Everything
    /// up to there must be done. `server` is where the work was done.
    pub fn fetch(&self, server: usize, ticket: u64) -> Result<(), CUresult> {
        if visible::is_any() && !self.has_fetched(ticket) {
            visible::fetch(server)?;
            self.note_fetched(ticket);
        }
        Ok(())
    }
}

impl StreamState {
    /// Gets what kernels wrote to memory of the program up to `ticket`, which must be done.
    pub fn fetch(&self, ticket: u64) -> Result<(), CUresult> {
        self.watermark.fetch(self.context.server(), ticket)
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
