//! Is the work of a context known to be done?

use super::ContextState;
use crate::model::{handles, stream};
use std::sync::atomic::Ordering;

impl ContextState {
    /// Whether nothing has been put into it since all of its work was last known to be done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        let newest = handles::ticket(self.handle);
        self.watermark.done() >= newest || self.is_done_by_streams(newest)
    }

    /// Whether each of its streams is known to have done what was put into the context up to `newest`. So a program that has
    /// waited for its default stream, as with a copy, need not wait again for the device.
    fn is_done_by_streams(&self, newest: u64) -> bool {
        // The legacy default stream answers for all blocking ones.
        let is_done = self.legacy_stream.has_done(newest)
            && self.left_behind.load(Ordering::Acquire) <= self.watermark.done()
            && stream::non_blocking_are_done(self.handle);
        if is_done {
            self.watermark.reach(newest);
        }
        is_done
    }

    /// A stream that the legacy default stream does not wait for is destroyed; `newest` is its newest ticket.
    pub fn leave_behind(&self, newest: u64) {
        self.left_behind.fetch_max(newest, Ordering::AcqRel);
    }

    /// Whether nothing is under way in it, as far as is known, but copies that were [published](Self::publish).
    pub fn has_only_published(&self) -> bool {
        self.has_published(handles::ticket(self.handle)) || self.is_idle()
    }

    /// Everything up to `ticket` is done or belongs to synchronous copies that the server puts all later work behind.
    pub fn publish(&self, ticket: u64) {
        self.published.fetch_max(ticket, Ordering::AcqRel);
    }

    /// Whether everything up to `ticket` is done or belongs to such copies: to the program it is done, so that whoever asks waits for it.
    pub fn has_published(&self, ticket: u64) -> bool {
        self.published.load(Ordering::Acquire) >= ticket
    }
}
