//! Who sees to it that something has become ready?
//!
//! Whoever has made it ready, as a rule. While the receiving thread looks it is that one: it issues a copy in 4 us, which takes the threads
//! that receive bulk data 5 to 14, since the driver's memory is in its caches and not in theirs, and these go on receiving. Copies to a
//! device over TCP are a tenth faster by that (1 to 16 MiB, a virtual machine with an H200 and 16 cores, 2026-11-23).

use std::sync::atomic::{AtomicBool, Ordering};

/// What keeps it from being forgotten that something has become ready.
#[derive(Debug, Default)]
pub(super) struct Wakeup {
    /// Something has, and nobody has begun to see to it.
    woken: AtomicBool,
    /// The receiving thread looks whether something has.
    is_looked_for: AtomicBool,
}

impl Wakeup {
    /// Something has become ready. Whether the caller has to see to it.
    pub fn wake(&self) -> bool {
        self.woken.store(true, Ordering::SeqCst);
        !self.is_looked_for.load(Ordering::SeqCst)
    }

    /// Whether something has become ready.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// The same, for whoever sees to it now.
    pub fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// The receiving thread looks from here on.
    pub fn begin_to_look(&self) {
        self.is_looked_for.store(true, Ordering::SeqCst);
    }

    /// It does not any more. Whether it has to see to something once more.
    pub fn end_to_look(&self) -> bool {
        // Either this is seen by whoever makes something ready, or that is seen here.
        self.is_looked_for.store(false, Ordering::SeqCst);
        self.is_woken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::atomic::AtomicU32;

    /// What is ready, and who sees to it, as in the engine.
    #[derive(Default)]
    struct Work {
        attention: Wakeup,
        ready: AtomicU32,
        done: Mutex<u32>,
    }

    impl Work {
        fn see_to_it(&self) {
            while self.attention.is_woken() {
                let Some(mut done) = self.done.try_lock() else { return };
                while self.attention.take() {
                    *done += self.ready.swap(0, Ordering::SeqCst);
                }
            }
        }
    }

    #[test]
    fn nothing_is_forgotten_whenever_the_receiving_thread_begins_and_ends_to_look() {
        const ROUNDS: u32 = if cfg!(miri) { 50 } else { 20_000 };
        const THREADS: u32 = 3;
        let work = Work::default();
        std::thread::scope(|scope| {
            let others = [(); THREADS as usize].map(|()| {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        work.ready.fetch_add(1, Ordering::SeqCst);
                        if work.attention.wake() {
                            work.see_to_it();
                        }
                    }
                })
            });
            let mut looks = 0_usize;
            while others.iter().any(|other| !other.is_finished()) {
                work.attention.begin_to_look();
                (0..looks % 50).for_each(|_| work.see_to_it());
                if work.attention.end_to_look() {
                    work.see_to_it();
                }
                looks += 1;
            }
        });
        assert_eq!(*work.done.lock(), THREADS * ROUNDS);
        assert!(!work.attention.is_woken());
    }

    #[test]
    fn who_makes_something_ready_leaves_it_to_the_one_who_looks() {
        let attention = Wakeup::default();
        assert!(attention.wake() && attention.take() && !attention.take());
        attention.begin_to_look();
        assert!(!attention.wake());
        assert!(attention.end_to_look() && attention.take() && !attention.end_to_look());
    }
}
