//! Threads that run blocks.
//!
//! Each launch has a thread of its own and gets help from those of the pool that are free. Priorities begin to
//! count where none is: before a thread begins a block it joins a launch that is more urgent, until that has no
//! blocks left to begin.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicI32, Ordering};

use causeway_sync::ForkJoinPool;
use parking_lot::{Condvar, Mutex};

/// A number of threads, shared by all launches of a process.
///
/// The thread that launches a kernel works on it too, so a launch of a single block never changes threads;
/// the pool's threads join launches of several blocks.
#[derive(Debug)]
pub struct Pool {
    threads: ForkJoinPool,
    /// The smallest priority number among the launches that can be joined; `i32::MAX` without one. A hint: who
    /// sees it late begins a block before it joins.
    highest_priority: AtomicI32,
    joinable: Mutex<Vec<Joinable>>,
    /// Signalled when a thread that has joined a launch leaves it.
    left: Condvar,
}

type Work<'a> = dyn Fn(u32) + Sync + 'a;

/// A launch that threads of others may join.
#[derive(Debug)]
struct Joinable {
    priority: i32,
    work: *const Work<'static>,
    /// Threads of other launches that work on it.
    guests: usize,
    /// Whether it has no blocks left to begin, as far as somebody has found.
    is_started: bool,
}

// SAFETY: the work is `Sync`, and `Pool::run` keeps it alive until all guests have left.
unsafe impl Send for Joinable {}

impl Pool {
    /// A pool on which launches run on up to `threads` threads, the launching one included.
    ///
    /// # Panics
    /// When the system refuses to make threads.
    pub fn new(threads: usize) -> Self {
        let helpers = threads.saturating_sub(1);
        let threads = ForkJoinPool::new(helpers, "gpu", block_signals);
        Self {
            threads: threads.expect("the system makes threads for the pool"),
            highest_priority: AtomicI32::new(i32::MAX),
            joinable: Mutex::default(),
            left: Condvar::new(),
        }
    }

    /// A pool with as many threads as the machine has for this process.
    pub fn for_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Threads a launch can run on.
    pub fn size(&self) -> usize {
        self.threads.helpers() + 1
    }

    /// Has the work of a launch of `blocks` blocks done, by as many threads as can be of use: returns when all of them
    /// have returned from `work`, to which the maximum number is passed each time. Threads of less urgent launches
    /// may join it where it `may_be_joined`.
    pub(crate) fn run(&self, blocks: u64, priority: i32, may_be_joined: bool, work: &Work<'_>) {
        let helpers = (self.threads.helpers() as u64).min(blocks.saturating_sub(1)) as usize;
        let size = self.size() as u32;
        // Dropped behind the work, also where that panics.
        let _open = (may_be_joined && blocks > 1).then(|| self.open(priority, work));
        self.threads.run(helpers, &|| work(size));
    }

    fn open<'p>(&'p self, priority: i32, work: &'p Work<'_>) -> Open<'p> {
        // SAFETY: a pointer of the same layout. Nobody uses it once `Open` is dropped, before which the work does
        // not go away.
        let work = unsafe { std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let mut joinable = self.joinable.lock();
        joinable.push(Joinable { priority, work, guests: 0, is_started: false });
        self.notify_highest_priority(&joinable);
        Open { pool: self, work }
    }

    /// Works on launches that are more urgent than one of this `priority`, for as long as those have blocks to
    /// begin. Called by threads that have begun no block of their own launch which others may wait for.
    pub(crate) fn join_more_urgent(&self, priority: i32) {
        while self.highest_priority.load(Ordering::Relaxed) < priority {
            let work = {
                let mut joinable = self.joinable.lock();
                let open =
                    joinable.iter_mut().filter(|launch| !launch.is_started && launch.priority < priority);
                let Some(launch) = open.min_by_key(|launch| launch.priority) else { return };
                launch.guests += 1;
                launch.work
            };
            let _guest = Guest { pool: self, work };
            // SAFETY: `Open` waits until this guest has left before the work goes away.
            unsafe { (*work)(self.size() as u32) };
        }
    }

    fn notify_highest_priority(&self, joinable: &[Joinable]) {
        let open = joinable.iter().filter(|launch| !launch.is_started);
        self.highest_priority
            .store(open.map(|launch| launch.priority).min().unwrap_or(i32::MAX), Ordering::Relaxed);
    }
}

/// A launch that may be joined until this is dropped, which waits for all that have.
struct Open<'p> {
    pool: &'p Pool,
    work: *const Work<'static>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut joinable = self.pool.joinable.lock();
        let is_this = |launch: &Joinable| std::ptr::addr_eq(launch.work, self.work);
        if let Some(launch) = joinable.iter_mut().find(|launch| is_this(launch)) {
            launch.is_started = true;
        }
        self.pool.notify_highest_priority(&joinable);
        while joinable.iter().any(|launch| is_this(launch) && launch.guests > 0) {
            self.pool.left.wait(&mut joinable);
        }
        joinable.retain(|launch| !is_this(launch));
    }
}

/// A thread's stay at a launch that is not its own.
struct Guest<'p> {
    pool: &'p Pool,
    work: *const Work<'static>,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut joinable = self.pool.joinable.lock();
        if let Some(launch) = joinable.iter_mut().find(|launch| std::ptr::addr_eq(launch.work, self.work)) {
            launch.guests -= 1;
            launch.is_started = true;
        }
        self.pool.notify_highest_priority(&joinable);
        self.pool.left.notify_all();
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
