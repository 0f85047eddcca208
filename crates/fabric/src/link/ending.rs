//! How a link ends: lost or closed, and its owner is told before anybody else.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::{LinkError, Shared};

/// The link works.
pub(super) const OPEN: u8 = 0;
/// It has failed.
pub(super) const LOST: u8 = 1;
/// Its owner has closed it.
pub(super) const CLOSED: u8 = 2;

/// How long a thread that finds the link lost waits for the owner to be told first.
const PATIENCE_WITH_TELLER: Duration = Duration::from_secs(1);

impl Shared {
    /// An error when the link has ended. The owner has been told of a loss before anybody else learns of it.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if self.state.load(Ordering::SeqCst) == OPEN { Ok(()) } else { Err(self.ending()) }
    }

    /// Why the link has ended.
    #[cold]
    pub(super) fn ending(&self) -> LinkError {
        if self.state.load(Ordering::SeqCst) == CLOSED {
            return LinkError::Closed;
        }
        // The program may end as soon as a call of it fails; what the owner says of the loss must come first.
        // The owner may be waiting for this very thread, so this is not for ever.
        let deadline = Instant::now() + PATIENCE_WITH_TELLER;
        while !self.told.load(Ordering::SeqCst)
            && self.teller.get() != Some(&std::thread::current().id())
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        self.cause.get().cloned().unwrap_or(LinkError::Closed)
    }

    /// Ends the link because of `cause`, unless it has ended already; returns the error to report.
    pub(crate) fn lose(&self, cause: LinkError) -> LinkError {
        if self.state.load(Ordering::SeqCst) == OPEN {
            // The first cause is kept: later ones only follow from it.
            let _ = self.cause.set(cause);
            if self.state.compare_exchange(OPEN, LOST, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                let cause = self.cause.get().expect("a cause was set above");
                // Only one thread gets here, so there is no other teller.
                let _ = self.teller.set(std::thread::current().id());
                self.end_connections();
                self.tell_loss(cause);
                self.transfers.fail_all(cause);
            }
        }
        self.ending()
    }

    /// Tells the owner of a loss, once.
    pub(super) fn tell_loss(&self, cause: &LinkError) {
        fence(Ordering::SeqCst);
        // Without events nobody has anything to lose yet; `Link::start` tells it.
        if let Some(events) = self.events.get()
            && !self.telling.swap(true, Ordering::SeqCst)
        {
            events.lost(cause);
        }
        self.told.store(true, Ordering::SeqCst);
    }

    /// Ends what carries the link.
    pub(super) fn end_connections(&self) {
        self.memory.end();
        self.sending.wake_flusher();
    }
}
