//! Ranked locks: mutexes, read-write locks and monitors that check the lock order in debug builds.
//!
//! A crate lists the `ranks!` of its locks in the order in which a thread may take them. A thread that holds a
//! lock takes only locks that stand below it in the list, so no two threads can wait for each other. Debug builds check it
//! each time a lock is taken and panic at the wrong one; release builds keep nothing of it: a rank is a type without a size.
//! A lock may not be taken while another one of the same rank is held either: of two heaps, say, neither comes first. So a
//! rank that many locks have, the last one of a list, says of each that no other is taken while it is held.
//!
//! [`Mutex`] is `parking_lot`'s. [`FutexMutex`] is the standard library's, which knows nothing of the threads that wait for
//! it: for libraries that other people's programs load, whose forked children take locks for which threads of the parent
//! were waiting. It ignores that a thread has panicked.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use crate::face;

/// What a lock guards, and with it where the lock stands in the order.
pub trait Rank {
    /// The list: locks of a crate that calls another one (0) come before those of the other one (1 and more).
    const TIER: usize;
    /// The index in the list: a thread takes locks with growing numbers.
    const NUMBER: u32;
    /// The names of all ranks of the list, in order.
    const NAMES: &'static [&'static str];
}

/// How many tiers there are.
pub const TIERS: usize = 4;

/// Declares the ranks of a crate's locks, one type each, from the first taken to the last.
#[macro_export]
macro_rules! ranks {
    (tier $tier:literal; $($(#[$text:meta])* $name:ident),* $(,)?) => {
        enum Number { $($name),* }

        $(
            $(#[$text])*
            #[derive(Debug)]
            pub enum $name {}

            impl $crate::ranked::Rank for $name {
                const TIER: usize = $tier;
                const NUMBER: u32 = Number::$name as u32;
                const NAMES: &'static [&'static str] = NAMES;
            }
        )*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
        // A thread has a bit for each.
        const _: () = assert!(NAMES.len() <= 128 && $tier < $crate::ranked::TIERS);
    };
}

/// A mutex with a rank.
#[derive(Debug)]
pub struct Mutex<R, T> {
    lock: face::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> Mutex<R, T> {
    /// A mutex around `value`.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new(value: T) -> Self {
        Self { lock: face::Mutex::new(value), rank: PhantomData }
    }

    /// A mutex around `value`.
    #[cfg(any(loom, shuttle))]
    pub fn new(value: T) -> Self {
        Self { lock: face::Mutex::new(value), rank: PhantomData }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.lock.lock(), held }
    }

    /// Takes the lock if it is free, without waiting, so in any order.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, R, T>> {
        let guard = self.lock.try_lock()?;
        Some(Guard { guard, held: Held::out_of_order() })
    }
}

#[cfg(not(any(loom, shuttle)))]
impl<R: Rank, T> Mutex<R, T> {
    /// Takes the lock if it becomes free within `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, R, T>> {
        let held = Held::in_order();
        Some(Guard { guard: self.lock.try_lock_for(timeout)?, held })
    }

    /// The value of a mutex that only the caller has.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// The value, without the mutex.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
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
    pub fn read(&self) -> Guard<R, parking_lot::RwLockReadGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.read(), held }
    }

    /// Takes the lock for writing, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> Guard<R, parking_lot::RwLockWriteGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.write(), held }
    }
}

impl<R: Rank, T: Default> Default for RwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// The standard library's mutex, with a rank.
#[derive(Debug)]
pub struct FutexMutex<R, T> {
    lock: std::sync::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

/// A [`FutexMutex`] that is held.
pub type FutexMutexGuard<'a, R, T> = Guard<R, std::sync::MutexGuard<'a, T>>;

impl<R: Rank, T> FutexMutex<R, T> {
    /// A mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: std::sync::Mutex::new(value), rank: PhantomData }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> FutexMutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.lock.lock().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Takes the lock if it is free, in any order, as [`Mutex::try_lock`].
    #[inline]
    pub fn try_lock(&self) -> Option<FutexMutexGuard<'_, R, T>> {
        let guard = match self.lock.try_lock() {
            Ok(guard) => guard,
            Err(std::sync::TryLockError::Poisoned(error)) => error.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(Guard { guard, held: Held::out_of_order() })
    }

    /// The value of a mutex that only the caller has.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Rank, T: Default> Default for FutexMutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// The standard library's read-write lock, with a rank.
#[derive(Debug)]
pub struct FutexRwLock<R, T> {
    lock: std::sync::RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> FutexRwLock<R, T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { lock: std::sync::RwLock::new(value), rank: PhantomData }
    }

    /// Takes the lock for reading, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> Guard<R, std::sync::RwLockReadGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.read().unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Takes the lock for writing, waiting for it.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> Guard<R, std::sync::RwLockWriteGuard<'_, T>> {
        let held = Held::in_order();
        Guard { guard: self.lock.write().unwrap_or_else(PoisonError::into_inner), held }
    }
}

impl<R: Rank, T: Default> Default for FutexRwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// State with a rank that threads wait for. While one waits the rank stays taken: the thread does nothing
/// meanwhile.
#[derive(Debug)]
pub struct Monitor<R, T> {
    monitor: crate::monitor::Monitor<T>,
    rank: PhantomData<fn() -> R>,
}

impl<R: Rank, T> Monitor<R, T> {
    /// State without waiters.
    pub fn new(state: T) -> Self {
        Self { monitor: crate::monitor::Monitor::new(state), rank: PhantomData }
    }

    /// The state, to look at it or to change what no thread waits for.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, R, T> {
        let held = Held::in_order();
        Guard { guard: self.monitor.lock(), held }
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

    /// Sleeps until `find` finds what it looks for, at most for `timeout`; nothing when it has not by then.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_for<U>(&self, timeout: Duration, find: impl FnMut(&mut T) -> Option<U>) -> Option<U> {
        let _held = Held::<R>::in_order();
        self.monitor.wait_for(timeout, find)
    }
}

impl<R: Rank, T: Default> Default for Monitor<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A mutex that is held.
pub type MutexGuard<'a, R, T> = Guard<R, face::MutexGuard<'a, T>>;

/// A lock that is held.
#[derive(Debug)]
pub struct Guard<R: Rank, G> {
    // The lock is released before its rank.
    guard: G,
    held: Held<R>,
}

impl<R: Rank, G> Guard<R, G> {
    /// The guard of the lock itself, for a condition variable. The rank stays taken while the thread sleeps there: it does
    /// nothing meanwhile.
    #[inline]
    pub fn inner(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<R: Rank, T> MutexGuard<'_, R, T> {
    /// Calls `work` without the lock.
    pub fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        guard.held.release();
        let result = face::MutexGuard::unlocked(&mut guard.guard, work);
        guard.held.retake();
        result
    }
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
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    checked::must_be_free::<R>();
}

/// The bit of a rank among the ranks of its list.
pub const fn bit<R: Rank>() -> u128 {
    1 << R::NUMBER
}

/// Says that a thread which waits here for a peer holds no lock of the first tier but those of `allowed` ranks
/// ([`bit`]s), and none of any other tier. Debug builds panic where it does.
#[inline]
#[cfg_attr(debug_assertions, track_caller)]
pub fn must_hold_none_but(allowed: u128) {
    #[cfg(all(debug_assertions, not(any(loom, shuttle))))]
    checked::must_hold_none_but(allowed);
    let _ = allowed;
}

/// That the calling thread holds a lock of the rank. Guards are not sent to other threads, so this is not
/// either.
#[derive(Debug)]
struct Held<R: Rank>(PhantomData<(R, *const ())>);

// A test by loom or shuttle has many threads of its own in one thread of the system.
#[cfg(any(not(debug_assertions), loom, shuttle))]
impl<R: Rank> Held<R> {
    #[inline]
    fn in_order() -> Self {
        Self(PhantomData)
    }

    #[inline]
    fn out_of_order() -> Self {
        Self(PhantomData)
    }

    #[inline]
    fn release(&self) {}

    #[inline]
    fn retake(&self) {}
}

#[cfg(all(debug_assertions, not(any(loom, shuttle))))]
mod checked {
    use crate::ranked::{Held, Rank, TIERS};
    use core::cell::Cell;
    use core::marker::PhantomData;

    thread_local! {
        /// A bit for each rank of which the calling thread holds a lock, and the names of the ranks.
        static HELD: Cell<[(u128, &'static [&'static str]); TIERS]> = const { Cell::new([(0, &[]); TIERS]) };
    }

    fn name<R: Rank>() -> &'static str {
        R::NAMES[R::NUMBER as usize]
    }

    fn change<R: Rank>(change: impl FnOnce(u128) -> u128) {
        let mut held = HELD.get();
        held[R::TIER] = (change(held[R::TIER].0), R::NAMES);
        HELD.set(held);
    }

    #[track_caller]
    pub(super) fn must_be_free<R: Rank>() {
        assert!(
            HELD.get()[R::TIER].0 & 1 << R::NUMBER == 0,
            "a peer is waited for by a thread that holds the lock of {}",
            name::<R>()
        );
    }

    #[track_caller]
    pub(super) fn must_hold_none_but(allowed: u128) {
        for (tier, (held, names)) in HELD.get().into_iter().enumerate() {
            let held = if tier == 0 { held & !allowed } else { held };
            assert!(
                held == 0,
                "a peer is waited for by a thread that holds the lock of {}",
                names[127 - held.leading_zeros() as usize]
            );
        }
    }

    impl<R: Rank> Held<R> {
        #[track_caller]
        pub(super) fn in_order() -> Self {
            for (tier, (held, names)) in HELD.get().into_iter().enumerate().skip(R::TIER) {
                let newest = 128 - held.leading_zeros();
                let last = if tier == R::TIER { R::NUMBER } else { 0 };
                assert!(
                    newest <= last,
                    "the lock of {} is asked for by a thread that holds that of {}: see the order in locks.rs",
                    name::<R>(),
                    names[newest as usize - 1],
                );
            }
            Self::out_of_order()
        }

        pub(super) fn out_of_order() -> Self {
            let held = Self(PhantomData);
            held.retake();
            held
        }

        pub(super) fn retake(&self) {
            change::<R>(|held| held | 1 << R::NUMBER);
        }

        pub(super) fn release(&self) {
            change::<R>(|held| held & !(1 << R::NUMBER));
        }
    }

    impl<R: Rank> Drop for Held<R> {
        fn drop(&mut self) {
            self.release();
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
#[cfg(test)]
mod tests {
    use super::*;

    mod rank {
        ranks! {
            tier 0;
            Outer,
            Inner,
        }
    }

    mod lower {
        ranks! {
            tier 1;
            Leaf,
        }
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
    fn taking_an_outer_lock_under_an_inner_one_panics() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Inner is asked for by a thread that holds that of Inner")]
    fn taking_two_locks_of_one_rank_panics() {
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
    fn waiting_for_a_peer_under_a_lock_that_is_not_allowed_panics() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        must_hold_none_but(0);
        let _outer = outer.lock();
        must_hold_none_but(bit::<rank::Outer>());
        let _inner = inner.lock();
        must_hold_none_but(bit::<rank::Outer>());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "a peer is waited for by a thread that holds the lock of Leaf")]
    fn waiting_for_a_peer_under_a_lock_of_a_lower_tier_panics() {
        let leaf = FutexMutex::<lower::Leaf, _>::new(());
        let _leaf = leaf.lock();
        must_hold_none_but(u128::MAX);
    }

    #[test]
    fn a_lock_that_is_not_waited_for_may_be_taken_in_any_order() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(()), Mutex::<rank::Inner, _>::new(()));
        let inner = inner.lock();
        assert!(outer.try_lock().is_some());
        drop(inner);
        drop(outer.lock());
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "the lock of Outer is asked for by a thread that holds that of Leaf")]
    fn taking_a_lock_of_an_upper_tier_panics() {
        let (outer, leaf) = (Mutex::<rank::Outer, _>::new(()), FutexMutex::<lower::Leaf, _>::new(()));
        drop(outer.lock());
        let _leaf = leaf.lock();
        let _outer = outer.lock();
    }

    #[test]
    fn lower_tier_locks_are_taken_last() {
        let (inner, leaf) = (FutexMutex::<rank::Inner, _>::new(()), FutexRwLock::<lower::Leaf, _>::new(1));
        let inner = inner.lock();
        assert_eq!(*leaf.read(), 1);
        *leaf.write() += 1;
        drop(inner);
        assert_eq!(*leaf.read(), 2);
    }

    #[test]
    fn unlocked_mutexes_have_no_rank_until_they_are_retaken() {
        let (outer, inner) = (Mutex::<rank::Outer, _>::new(1), Mutex::<rank::Inner, _>::new(2));
        let mut guard = inner.lock();
        MutexGuard::unlocked(&mut guard, || *outer.lock() += 1);
        assert_eq!((*guard, *outer.try_lock().unwrap()), (2, 2));
        let found = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| drop(outer.lock())));
        assert_eq!(found.is_err(), cfg!(debug_assertions));
    }

    #[test]
    fn mutexes_stay_usable_after_a_panic() {
        let mutex = FutexMutex::<rank::Inner, _>::new(1);
        let panics = || {
            let _held = mutex.lock();
            panic!("a panic of a test");
        };
        assert!(std::panic::catch_unwind(panics).is_err());
        *mutex.lock() += 1;
        assert_eq!(mutex.try_lock().map(|value| *value), Some(2));
    }
}
