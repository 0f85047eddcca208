//! How does one thread, or one process, wait for another?
//!
//! Every protocol of sleeping and waking in Causeway is one of these. Each is written against [`face`], which is the
//! standard library's atomics, locks and threads in a program, and [loom]'s in `make check-concurrency`: there the tests
//! of this crate run through every order of their steps that the memory model allows.
//!
//! | type | who waits for what |
//! | --- | --- |
//! | [`Parker`] | one thread, for work that any other thread may bring |
//! | [`WaitSlot`] | one thread, for the end of one numbered use of a slot; late ends find nobody |
//! | [`EventCount`] | any number of threads, for a condition that somebody else changes without a lock |
//! | [`Latch`] | any number of threads, until so many parts are done |
//! | [`wake_flag`] | a thread of another process, on a word of shared memory |
//! | [`Delegated`] | nobody: who finds the lock taken leaves the work to its holder |
//! | [`EventfdWake`] | one thread that sleeps in `poll` on a descriptor as well |
//!
//! They share one rule, of which Dekker's algorithm is the oldest example: who is about to sleep *says so first and then
//! looks once more*; who brings something *makes it visible first and then looks whether somebody sleeps*. With a
//! sequentially consistent fence between the two steps on either side at least one sees the other, so that no wake-up is
//! lost, and a wake-up that nobody needs costs a fence and a load, no system call. The fences are written as
//! [`fence`](core::sync::atomic::fence)`(SeqCst)` and not as `SeqCst` operations: it costs the same on x86-64, and loom
//! treats `SeqCst` operations as if they were weaker and would report races that are none.
//!
//! Beside them:
//!
//! | module | question it answers |
//! | --- | --- |
//! | [`awake`] | How long does a thread poll for what is about to come before it sleeps? |
//! | [`threads`] | Why do our threads not disturb the program they live in? |
//! | [`delays`] | How do tests meet rare orders of threads? |
//!
//! [loom]: https://docs.rs/loom

#[cfg(not(loom))]
pub mod awake;
#[cfg(not(loom))]
pub mod delays;
mod delegated;
mod event_count;
mod eventfd;
pub mod face;
mod latch;
mod parker;
#[cfg(not(loom))]
pub mod threads;
mod wait_slot;
pub mod wake_flag;

pub use delegated::Delegated;
pub use event_count::{EventCount, Key};
pub use eventfd::{EventfdWake, WakeReason};
pub use latch::Latch;
pub use parker::Parker;
pub use wait_slot::WaitSlot;

#[cfg(all(test, loom))]
mod loom_tests;
