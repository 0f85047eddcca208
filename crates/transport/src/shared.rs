//! State shared by a link and its transport, and the end of a link.
//!
//! A link ends lost or closed; of a loss its owner is notified first.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use causeway_sync::threads;

use crate::counters::{AtomicCounters, Counters};
use crate::error::LinkError;
use crate::events::{Direction, LinkEvents, Pacer};
use crate::transfers::Transfers;

/// The link works.
const OPEN: u8 = 0;
/// It has failed.
const LOST: u8 = 1;
/// Its owner has closed it.
const CLOSED: u8 = 2;

/// How long a thread that finds the link lost waits until the owner has been notified.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(1);

/// Marks a free place in [`Shared::descriptors`].
const NO_DESCRIPTOR: RawFd = -1;

/// The most descriptors that a link and its transport hold open.
pub const MAX_DESCRIPTORS: usize = 128;

/// What ends with a link: its transport, and whoever waits for that.
pub trait Carrier: Send + Sync {
    /// The link has ended. May be called more than once and from any thread.
    fn end(&self);

    /// Shows the peer that this end is there, by a frame without messages, unless it has seen that lately or
    /// takes nothing at the moment. Never blocks.
    fn send_keepalive(&self) {}

    /// Tells the peer at once how far its frames have been dealt with, if that is possible without waiting; whether it
    /// was.
    fn send_acknowledgement(&self) -> bool {
        true
    }

    /// Tells the peer that this end closes the link, if that is possible soon; whether it was sent.
    fn send_goodbye(&self) -> bool {
        false
    }
}

/// What a link's threads and its transport share.
pub struct Shared {
    carrier: Weak<dyn Carrier>,
    transfers: Transfers,
    state: AtomicU8,
    /// Whether the owner closes it, and waits for the peer to do so, too.
    is_closing: AtomicBool,
    cause: OnceLock<LinkError>,
    events: OnceLock<Arc<dyn LinkEvents>>,
    /// The thread that notifies the owner of the loss.
    notifier: OnceLock<u64>,
    /// Whether the notifier, or [`start`](Self::start), has begun to do so.
    notifying: AtomicBool,
    /// Whether that is done.
    owner_notified: AtomicBool,
    /// Whether the peer shows every second that it is there.
    peer_keeps_alive: AtomicBool,
    /// What holds transfers back, if anything.
    pacer: OnceLock<Arc<dyn Pacer>>,
    counters: AtomicCounters,
    /// All our descriptors, for a forked child that may take no lock.
    descriptors: [AtomicI32; MAX_DESCRIPTORS],
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

impl Shared {
    /// For a link that `carrier` carries, and which holds these descriptors open.
    pub fn new(carrier: Weak<dyn Carrier>, descriptors: &[RawFd]) -> Self {
        let shared = Self {
            carrier,
            transfers: Transfers::default(),
            state: AtomicU8::new(OPEN),
            is_closing: AtomicBool::new(false),
            cause: OnceLock::new(),
            events: OnceLock::new(),
            notifier: OnceLock::new(),
            notifying: AtomicBool::new(false),
            owner_notified: AtomicBool::new(false),
            peer_keeps_alive: AtomicBool::new(false),
            pacer: OnceLock::new(),
            counters: AtomicCounters::default(),
            descriptors: [const { AtomicI32::new(NO_DESCRIPTOR) }; MAX_DESCRIPTORS],
        };
        descriptors.iter().for_each(|descriptor| shared.note_descriptor(*descriptor));
        shared
    }

    /// Says who is notified of transfers and of the end, once.
    ///
    /// # Panics
    /// When called twice.
    pub fn start(&self, events: Arc<dyn LinkEvents>) {
        assert!(self.events.set(events).is_ok(), "a link is started once");
        // With the fence in `notify_loss`: either we see the loss here, or the loser sees the events.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == LOST
            && let Some(cause) = self.cause.get()
        {
            self.notify_loss(cause);
        }
    }

    /// Where the peer's transfers go.
    #[inline]
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// The owner, once it has started the link.
    #[inline]
    pub fn events(&self) -> Option<&dyn LinkEvents> {
        self.events.get().map(|events| &**events)
    }

    /// Has transfers held back from now on. The first pacer stays.
    pub fn set_pacer(&self, pacer: Arc<dyn Pacer>) {
        // The first one stays.
        let _ = self.pacer.set(pacer);
    }

    /// How long a thread that has carried so many bytes of a transfer waits before it carries more.
    #[inline]
    pub fn pause(&self, direction: Direction, bytes: usize) -> Duration {
        self.pacer.get().map_or(Duration::ZERO, |pacer| pacer.pause(direction, bytes))
    }

    /// What has gone over the link, for those who add to it.
    #[inline]
    pub fn counters(&self) -> &AtomicCounters {
        &self.counters
    }

    /// What has gone over the link so far.
    pub fn counted(&self) -> Counters {
        self.counters.now()
    }

    /// The peer shows every second that it is there: it has said so, or has done so once.
    #[inline]
    pub fn note_keepalive(&self) {
        self.peer_keeps_alive.store(true, Ordering::Relaxed);
    }

    /// Whether the peer shows every second that it is there.
    pub fn peer_keeps_alive(&self) -> bool {
        self.peer_keeps_alive.load(Ordering::Relaxed)
    }

    /// Shows the peer that this end is there, as [`Carrier::send_keepalive`] does.
    pub fn send_keepalive(&self) {
        if let Some(carrier) = self.carrier.upgrade() {
            carrier.send_keepalive();
        }
    }

    /// Tells the peer how far its frames have been dealt with, as [`Carrier::send_acknowledgement`] does.
    pub fn send_acknowledgement(&self) -> bool {
        self.carrier.upgrade().is_none_or(|carrier| carrier.send_acknowledgement())
    }

    /// Tells the peer that this end closes the link, as [`Carrier::send_goodbye`] does.
    pub fn send_goodbye(&self) -> bool {
        self.carrier.upgrade().is_some_and(|carrier| carrier.send_goodbye())
    }

    /// From here on the link's end is what its owner wants, whatever brings it.
    pub fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }

    /// Whether the owner closes the link.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Takes note of a descriptor that a forked child is to close.
    pub fn note_descriptor(&self, descriptor: RawFd) {
        let free = |slot: &&AtomicI32| {
            slot.compare_exchange(NO_DESCRIPTOR, descriptor, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let noted = self.descriptors.iter().find(free);
        debug_assert!(noted.is_some(), "no transport holds more than {MAX_DESCRIPTORS} descriptors open");
    }

    /// A descriptor that was noted is about to be closed.
    pub fn forget_descriptor(&self, descriptor: RawFd) {
        let forget = |slot: &AtomicI32| {
            slot.compare_exchange(descriptor, NO_DESCRIPTOR, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        // It is in one place alone.
        let _ = self.descriptors.iter().any(forget);
    }

    /// Closes the descriptors in a forked child, so that the child does not keep its parent's session
    /// alive. Takes no lock and allocates nothing. The parent's threads do not exist here: the child must
    /// never use or drop the link, nor its receiver.
    pub fn abandon_after_fork(&self) {
        for descriptor in &self.descriptors {
            let descriptor = descriptor.swap(NO_DESCRIPTOR, Ordering::SeqCst);
            if descriptor != NO_DESCRIPTOR {
                // SAFETY: the child owns its copies of the descriptors, and never uses the link that names
                // them.
                unsafe { libc::close(descriptor) };
            }
        }
    }

    /// Whether the link is lost or closed.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OPEN
    }

    /// Ends the link because its owner wants it, unless it has ended already: all transfers fail.
    pub fn close(&self) {
        if self.state.compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.end_carrier();
            self.transfers.fail_all(&LinkError::Closed);
        }
    }

    /// An error when the link has ended. The owner has been notified of a loss before anybody else learns of it.
    #[inline]
    pub fn check(&self) -> Result<(), LinkError> {
        if self.state.load(Ordering::SeqCst) == OPEN { Ok(()) } else { Err(self.ending()) }
    }

    /// Why the link has ended.
    #[cold]
    fn ending(&self) -> LinkError {
        if self.state.load(Ordering::SeqCst) == CLOSED {
            return LinkError::Closed;
        }
        // The program may end as soon as a call of it fails; what the owner says of the loss must come first.
        // The owner may be waiting for this very thread, so this is not for ever.
        let deadline = Instant::now() + NOTIFICATION_TIMEOUT;
        while !self.owner_notified.load(Ordering::SeqCst)
            && self.notifier.get() != Some(&threads::number())
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        self.cause.get().cloned().unwrap_or(LinkError::Closed)
    }

    /// Ends the link because of `cause`, unless it has ended already; returns the error to report.
    pub fn lose(&self, cause: LinkError) -> LinkError {
        if self.is_closing() {
            self.close();
        }
        if self.state.load(Ordering::SeqCst) == OPEN {
            // The first cause is kept: later ones only follow from it.
            let _ = self.cause.set(cause);
            if self.state.compare_exchange(OPEN, LOST, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                let cause = self.cause.get().expect("a cause was set above");
                // Only one thread gets here, so there is no other notifier.
                let _ = self.notifier.set(threads::number());
                self.end_carrier();
                self.notify_loss(cause);
                self.transfers.fail_all(cause);
            }
        }
        self.ending()
    }

    /// Tells the owner of a loss, once.
    fn notify_loss(&self, cause: &LinkError) {
        fence(Ordering::SeqCst);
        // Without events nobody has anything to lose yet; `start` tells it.
        if let Some(events) = self.events.get()
            && !self.notifying.swap(true, Ordering::SeqCst)
        {
            events.lost(cause);
        }
        self.owner_notified.store(true, Ordering::SeqCst);
    }

    /// Ends what carries the link. When nobody holds the link any more there is nothing to end.
    fn end_carrier(&self) {
        if let Some(carrier) = self.carrier.upgrade() {
            carrier.end();
        }
    }
}

/// Starts one of the link's threads, or loses the link where the system has no thread to give.
pub fn spawn_or_lose(shared: &Arc<Shared>, name: &str, body: impl FnOnce(&Arc<Shared>) + Send + 'static) {
    let own = Arc::clone(shared);
    if let Err(error) = threads::spawn(name, move || body(&own)) {
        shared.lose(LinkError::local(&error));
    }
}
