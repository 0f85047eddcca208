//! Notification of kernels when a rank fails. It reads a word, which is written as soon as the
//! rank has gone.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::cuda::{CudaError, Driver, PinnedWord, Scope};
use crate::world::{Listener, World};

/// Where the word lies.
#[derive(Debug)]
pub enum Ended {
    /// In memory of the host, which is written without the driver: that may be within a call that waits for
    /// the very kernel, such as one that frees memory, and lets no other in (seen on two H100, 2026-11-27).
    Host(PinnedWord),
    /// In the GPU's own, for one that is elsewhere.
    Device(u64),
}

impl Ended {
    /// In memory of the host where kernels can read that, else at an address of the GPU.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(scope: &Scope<'static>, device: u64) -> Result<Self, CudaError> {
        if Driver::is_remote() { Ok(Self::Device(device)) } else { PinnedWord::new(scope).map(Self::Host) }
    }

    /// Where kernels read it.
    pub fn address(&self) -> u64 {
        match self {
            Self::Host(word) => word.address(),
            Self::Device(address) => *address,
        }
    }
}

/// What kernels are told of whom.
#[derive(Debug)]
struct FailureNotifier {
    members: Vec<u32>,
    driver: &'static Driver,
    context: u64,
    ended: Ended,
    /// What they have been told.
    word: AtomicU64,
}

impl FailureNotifier {
    fn notify(&self, peer: u32) {
        let Some(position) = self.members.iter().position(|member| *member == peer) else { return };
        let word = position as u64 + 1;
        if self.word.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        match &self.ended {
            Ended::Host(flag) => flag.write(word),
            Ended::Device(address) => {
                // Without the context there is no kernel that waits.
                if let Ok(scope) = Scope::of_context(self.driver, self.context) {
                    // SAFETY: the word is there until the watch has ended, and the other is this thread's.
                    let _ = unsafe { scope.copy(*address, (&raw const word) as u64, size_of::<u64>()) };
                }
            }
        }
    }
}

/// Watches ranks until it is dropped.
#[derive(Debug)]
pub struct Watch {
    // In front of the word, which is there as long as somebody may tell.
    _listener: Listener,
    _notifier: Arc<FailureNotifier>,
}

impl Watch {
    /// Of the first of these ranks of a job that goes, or has gone, it writes the place in this list and 1 to
    /// a word that kernels of a context read.
    pub fn begin(
        world: &World,
        members: Vec<u32>,
        driver: &'static Driver,
        context: u64,
        ended: Ended,
    ) -> Self {
        let notifier = Arc::new(FailureNotifier { members, driver, context, ended, word: AtomicU64::new(0) });
        let callback = Arc::clone(&notifier);
        let listener = world.listen(move |peer| callback.notify(peer));
        let presence = world.presence();
        let disconnected = notifier.members.iter().find(|peer| !presence.has(**peer)).copied();
        disconnected.into_iter().for_each(|peer| notifier.notify(peer));
        Self { _listener: listener, _notifier: notifier }
    }
}
