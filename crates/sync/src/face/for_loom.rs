//! The face of a test by loom. What the kernel does (futex, eventfd, poll) is modelled by a lock and a condition variable.

use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use loom::thread::{Thread, current, park};

/// Loom's lock with the signatures of `parking_lot`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// Its guard, which a [`Condvar`] gives up for a while.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

/// Loom's condition variable with the signatures of `parking_lot`.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

const HELD: &str = "the guard is given up inside of a wait alone";

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("no test panics with a lock held")))
    }

    /// The lock, unless somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

impl Condvar {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the lock up until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect(HELD);
        guard.0 = Some(self.0.wait(held).expect("no test panics with a lock held"));
    }

    /// Wakes one of those that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

pub(crate) fn wait_for<T>(changed: &Condvar, guard: &mut MutexGuard<'_, T>, _: Duration) -> bool {
    changed.wait(guard);
    true
}

loom::lazy_static! {
    /// The kernel's queue of sleepers, of all words.
    static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _: Option<Duration>) {
    let mut queue = SLEEPERS.0.lock();
    if word.load(core::sync::atomic::Ordering::Relaxed) == expected {
        SLEEPERS.1.wait(&mut queue);
    }
}

pub(crate) fn futex_wake(_: &AtomicU32) {
    let _queue = SLEEPERS.0.lock();
    SLEEPERS.1.notify_all();
}

/// What a thread can sleep on in `poll`.
pub type Readable<'a> = &'a Event;

/// A model of an eventfd.
#[derive(Debug)]
pub struct Event(AtomicBool);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(AtomicBool::new(false)))
    }

    pub(crate) fn readable(&self) -> Readable<'_> {
        self
    }

    pub(crate) fn signal(&self) {
        let _queue = SLEEPERS.0.lock();
        self.0.store(true, core::sync::atomic::Ordering::Relaxed);
        SLEEPERS.1.notify_all();
    }

    pub(crate) fn clear(&self) {
        let _queue = SLEEPERS.0.lock();
        self.0.store(false, core::sync::atomic::Ordering::Relaxed);
    }
}

pub(crate) fn poll_either(waited: [Readable<'_>; 2], _: Duration) -> io::Result<[bool; 2]> {
    let mut queue = SLEEPERS.0.lock();
    loop {
        let ready = waited.map(|event| event.0.load(core::sync::atomic::Ordering::Relaxed));
        if ready != [false; 2] {
            return Ok(ready);
        }
        SLEEPERS.1.wait(&mut queue);
    }
}
