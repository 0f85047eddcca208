//! A thread that polls for the end of work while it has nothing else to do, so that no thread has to be woken
//! for it.

use causeway_sync::face::thread_local;
use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;

thread_local! {
    /// What the thread's [`IdlePoller`] is over; null while it has none, and while it sleeps. [`NOTHING`] is
    /// an address for those over nothing.
    static POLLED: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Its address stands for work that tells its end by itself.
static NOTHING: u8 = 0;

/// Work whose end can be noticed by polling.
pub trait Pollable {
    /// Whether somebody waits for work whose end a poll would notice.
    fn is_waited_for(&self) -> bool;
    /// Calls the completions of work that is done.
    fn poll(&self);
    /// Wakes who else notices the end of what threads with an idle poller have asked for, if they have asked
    /// for something.
    fn hand_on(&self);
}

/// Whether the calling thread polls for the end of what it asks for, or sees to it that others do.
pub fn is_ours<W: Pollable>(polled: &W) -> bool {
    POLLED.with(|current| ptr::eq(current.get(), ptr::from_ref(polled).cast()))
}

/// Whether the calling thread has an idle poller that does not sleep: then it must not wait for the end of
/// what it asks for, of which nobody else may tell.
pub fn is_awake() -> bool {
    POLLED.with(|current| !current.get().is_null())
}

/// What polls for the end of a GPU's work in the calling thread, while it is idle. As long as it has one,
/// nobody is woken for what the thread itself asks to be notified of: it polls, or hands on what is left. It
/// cannot keep that to itself by mistake: it sleeps in [`IdlePoller::asleep`], which hands on, as dropping
/// the poller does.
pub struct IdlePoller<'a> {
    polled: Option<&'a dyn Pollable>,
    /// It is this thread's, and no other's.
    of_thread: PhantomData<*const ()>,
}

impl<'a> IdlePoller<'a> {
    /// The calling thread's only idle poller, for this work.
    pub fn over(polled: &'a dyn Pollable) -> Self {
        Self::new(Some(polled))
    }

    /// For work that tells its end by itself.
    pub fn over_nothing() -> Self {
        Self::new(None)
    }

    fn new(polled: Option<&'a dyn Pollable>) -> Self {
        assert!(POLLED.with(Cell::get).is_null(), "a thread has one idle poller");
        let poller = Self { polled, of_thread: PhantomData };
        poller.begin();
        poller
    }

    /// Whether somebody waits for work whose end [`IdlePoller::poll`] would notice.
    pub fn is_waited_for(&self) -> bool {
        self.polled.is_some_and(Pollable::is_waited_for)
    }

    /// Calls the completions of work that is done.
    pub fn poll(&self) {
        if let Some(polled) = self.polled {
            polled.poll();
        }
    }

    /// To be called before the thread turns to something else that takes a while: whoever else can polls
    /// meanwhile for the end of what has been asked for so far.
    pub fn leave(&self) {
        if let Some(polled) = self.polled {
            polled.hand_on();
        }
    }

    /// Hands on what is left and runs `sleep`, in which the thread may sleep. For what the thread asks for in
    /// there others are woken.
    pub fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.end();
        let result = sleep();
        self.begin();
        result
    }

    fn begin(&self) {
        let address =
            self.polled.map_or(ptr::from_ref(&NOTHING).cast(), |polled| ptr::from_ref(polled).cast());
        POLLED.with(|current| current.set(address));
    }

    fn end(&self) {
        POLLED.with(|current| current.set(ptr::null()));
        if let Some(polled) = self.polled {
            polled.hand_on();
        }
    }
}

impl Drop for IdlePoller<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it has been handed on, and a byte for an address of its own.
    #[derive(Default)]
    struct Work(Cell<u32>);

    impl Pollable for Work {
        fn is_waited_for(&self) -> bool {
            true
        }

        fn poll(&self) {}

        fn hand_on(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn work_is_handed_on_before_the_thread_sleeps_and_when_its_poller_ends() {
        let (work, other) = (Work::default(), Work::default());
        assert!(!is_ours(&work));
        let mut poller = IdlePoller::over(&work);
        assert!(is_ours(&work) && !is_ours(&other) && poller.is_waited_for());
        poller.poll();
        assert_eq!(work.0.get(), 0);
        poller.leave();
        assert_eq!((work.0.get(), is_ours(&work)), (1, true));
        let seen = poller.asleep(|| (work.0.get(), is_ours(&work)));
        assert_eq!((seen, work.0.get(), is_ours(&work)), ((2, false), 2, true));
        drop(poller);
        assert_eq!((work.0.get(), is_ours(&work), other.0.get()), (3, false, 0));
    }

    #[test]
    fn a_sleep_that_panics_leaves_no_poller_behind() {
        let work = Work::default();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            IdlePoller::over(&work).asleep(|| panic!("for the test"));
        }));
        assert!(outcome.is_err() && !is_ours(&work));
    }
}
