//! Ranked locks: mutex, read-write lock and monitor that check the lock order in debug builds.

use super::ranks::Rank;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

/// A mutex with a rank.
#[derive(Debug)]
pub struct Mutex<R, T> {
    lock: parking_lot::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> Mutex<R, T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: parking_lot::Mutex::new(value), rank: PhantomData }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.lock.lock(), _held: held }
    }

    /// Takes the lock if nobody has it. Whoever does not wait holds up nobody, so the order does not matter
    /// here.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, R, T>> {
        let guard = self.lock.try_lock()?;
        Some(Guard { guard, _held: Held::out_of_order() })
    }
}

impl<R: Rank, T: Default> Default for Mutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A lock with a rank that several may hold who only read.
#[derive(Debug)]
pub struct RwLock<R, T> {
    lock: parking_lot::RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> RwLock<R, T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: parking_lot::RwLock::new(value), rank: PhantomData }
    }

    /// Takes the lock for reading, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> Guard<R, RwLockReadGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.read(), _held: held }
    }

    /// Takes the lock for writing, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> Guard<R, RwLockWriteGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.write(), _held: held }
    }
}

impl<R: Rank, T: Default> Default for RwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// State with a rank that threads wait for. While one waits the rank stays taken: the thread does nothing
/// meanwhile.
pub struct Monitor<R, T> {
    monitor: causeway_sync::Monitor<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> Monitor<R, T> {
    /// State without waiters.
    pub fn new(state: T) -> Self {
        Self { monitor: causeway_sync::Monitor::new(state), rank: PhantomData }
    }

    /// The state, to look at it or to change what no thread waits for.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.monitor.lock(), _held: held }
    }

    /// Changes the state, and lets all who wait look at it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn change<U>(&self, change: impl FnOnce(&mut T) -> U) -> U {
        let _held = Held::<R>::in_order();
        self.monitor.change(change)
    }

    /// As [`change`](Self::change), for one of those who wait.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn change_for_one<U>(&self, change: impl FnOnce(&mut T) -> U) -> U {
        let _held = Held::<R>::in_order();
        self.monitor.change_for(1, change)
    }

    /// Sleeps until `find` finds what it looks for; it may take that out.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<U>(&self, find: impl FnMut(&mut T) -> Option<U>) -> U {
        let _held = Held::<R>::in_order();
        self.monitor.wait(find)
    }
}

impl<R: Rank, T: Default> Default for Monitor<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A mutex that is held.
pub type MutexGuard<'a, R, T> = Guard<R, parking_lot::MutexGuard<'a, T>>;

/// A lock that is held.
pub struct Guard<R: Rank, G> {
    // The lock is given back before its rank.
    guard: G,
    _held: Held<R>,
}

impl<R: Rank, G: Deref> Deref for Guard<R, G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<R: Rank, G: DerefMut> DerefMut for Guard<R, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Says that a thread which may wait here for a peer holds no lock of the rank. Debug builds panic where it
/// does.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn must_be_free<R: Rank>() {
    #[cfg(debug_assertions)]
    checked::must_be_free::<R>();
}

/// The same of the rank and all later ones.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn must_be_free_from<R: Rank>() {
    #[cfg(debug_assertions)]
    checked::must_be_free_from::<R>();
}

/// That the calling thread holds a lock of the rank. Guards are not sent to other threads, so this is not
/// either.
struct Held<R: Rank>(PhantomData<(R, *const ())>);

#[cfg(not(debug_assertions))]
impl<R: Rank> Held<R> {
    #[inline]
    fn in_order() -> Self {
        Self(PhantomData)
    }

    #[inline]
    fn out_of_order() -> Self {
        Self(PhantomData)
    }
}

#[cfg(debug_assertions)]
mod checked {
    use crate::locks::guards::Held;
    use crate::locks::ranks::Rank;
    use core::cell::Cell;
    use core::marker::PhantomData;

    thread_local! {
        /// A bit for each rank of which the calling thread holds a lock.
        static HELD: Cell<u128> = const { Cell::new(0) };
    }

    #[track_caller]
    pub(super) fn must_be_free<R: Rank>() {
        let name = R::NAMES[R::NUMBER as usize];
        assert!(
            HELD.get() & 1 << R::NUMBER == 0,
            "a peer is waited for by a thread that holds the lock of {name}"
        );
    }

    #[track_caller]
    pub(super) fn must_be_free_from<R: Rank>() {
        let held = HELD.get() >> R::NUMBER;
        assert!(
            held == 0,
            "a peer is waited for by a thread that holds the lock of {}",
            R::NAMES[(R::NUMBER + held.trailing_zeros()) as usize]
        );
    }

    impl<R: Rank> Held<R> {
        #[track_caller]
        pub(super) fn in_order() -> Self {
            let held = HELD.get();
            let newest = 128 - held.leading_zeros();
            assert!(
                newest <= R::NUMBER,
                "the lock of {} is asked for by a thread that holds that of {}: see the order in locks/ranks.rs",
                R::NAMES[R::NUMBER as usize],
                R::NAMES[newest as usize - 1],
            );
            Self::out_of_order()
        }

        pub(super) fn out_of_order() -> Self {
            HELD.set(HELD.get() | 1 << R::NUMBER);
            Self(PhantomData)
        }
    }

    impl<R: Rank> Drop for Held<R> {
        fn drop(&mut self) {
            HELD.set(HELD.get() & !(1 << R::NUMBER));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::ranks::ranks;

    ranks! {
        Outer,
        Inner,
    }

    #[test]
    fn locks_are_taken_downwards_and_again() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(1), RwLock::<rank::Inner, _>::new(2));
        for _ in 0..2 {
            let mut one = outer.lock();
            *one += *inner.read();
            *inner.write() += *one;
        }
        assert_eq!((*outer.lock(), *inner.read()), (8, 13));
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Outer is asked for by a thread that holds that of Inner")]
    fn a_lock_above_one_that_is_held_is_a_mistake() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Inner is asked for by a thread that holds that of Inner")]
    fn two_locks_of_one_rank_are_a_mistake() {
        let (one, other) = (Mutex::<rank::Inner, _>::new(()), RwLock::<rank::Inner, _>::new(()));
        let _one = one.lock();
        let _other = other.read();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a peer is waited for by a thread that holds the lock of Inner")]
    fn waiting_for_a_peer_under_a_memory_lock_panics() {
        let inner = Mutex::<rank::Inner, _>::new(());
        must_be_free::<rank::Outer>();
        let _inner = inner.lock();
        must_be_free::<rank::Inner>();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a peer is waited for by a thread that holds the lock of Inner")]
    fn waiting_for_a_peer_under_a_later_lock_panics() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let held = outer.lock();
        must_be_free_from::<rank::Inner>();
        drop(held);
        let _inner = inner.lock();
        must_be_free_from::<rank::Outer>();
    }

    #[test]
    fn a_lock_that_is_not_waited_for_may_be_taken_in_any_order() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let inner = inner.lock();
        assert!(outer.try_lock().is_some());
        drop(inner);
        drop(outer.lock());
    }
}
