//! The face of a test by loom or shuttle. What the kernel does (futex, eventfd, poll) is modelled by a lock and a condition
//! variable.

use std::io;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

pub use checker::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub use checker::thread::{JoinHandle, Thread, current, park, yield_now};
pub use checker::thread_local;

/// The checker's lock with the signatures of `parking_lot`.
#[derive(Debug, Default)]
pub struct Mutex<T>(checker::sync::Mutex<T>);

/// Its guard, which a [`Condvar`] and [`unlocked`](Self::unlocked) give up for a while.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    held: Option<checker::sync::MutexGuard<'a, T>>,
}

/// The checker's condition variable with the signatures of `parking_lot`.
#[derive(Debug, Default)]
pub struct Condvar(checker::sync::Condvar);

const HELD: &str = "the guard is given up inside of a wait or for a while alone";
const WHOLE: &str = "no test panics with a lock held";

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self(checker::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, held: Some(self.0.lock().expect(WHOLE)) }
    }

    /// The lock, unless somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|held| MutexGuard { lock: self, held: Some(held) })
    }
}

impl<T> MutexGuard<'_, T> {
    /// Calls `work` without the lock.
    pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
        drop(guard.held.take());
        let result = work();
        guard.held = Some(guard.lock.0.lock().expect(WHOLE));
        result
    }

    /// Lets those have the lock who wait for it.
    pub fn bump(guard: &mut Self) {
        Self::unlocked(guard, yield_now);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

impl Condvar {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the lock up until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.0.wait(held).expect(WHOLE));
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

/// Sleeps on `changed`, until that is notified or, with shuttle, for a moment; whether it was notified.
#[cfg(loom)]
pub(crate) fn wait_for<T>(changed: &Condvar, guard: &mut MutexGuard<'_, T>, _: Duration) -> bool {
    changed.wait(guard);
    true
}

/// Sleeps on `changed`, until that is notified or, with shuttle, for a moment; whether it was notified.
#[cfg(shuttle)]
pub(crate) fn wait_for<T>(_: &Condvar, guard: &mut MutexGuard<'_, T>, _: Duration) -> bool {
    drop(guard.held.take());
    yield_now();
    guard.held = Some(guard.lock.0.lock().expect(WHOLE));
    by_chance()
}

#[cfg(shuttle)]
fn by_chance() -> bool {
    use shuttle::rand::Rng as _;
    shuttle::rand::thread_rng().r#gen()
}

/// Says how much time has passed.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch;

impl Stopwatch {
    /// It begins now.
    #[expect(clippy::new_without_default, reason = "that of a program has no default")]
    pub fn new() -> Self {
        Self
    }

    /// None with loom; with shuttle none or an hour, by chance.
    pub fn elapsed(self) -> Duration {
        #[cfg(shuttle)]
        if by_chance() {
            return Duration::from_secs(3600);
        }
        Duration::ZERO
    }
}

/// Passes a moment without sleeping.
pub fn spin() {
    yield_now();
}

/// Starts a thread of this name.
///
/// # Errors
/// When the system makes no more threads.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    checker::thread::Builder::new().name(name.to_owned()).spawn(body)
}

checker::lazy_static! {
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

    pub(crate) fn clear(&self) -> bool {
        let _queue = SLEEPERS.0.lock();
        self.0.store(false, core::sync::atomic::Ordering::Relaxed);
        true
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
