//! How does a kernel hear that a rank has ended for which it waits? A thread looks whether the others are there,
//! and writes a word that waiting kernels read.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cuda::{Driver, Scope};
use crate::world::Presence;

/// How often it looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The thread, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    has_to_end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches ranks of a job. Of the first one that is not there any more it writes the place in this list and 1
    /// to an address of a context, beside the work of all other streams.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn begin(
        presence: Presence,
        members: Vec<u32>,
        driver: &'static Driver,
        context: u64,
        address: u64,
    ) -> std::io::Result<Self> {
        let has_to_end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&has_to_end);
        let watch = move || {
            while !ends.load(Ordering::Acquire) {
                if let Some(gone) = members.iter().position(|peer| !presence.has(*peer)) {
                    let word = gone as u64 + 1;
                    // Without the context there is no kernel that waits.
                    if let Ok(scope) = Scope::of_context(driver, context) {
                        // SAFETY: the word is there until the watch has ended, and the other is this thread's.
                        let _ = unsafe { scope.copy(address, (&raw const word) as u64, size_of::<u64>()) };
                    }
                    return;
                }
                std::thread::park_timeout(PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name("causeway-graphs".to_owned()).spawn(watch)?;
        Ok(Self { has_to_end, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.has_to_end.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // One that has panicked has said so.
            let _ = thread.join();
        }
    }
}
