//! A thread that looks for the end of work while it has nothing else to do, so that nobody has to be woken
//! for it.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;

thread_local! {
    /// What the thread's [`Watch`] is over; null while it has none, and while it sleeps.
    static WATCHED: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Work whose end can be noticed by looking.
pub trait Watched {
    /// Whether somebody waits for work whose end a look would notice.
    fn is_waited_for(&self) -> bool;
    /// Calls the completions of work that is done.
    fn look(&self);
    /// Wakes who else notices the end of what threads with a watch have asked for, if they have asked for
    /// something.
    fn hand_on(&self);
}

/// Whether the calling thread looks for the end of what it asks for, or sees to it that others do.
pub fn is_ours<W: Watched>(watched: &W) -> bool {
    ptr::eq(WATCHED.get(), ptr::from_ref(watched).cast())
}

/// The calling thread's watch over the work of a GPU. As long as it has one, nobody is woken for what the
/// thread itself asks to be told of: it looks, or hands on what is left. It cannot keep that to itself by
/// mistake: it sleeps in [`Watch::asleep`], which hands on, as dropping the watch does.
pub struct Watch<'a> {
    watched: Option<&'a dyn Watched>,
    /// It is this thread's, and no other's.
    of_thread: PhantomData<*const ()>,
}

impl<'a> Watch<'a> {
    /// The calling thread's only watch, over this work.
    pub fn over(watched: &'a dyn Watched) -> Self {
        assert!(WATCHED.get().is_null(), "a thread has one watch");
        let watch = Self { watched: Some(watched), of_thread: PhantomData };
        watch.begin();
        watch
    }

    /// For work that tells its end by itself.
    pub fn over_nothing() -> Self {
        Self { watched: None, of_thread: PhantomData }
    }

    /// Whether somebody waits for work whose end [`Watch::look`] would notice.
    pub fn is_waited_for(&self) -> bool {
        self.watched.is_some_and(Watched::is_waited_for)
    }

    /// Calls the completions of work that is done.
    pub fn look(&self) {
        if let Some(watched) = self.watched {
            watched.look();
        }
    }

    /// To be called before the thread turns to something else that takes a while: whoever else can looks
    /// meanwhile for the end of what has been asked for so far.
    pub fn turn_away(&self) {
        if let Some(watched) = self.watched {
            watched.hand_on();
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
        if let Some(watched) = self.watched {
            WATCHED.set(ptr::from_ref(watched).cast());
        }
    }

    fn end(&self) {
        if let Some(watched) = self.watched {
            WATCHED.set(ptr::null());
            watched.hand_on();
        }
    }
}

impl Drop for Watch<'_> {
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

    impl Watched for Work {
        fn is_waited_for(&self) -> bool {
            true
        }

        fn look(&self) {}

        fn hand_on(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn work_is_handed_on_before_the_thread_sleeps_and_when_its_watch_ends() {
        let (work, other) = (Work::default(), Work::default());
        assert!(!is_ours(&work));
        let mut watch = Watch::over(&work);
        assert!(is_ours(&work) && !is_ours(&other) && watch.is_waited_for());
        watch.look();
        assert_eq!(work.0.get(), 0);
        watch.turn_away();
        assert_eq!((work.0.get(), is_ours(&work)), (1, true));
        let seen = watch.asleep(|| (work.0.get(), is_ours(&work)));
        assert_eq!((seen, work.0.get(), is_ours(&work)), ((2, false), 2, true));
        drop(watch);
        assert_eq!((work.0.get(), is_ours(&work), other.0.get()), (3, false, 0));
    }

    #[test]
    fn a_sleep_that_panics_leaves_no_watch_behind() {
        let work = Work::default();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Watch::over(&work).asleep(|| panic!("for the test"));
        }));
        assert!(outcome.is_err() && !is_ours(&work));
    }
}
