//! Threads that join others in a piece of work and leave it before its end is told, as OpenMP's teams do.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::face::{JoinHandle, spawn};
use crate::latch::Latch;
use crate::monitor::Monitor;

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
