//! One thread that polls for the end of many things, and sleeps between two looks.
//!
//! There is no descriptor to sleep on, so it sleeps for short times while there is something to look for. Who brings
//! something urgent calls it out of such a pause, since the pauses grow; who brings anything else need not: it is looked
//! for soon enough. With nothing to look for it sleeps until either comes.

use core::sync::atomic::Ordering;
use std::time::Duration;

use crate::event_count::{EventCount, Key};
use crate::face::{AtomicBool, fence};

/// Where the thread sleeps, and how it is woken.
#[derive(Debug, Default)]
pub struct PollPause {
    calls: EventCount,
    /// The thread has nothing to look for, or is about to find that.
    is_idle: AtomicBool,
}

impl PollPause {
    /// The thread is awake.
    pub fn new() -> Self {
        Self { calls: EventCount::new(), is_idle: AtomicBool::new(false) }
    }

    /// To be asked for before the thread looks: no call from here on is slept over.
    #[inline]
    pub fn key(&self) -> Key {
        self.calls.key()
    }

    /// Sleeps for `interval`, or until somebody has [called](Self::call) since `key`; whether somebody has.
    pub fn pause(&self, key: Key, interval: Duration) -> bool {
        self.calls.wait_for(key, interval)
    }

    /// Sleeps until something is [brought](Self::bring) or somebody has called since `key`, but not when there is
    /// something to look for.
    pub fn idle_unless(&self, key: Key, has_some: impl FnOnce() -> bool) {
        self.is_idle.store(true, Ordering::Relaxed);
        // Either `has_some` sees what is brought, or who brings it sees that the thread is idle.
        fence(Ordering::SeqCst);
        if !has_some() {
            self.calls.wait(key);
        }
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Something to look for has been made visible: an idle thread begins to look. A fence and a load where it looks
    /// already.
    #[inline]
    pub fn bring(&self) {
        fence(Ordering::SeqCst);
        if self.is_idle.load(Ordering::Relaxed) {
            self.call();
        }
    }

    /// The thread looks at once, whether it is idle or pauses.
    #[inline]
    pub fn call(&self) {
        self.calls.notify_all();
    }
}
