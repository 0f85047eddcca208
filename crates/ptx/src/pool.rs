//! Threads that run blocks.

use std::num::NonZeroUsize;

use causeway_sync::ForkJoinPool;

/// A number of threads, shared by all launches of a process.
///
/// The thread that launches a kernel works on it too, so a launch of a single block never changes threads;
/// the pool's threads join launches of several blocks.
#[derive(Debug)]
pub struct Pool(ForkJoinPool);

impl Pool {
    /// A pool on which launches run on up to `threads` threads, the launching one included.
    ///
    /// # Panics
    /// When the system refuses to make threads.
    pub fn new(threads: usize) -> Self {
        let helpers = threads.saturating_sub(1);
        Self(ForkJoinPool::new(helpers, "gpu", block_signals).expect("the system makes threads for the pool"))
    }

    /// A pool with as many threads as the machine has for this process.
    pub fn for_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Threads a launch can run on.
    pub fn size(&self) -> usize {
        self.0.helpers() + 1
    }

    /// Has the work of a launch of `blocks` blocks done, by as many threads as can be of use: returns when all of them
    /// have returned from `work`, to which each is told how many there may be.
    pub(crate) fn run(&self, blocks: u64, work: impl Fn(u32) + Sync) {
        let helpers = (self.0.helpers() as u64).min(blocks.saturating_sub(1)) as usize;
        let size = self.size() as u32;
        self.0.run(helpers, &|| work(size));
    }
}

/// Leaves signals of the process to other threads; those that compiled code raises come all the same.
fn block_signals() {
    // SAFETY: plain changes of this thread's signal mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}
