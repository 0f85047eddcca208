//! What does the kernel count for a process besides memory?
//!
//! How much memory a worker may have is bounded by its control group ([`Bounds`](crate::cgroup::Bounds)); how
//! much that is says [`Wanted::session_memory`](crate::Wanted::session_memory).
//!
//! Addresses are not limited: the driver and the windows of memory reserve terabytes of them and use little.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Threads, and in a control group also processes, of one worker. A driver has some tens of threads, the
/// lanes up to 32, the software GPU one a core.
pub const MOST_THREADS: u64 = 4096;

/// When memory runs out, workers go before the rest of the machine, the broker and their clients among them.
/// 1000 would be first of all.
const OUT_OF_MEMORY_SCORE: &[u8] = b"500";

/// Sets the limits of this process. Async-signal-safe: it runs between `fork` and `exec`.
pub fn set() -> io::Result<()> {
    // A core file would hold the client's data.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    unlock_memory();
    Ok(())
}

/// Offers this process to the kernel for when memory runs out. It must be dumpable: the file is root's
/// otherwise.
pub fn go_first_without_memory() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", OUT_OF_MEMORY_SCORE)
}

/// Lets this process lock as much memory as its control group has. Network cards and the driver lock what
/// they read and write; the capability by which root does so without limit goes with the others.
fn unlock_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let most = getrlimit(Resource::Memlock).maximum;
        // Without the right to raise it, as much as there may be; that is always granted.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: most, maximum: most });
    }
}

/// Bounds the threads of this process, where its user is its own: the kernel counts those of a user together.
pub fn limit_threads() -> io::Result<()> {
    let most = Rlimit { current: Some(MOST_THREADS), maximum: Some(MOST_THREADS) };
    Ok(setrlimit(Resource::Nproc, most)?)
}
