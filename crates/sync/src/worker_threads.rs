//! Worker threads: a fork-join pool, whose threads join others in a piece of work and leave it before its
//! end, as OpenMP's teams do; and a thread that is started when it is first needed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::face::{JoinHandle, Mutex, spawn};
use crate::monitor::{Latch, Monitor};
use crate::queue::{Receiver, Sender, queue};

/// Threads that help whoever has work.
///
/// Who has work does it, too, so that work for one thread never changes threads.
#[derive(Debug)]
pub struct ForkJoinPool {
    queue: Arc<Monitor<Queue>>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    invitations: VecDeque<Invitation>,
    is_closed: bool,
}

type Work<'a> = dyn Fn() + Sync + 'a;

/// Asks one thread to help.
#[derive(Debug, Clone)]
struct Invitation {
    work: *const Work<'static>,
    /// Opens when each invitation to the same work was followed to its end or taken back.
    answered: Arc<Latch>,
}

// SAFETY: the work is `Sync`, and `ForkJoinPool::run` keeps it alive until all invitations are answered.
unsafe impl Send for Invitation {}

impl ForkJoinPool {
    /// A pool of so many helpers named `{name}-{number}`, each of which calls `begin` first.
    ///
    /// # Errors
    /// When the system makes no more threads; those that were made end.
    pub fn new(helpers: usize, name: &str, begin: fn()) -> io::Result<Self> {
        let mut pool = Self { queue: Arc::new(Monitor::new(Queue::default())), helpers: Vec::new() };
        for number in 1..=helpers {
            let queue = Arc::clone(&pool.queue);
            let helper = spawn(&format!("{name}-{number}"), move || {
                begin();
                help(&queue);
            })?;
            pool.helpers.push(helper);
        }
        Ok(pool)
    }

    /// How many helpers there are.
    pub fn helpers(&self) -> usize {
        self.helpers.len()
    }

    /// Has `work` called by the calling thread and by up to `helpers` others that come before this one has returned from
    /// it, and returns when all have. The calls share among themselves what there is to do.
    pub fn run(&self, helpers: usize, work: &Work<'_>) {
        let helpers = helpers.min(self.helpers.len());
        if helpers == 0 {
            return work();
        }
        // SAFETY: a pointer of the same layout. Nobody uses it once all invitations are answered, before which this
        // function does not return.
        let shared = unsafe { core::mem::transmute::<*const Work<'_>, *const Work<'static>>(work) };
        let answered = Arc::new(Latch::new(helpers));
        let invitation = Invitation { work: shared, answered: Arc::clone(&answered) };
        self.queue.change_for(helpers, |queue| {
            queue.invitations.extend(std::iter::repeat_n(invitation, helpers));
        });
        // Dropped behind the work, also where that panics.
        let _withdraw = Withdraw { queue: &self.queue, answered: &answered };
        work();
    }
}

/// Takes back the invitations that nobody has followed, and waits for who has followed one.
struct Withdraw<'a> {
    queue: &'a Monitor<Queue>,
    answered: &'a Arc<Latch>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let withdrawn = {
            let invitations = &mut self.queue.lock().invitations;
            let before = invitations.len();
            invitations.retain(|invitation| !Arc::ptr_eq(&invitation.answered, self.answered));
            before - invitations.len()
        };
        self.answered.done(withdrawn);
        self.answered.wait();
    }
}

/// Follows invitations until the queue is closed.
fn help(queue: &Monitor<Queue>) {
    /// Says that an invitation was followed, also where the work panics.
    struct Answer(Arc<Latch>);

    impl Drop for Answer {
        fn drop(&mut self) {
            self.0.done(1);
        }
    }

    loop {
        let next = queue.wait(|queue| match queue.invitations.pop_front() {
            None if queue.is_closed => Some(None),
            None => None,
            invitation => Some(invitation),
        });
        let Some(Invitation { work, answered }) = next else { return };
        let _answer = Answer(answered);
        // SAFETY: `ForkJoinPool::run` waits for the answer before the work goes away.
        unsafe { (*work)() };
    }
}

impl Drop for ForkJoinPool {
    fn drop(&mut self) {
        self.queue.change(|queue| queue.is_closed = true);
        for helper in self.helpers.drain(..) {
            // One that panicked has been reported by the panic itself.
            let _ = helper.join();
        }
    }
}

/// A thread that is started when it is first needed. Where the system has none to give, whoever needs it is told before
/// anything depends on it, and the next one tries again.
pub struct LazyThread<T>(Mutex<Option<Sender<T>>>);

impl<T> LazyThread<T> {
    /// The thread is not needed yet.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The thread is not needed yet.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Makes sure that the thread is there; `start` starts one that does what comes in the queue.
    ///
    /// # Errors
    /// When the system makes no more threads.
    pub fn ensure(&self, start: impl FnOnce(Receiver<T>) -> io::Result<JoinHandle<()>>) -> io::Result<()> {
        let mut sender = self.0.lock();
        if sender.is_none() {
            let (new, receiver) = queue();
            start(receiver)?;
            *sender = Some(new);
        }
        Ok(())
    }

    /// Forgets the thread in a forked child, in which it does not exist; the next one that needs it starts
    /// another. What it was to do is not done.
    pub fn forget(&self) {
        // Not dropped: its destructor would wait for a lock that the thread may have held.
        core::mem::forget(self.0.lock().take());
    }

    /// Gives the thread something to do.
    ///
    /// # Errors
    /// What it was to do, where there is no thread.
    pub fn send(&self, item: T) -> Result<(), T> {
        match &*self.0.lock() {
            Some(sender) => sender.send(item),
            None => Err(item),
        }
    }
}

impl<T> Default for LazyThread<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::threads;

    #[test]
    fn a_thread_that_cannot_be_started_is_tried_again() {
        let thread = LazyThread::new();
        assert_eq!(thread.send(1), Err(1));
        let refusal = thread.ensure(|_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(refusal.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(thread.send(2), Err(2), "nothing waits for a thread that is not there");
        let (done, results) = mpsc::channel();
        for _ in 0..2 {
            let done = done.clone();
            let start = |queue: Receiver<i32>| {
                threads::spawn("lazy", move || {
                    while let Some(item) = queue.receive() {
                        done.send(item).unwrap();
                    }
                })
            };
            thread.ensure(start).unwrap();
        }
        drop(done);
        assert_eq!((thread.send(3), results.recv()), (Ok(()), Ok(3)));
        drop(thread);
        assert!(results.recv().is_err(), "one thread was started, and has ended");
    }
}
