//! Synchronisation with the work of a context (`cuCtxSynchronize`).

use crate::model::context::ContextState;
use crate::model::{context, handles};
use crate::remote::session;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::CUresult;
use std::sync::atomic::Ordering;

/// Waits for published copies, before something changes that does not come behind them by itself.
pub fn finish_published() -> Result<(), CUresult> {
    context::active().try_for_each(|context| context.finish_published())
}

impl ContextState {
    fn finish_published(&self) -> Result<(), CUresult> {
        let published = self.published.load(Ordering::Acquire);
        let is_done = self.watermark.done() >= published || self.legacy_stream.has_done(published);
        if is_done { Ok(()) } else { self.synchronize() }
    }

    /// Waits until everything in it is done and its bytes are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        let pending = context::pending_writes_of_all(self);
        let newest = handles::sequence(self.handle);
        if self.is_idle() {
            session::of(self.handle)?.faults().take()?;
        } else {
            send::call_in(self.handle, &calls::context_synchronize {})?;
            self.watermark.advance(newest);
        }
        pending.wait()?;
        self.watermark.fetch(self.handle.server(), newest)
    }
}
