//! Threads that run blocks.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use crate::run::Launch;

/// A number of threads, shared by all launches of a process.
///
/// The thread that launches a kernel works on it too, so a launch of a single block never changes threads;
/// the pool's threads join launches of several blocks.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
    size: usize,
}

#[derive(Debug)]
struct PoolShared {
    queue: Mutex<Queue>,
    /// Signalled when an invitation is put into the queue, and at shutdown.
    invited: Condvar,
    /// Signalled when a helper leaves a launch.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    invitations: VecDeque<Invitation>,
    shutdown: bool,
    next_launch: u64,
    /// Helpers at work, by launch.
    helping: Vec<(u64, usize)>,
}

/// Asks one thread of the pool to help with a launch.
#[derive(Debug, Clone, Copy)]
struct Invitation {
    launch: u64,
    work: *const Launch<'static>,
}

// SAFETY: a launch is `Sync`, and `Pool::run` keeps it alive until no invitation and no helper is left.
unsafe impl Send for Invitation {}

impl Pool {
    /// A pool on which launches run on up to `threads` threads, the launching one included.
    ///
    /// # Panics
    /// When the system refuses to make threads.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(PoolShared {
            queue: Mutex::new(Queue::default()),
            invited: Condvar::new(),
            left: Condvar::new(),
        });
        let size = threads.max(1);
        let threads = (1..size)
            .map(|index| {
                let shared = Arc::clone(&shared);
                let size = size as u32;
                std::thread::Builder::new()
                    .name(format!("gpu-{index}"))
                    .spawn(move || shared.help(size))
                    .expect("the system makes threads for the pool")
            })
            .collect();
        Self { shared, threads, size }
    }

    /// A pool with as many threads as the machine has for this process.
    pub fn for_machine() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// Threads a launch can run on.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Runs a launch of `blocks` blocks to its end.
    pub(crate) fn run(&self, launch: &Launch<'_>, blocks: u64) {
        let helpers = (self.size as u64 - 1).min(blocks.saturating_sub(1)) as usize;
        let size = self.size as u32;
        if helpers == 0 {
            launch.work(size);
            return;
        }
        let identity = {
            let mut queue = self.shared.queue.lock();
            queue.next_launch += 1;
            let identity = queue.next_launch;
            let work = std::ptr::from_ref(launch).cast();
            queue.invitations.extend(std::iter::repeat_n(Invitation { launch: identity, work }, helpers));
            identity
        };
        for _ in 0..helpers {
            self.shared.invited.notify_one();
        }
        launch.work(size);
        let mut queue = self.shared.queue.lock();
        queue.invitations.retain(|invitation| invitation.launch != identity);
        while queue.helping.iter().any(|(launch, _)| *launch == identity) {
            self.shared.left.wait(&mut queue);
        }
    }
}

impl PoolShared {
    fn help(&self, size: u32) {
        block_signals();
        let mut queue = self.queue.lock();
        loop {
            if queue.shutdown {
                return;
            }
            let Some(invitation) = queue.invitations.pop_front() else {
                self.invited.wait(&mut queue);
                continue;
            };
            match queue.helping.iter_mut().find(|(launch, _)| *launch == invitation.launch) {
                Some((_, helpers)) => *helpers += 1,
                None => queue.helping.push((invitation.launch, 1)),
            }
            drop(queue);
            // SAFETY: `Pool::run` waits for every helper that is listed before the launch goes away.
            unsafe { (*invitation.work).work(size) };
            queue = self.queue.lock();
            if let Some(index) = queue.helping.iter().position(|(launch, _)| *launch == invitation.launch) {
                queue.helping[index].1 -= 1;
                if queue.helping[index].1 == 0 {
                    queue.helping.swap_remove(index);
                    self.left.notify_all();
                }
            }
        }
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

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().shutdown = true;
        self.shared.invited.notify_all();
        for thread in self.threads.drain(..) {
            // A thread of the pool that panicked has been reported by the panic itself.
            let _ = thread.join();
        }
    }
}
