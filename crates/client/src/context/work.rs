//! Is the work of a context done, and who waits until it is?

use super::ContextState;
use crate::session::{self, transfers};
use crate::{handles, stream};
use causeway_api::calls;
use causeway_api::sys::CUresult;
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

    /// Waits until everything in it is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        let transfers = transfers::of_context(self.handle);
        let newest = handles::ticket(self.handle);
        if self.is_idle() {
            session::of(self.handle)?.faults().take()?;
        } else {
            session::call_in(self.handle, &calls::context_synchronize {})?;
            self.watermark.reach(newest);
        }
        transfers.iter().try_for_each(|transfer| transfer.wait())?;
        self.watermark.fetch(self.handle.server(), newest)
    }
}
