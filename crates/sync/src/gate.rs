//! Gate: many threads pass it at almost no cost, and one closes it and waits for those that are inside.
//!
//! It is for what is done once in a long time and needs all threads at rest, such as a fork of the process:
//! the child has no other thread that would finish what it was at, or release a lock. A thread says that it
//! is inside by a store to a cache line of its own, without a fence: the thread that closes the gate has all
//! processors execute one (`membarrier`), so that either that thread sees the closed gate or the closing
//! thread sees it inside. Where the kernel has no such call the gate cannot be closed.

use core::fmt;
use core::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(any(not(miri), loom, shuttle))]
use crate::face::futex_wait;
#[cfg(any(loom, shuttle))]
use crate::face::futex_wake;
#[cfg(any(loom, shuttle, miri))]
use crate::face::yield_now;
use crate::face::{AtomicU32, Stopwatch, fence};

/// The slots of threads. Threads beyond that share the last slot.
#[cfg(not(any(loom, shuttle)))]
const SLOTS: usize = 1024;
#[cfg(any(loom, shuttle))]
const SLOTS: usize = 3;

/// The slot that several threads may have.
const SHARED: usize = SLOTS - 1;

/// How often a closed gate, or a thread inside, is looked at.
#[cfg(not(any(loom, shuttle, miri)))]
const CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// How often a thread is inside: it may enter again.
#[repr(align(64))]
#[derive(Debug)]
struct Slot(AtomicU32);

/// A gate. Threads [enter](Self::enter) it, until one [closes](Self::close) it.
#[derive(Debug)]
pub struct Gate {
    /// The slot of the thread that has closed it, counted from 1; 0 while it is open.
    closed_by: AtomicU32,
    slots: [Slot; SLOTS],
}

/// A thread is inside, as long as this lives.
#[derive(Debug)]
#[must_use = "dropping it leaves the gate"]
pub struct Section<'a> {
    gate: &'a Gate,
    slot: usize,
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.slot);
    }
}

/// Why a gate cannot be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotClosed {
    /// Another thread has closed it.
    Closed,
    /// The calling thread is inside.
    Nested,
    /// A thread does not leave it.
    Busy,
    /// The process has more threads than slots.
    TooManyThreads,
    /// The kernel has no barrier for all processors.
    NoBarrier,
}

impl fmt::Display for NotClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("another thread closes the gate at the same time"),
            Self::Nested => f.write_str("the calling thread is inside of the gate"),
            Self::Busy => f.write_str("another thread does not leave the gate"),
            Self::TooManyThreads => write!(f, "more than {SHARED} threads have passed the gate"),
            Self::NoBarrier => f.write_str("the kernel lacks membarrier (Linux 4.14 or later has it)"),
        }
    }
}

impl Gate {
    /// An open gate.
    #[cfg(not(any(loom, shuttle)))]
    #[expect(clippy::new_without_default, reason = "it is there for statics")]
    pub const fn new() -> Self {
        Self { closed_by: AtomicU32::new(0), slots: [const { Slot(AtomicU32::new(0)) }; SLOTS] }
    }

    /// An open gate.
    #[cfg(any(loom, shuttle))]
    pub fn new() -> Self {
        Self { closed_by: AtomicU32::new(0), slots: core::array::from_fn(|_| Slot(AtomicU32::new(0))) }
    }

    /// Enters; waits while another thread has closed the gate. A thread that is inside already, and the one
    /// that has closed it, do not wait.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub fn enter(&self) -> Section<'_> {
        self.enter_by(own_slot::get())
    }

    /// The same by this slot, which is the calling thread's.
    #[inline]
    pub(crate) fn enter_by(&self, slot: usize) -> Section<'_> {
        self.add(slot, 1);
        light_fence();
        // Acquires what the thread that has opened it has done.
        if self.closed_by.load(Ordering::Acquire) != 0 {
            self.wait(slot);
        }
        Section { gate: self, slot }
    }

    fn add(&self, slot: usize, change: u32) {
        let depth = &self.slots[slot].0;
        if slot == SHARED {
            depth.fetch_add(change, Ordering::Relaxed);
        } else {
            // One thread alone stores here.
            depth.store(depth.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
        }
    }

    #[inline]
    fn leave(&self, slot: usize) {
        // What was done inside is seen by whoever sees that it is over.
        let depth = &self.slots[slot].0;
        if slot == SHARED {
            depth.fetch_sub(1, Ordering::Release);
        } else {
            depth.store(depth.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Release);
        }
    }

    #[cold]
    fn wait(&self, slot: usize) {
        loop {
            let closed_by = self.closed_by.load(Ordering::Acquire);
            // Of those that share a slot none can be distinguished from the others.
            let is_own = slot != SHARED
                && (closed_by as usize == slot + 1 || self.slots[slot].0.load(Ordering::Relaxed) > 1);
            if closed_by == 0 || is_own {
                return;
            }
            self.leave(slot);
            sleep_while_closed(&self.closed_by, closed_by);
            self.add(slot, 1);
            light_fence();
        }
    }

    /// Closes it, and waits for those inside, at most for `timeout`.
    ///
    /// # Errors
    /// Why it stays as it was.
    #[cfg(not(any(loom, shuttle)))]
    pub fn close(&self, timeout: Duration) -> Result<(), NotClosed> {
        self.close_by(own_slot::get(), timeout)
    }

    /// The same by this slot, which is the calling thread's.
    pub(crate) fn close_by(&self, own: usize, timeout: Duration) -> Result<(), NotClosed> {
        if own == SHARED {
            return Err(NotClosed::TooManyThreads);
        }
        if self.slots[own].0.load(Ordering::Relaxed) != 0 {
            return Err(NotClosed::Nested);
        }
        let number = own as u32 + 1;
        let closed = self.closed_by.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
        closed.map_err(|_| NotClosed::Closed)?;
        if !heavy_fence() {
            self.open();
            return Err(NotClosed::NoBarrier);
        }
        let waited = Stopwatch::new();
        for (_, slot) in self.slots.iter().enumerate().filter(|(index, _)| *index != own) {
            // Acquires what was done inside.
            loop {
                let depth = slot.0.load(Ordering::Acquire);
                if depth == 0 {
                    break;
                }
                if waited.elapsed() >= timeout {
                    self.open();
                    return Err(NotClosed::Busy);
                }
                pause(&slot.0, depth);
            }
        }
        Ok(())
    }

    /// Whether the calling thread is inside.
    #[cfg(not(any(loom, shuttle)))]
    pub fn is_entered(&self) -> bool {
        own_slot::known().is_some_and(|slot| self.slots[slot].0.load(Ordering::Relaxed) != 0)
    }

    /// Opens it again, by the thread that has closed it.
    pub fn open(&self) {
        self.closed_by.store(0, Ordering::Release);
        // Those of a program look again by themselves.
        #[cfg(any(loom, shuttle))]
        futex_wake(&self.closed_by);
    }

    /// Forgets, in a forked child, the other threads, and opens it.
    #[cfg(not(any(loom, shuttle)))]
    pub fn after_fork(&self) {
        let own = own_slot::known();
        own_slot::forget_all_but(own);
        for (_, slot) in self.slots.iter().enumerate().filter(|(index, _)| Some(*index) != own) {
            slot.0.store(0, Ordering::Relaxed);
        }
        self.open();
    }
}

/// The fence of those that enter, which only the compiler heeds: [`heavy_fence`] makes up for it.
#[cfg(not(any(loom, shuttle, miri)))]
#[inline]
fn light_fence() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A model, or an interpreter, knows no barrier that one thread has others execute: it is a fence in both.
#[cfg(any(loom, shuttle, miri))]
fn light_fence() {
    fence(Ordering::SeqCst);
}

/// Has all running threads of the process execute a fence; whether the kernel does that.
#[cfg(not(any(loom, shuttle, miri)))]
fn heavy_fence() -> bool {
    const GLOBAL: libc::c_int = 1;
    const PRIVATE_EXPEDITED: libc::c_int = 8;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 16;
    let membarrier = |command: libc::c_int| {
        // SAFETY: the call takes numbers alone and changes no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    };
    // For this thread's own order, whatever the kernel promises for it.
    fence(Ordering::SeqCst);
    membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED) || membarrier(GLOBAL)
}

#[cfg(any(loom, shuttle, miri))]
fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    true
}

#[cfg(not(any(loom, shuttle)))]
use pause as sleep_while_closed;

#[cfg(any(loom, shuttle))]
fn sleep_while_closed(word: &AtomicU32, expected: u32) {
    futex_wait(word, expected, None);
}

/// Waits a little while `word` is `expected`. It is no call at which a cancelled thread ends.
#[cfg(not(any(loom, shuttle, miri)))]
fn pause(word: &AtomicU32, expected: u32) {
    futex_wait(word, expected, Some(CHECK_INTERVAL));
}

#[cfg(any(loom, shuttle, miri))]
fn pause(_: &AtomicU32, _: u32) {
    yield_now();
}

/// The slots of threads, one for all gates.
#[cfg(not(any(loom, shuttle)))]
mod own_slot {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicBool, Ordering};

    use crate::gate::{SHARED, SLOTS};

    static TAKEN: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

    /// No slot yet.
    const NONE: usize = usize::MAX;

    /// The slot of a thread, free again when that ends.
    struct Own(Cell<usize>);

    impl Drop for Own {
        fn drop(&mut self) {
            if self.0.get() < SHARED {
                // After everything that the thread has stored in the gates' slots.
                TAKEN[self.0.get()].store(false, Ordering::Release);
            }
        }
    }

    thread_local! {
        static OWN: Own = const { Own(Cell::new(NONE)) };
    }

    /// The calling thread's; at the very end of a thread the shared one.
    #[inline]
    pub(super) fn get() -> usize {
        let of_thread = |own: &Own| if own.0.get() == NONE { take(own) } else { own.0.get() };
        OWN.try_with(of_thread).unwrap_or(SHARED)
    }

    #[cold]
    fn take(own: &Own) -> usize {
        // Acquires what the thread that had it before has stored in the gates' slots.
        let is_free = |taken: &AtomicBool| {
            taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index = TAKEN[..SHARED].iter().position(is_free).unwrap_or(SHARED);
        own.0.set(index);
        index
    }

    /// The calling thread's, if it has one.
    pub(super) fn known() -> Option<usize> {
        OWN.try_with(|own| own.0.get()).ok().filter(|slot| *slot < SHARED)
    }

    /// Forgets which slots threads had, but for that of the only one left.
    pub(super) fn forget_all_but(own: Option<usize>) {
        for (_, taken) in TAKEN.iter().enumerate().filter(|(index, _)| Some(*index) != own) {
            taken.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn threads_wait_for_the_gate_and_the_gate_for_threads() {
        static GATE: Gate = Gate::new();
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel();
        let thread = std::thread::spawn(move || {
            let outer = GATE.enter();
            entered.send("outer").unwrap();
            may_leave.recv().unwrap();
            // To enter again does not wait, which would be for ever.
            drop(GATE.enter());
            assert!(GATE.is_entered());
            assert_eq!(GATE.close(LONG), Err(NotClosed::Nested));
            drop(outer);
            let _later = GATE.enter();
            entered.send("later").unwrap();
        });
        assert_eq!(has_entered.recv(), Ok("outer"));
        assert_eq!(GATE.close(Duration::from_millis(20)), Err(NotClosed::Busy));
        leave.send(()).unwrap();
        GATE.close(LONG).unwrap();
        assert_eq!(GATE.close(LONG), Err(NotClosed::Closed));
        // The closing thread itself passes.
        drop(GATE.enter());
        GATE.open();
        assert_eq!(has_entered.recv(), Ok("later"));
        thread.join().unwrap();
        GATE.close(LONG).unwrap();
        GATE.after_fork();
        drop(GATE.enter());
    }

    #[test]
    fn threads_without_a_slot_of_their_own_are_waited_for_and_close_nothing() {
        static GATE: Gate = Gate::new();
        let section = GATE.enter_by(SHARED);
        assert_eq!(GATE.close_by(SHARED, LONG), Err(NotClosed::TooManyThreads));
        assert_eq!(GATE.close(Duration::from_millis(1)), Err(NotClosed::Busy));
        drop(section);
        GATE.close(LONG).unwrap();
        GATE.open();
    }

    #[test]
    fn what_many_threads_count_is_whole_while_it_is_closed() {
        static GATE: Gate = Gate::new();
        static COUNTS: [core::sync::atomic::AtomicU64; 2] =
            [const { core::sync::atomic::AtomicU64::new(0) }; 2];
        let counted = |which: usize| COUNTS[which].load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while counted(0) < 20_000 {
                        let _section = GATE.enter();
                        COUNTS[0].fetch_add(1, Ordering::Relaxed);
                        COUNTS[1].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while counted(0) < 20_000 {
                GATE.close(LONG).unwrap();
                assert_eq!(counted(0), counted(1));
                std::thread::yield_now();
                assert_eq!(counted(0), counted(1));
                GATE.open();
            }
        });
    }
}
