//! Synchronisation between threads and between processes.
//!
//! Every protocol of sleeping and waking in Causeway is one of these. Each is written against [`face`], which is the
//! standard library's atomics, locks and threads in a program, and [loom]'s in `make check-concurrency`: there the tests
//! of this crate run through every order of their steps that the memory model allows. Structures of other crates that wait
//! by them are too large for that; some of them run under [shuttle] there, in orders taken by chance.
//!
//! | type | who waits for what |
//! | --- | --- |
//! | [`Parker`] | one thread, for work that any other thread may bring |
//! | [`WaitSlot`] | one thread, for the end of one numbered use of a slot; late ends find nobody |
//! | [`EventCount`] | any number of threads, for a condition that somebody else changes without a lock |
//! | [`PollPause`] | one thread, for the next look at what it polls for |
//! | [`Monitor`] | any number of threads, until the state behind a lock is as they need it |
//! | [`WaitQueue`] | the same, where there are several such queues behind one lock |
//! | [`OnceMap`] | threads that need the same value, until one of them has made it |
//! | [`Offers`] | an owner, until nobody uses what it has offered |
//! | [`LazyThread`] | a thread that is started late, for what it is to do; who is told when it cannot be started |
//! | [`Latch`] | any number of threads, until so many parts are done |
//! | [`ForkJoinPool`] | threads, for work that they can join; who has it, for those that have joined |
//! | [`wake_flag`] | a thread of another process, on a word of shared memory |
//! | [`Delegated`] | nobody: who finds the lock taken leaves the work to its holder |
//! | [`EventfdWake`] | one thread that sleeps in `poll` on a descriptor as well |
//! | [`Gate`] | one thread, until no other one is inside; any number of threads, until it opens the gate |
//! | [`queue`](mod@queue) | any number of threads, for items of a queue, of which each goes to one |
//!
//! They share one rule, of which Dekker's algorithm is the oldest example: who is about to sleep *says so
//! first and then looks once more*; who brings something *makes it visible first and then looks whether
//! somebody sleeps*. With a sequentially consistent fence between the two steps on either side at least one
//! sees the other, so that no wake-up is lost, and a wake-up that nobody needs costs a fence and a load, no
//! system call. The fences are written as [`fence`](core::sync::atomic::fence)`(SeqCst)` and not as `SeqCst`
//! operations: it costs the same on x86-64, and loom treats `SeqCst` operations as if they were weaker and
//! would report races that are none.
//!
//! Beside them:
//!
//! | module | contents |
//! | --- | --- |
//! | `spin` | Spin policy: how long a thread polls before it sleeps; and the CPU load of this machine |
//! | `threads` | Threads that live in other people's processes |
//! | `descriptors` | Descriptors that live in other people's processes |
//! | `fork` | Forks of the process: descriptors that a child closes, and the work of threads that it does not have |
//! | `delays` | Delays by chance wherever one thread or process hands over to another, so that tests meet the orders that a busy machine gives once a day |
//! | `event_count` | Event counts: threads that sleep until a condition holds which others change without taking a lock; among them one that polls, and one that sleeps in `poll` on an eventfd |
//! | `face` | What the protocols are written against: the standard library's in a program, loom's under `--cfg loom`, shuttle's under `--cfg shuttle` |
//! | `gate` | Gate: many threads pass it at almost no cost, and one closes it and waits for those that are inside |
//! | `monitor` | Monitor, latch and delegated lock: state behind a lock, and threads that sleep until it is as they need it, until so many parts are done, or that leave their work to the lock's holder |
//! | `parker` | Parking of one thread: until there is work (`Parker`), or until the end of one numbered use of a slot (`WaitSlot`) |
//! | `ranked` | Ranked locks: mutexes, read-write locks and monitors that check the lock order in debug builds |
//! | `queue` | Queue and offers: items that pass between threads, in turn or by number |
//! | `wake_flag` | Wake flag: a futex in shared memory with which one process wakes the other |
//! | `worker_threads` | Worker threads: a fork-join pool, whose threads join others in a piece of work and leave it before its end, as OpenMP's teams do; and a thread that is started when it is first needed |
//! | `loom_tests` | The smallest race of each protocol, in every order that the memory model allows (`make check-concurrency`) |
//! | `shuttle_tests` | What is too large for loom, in orders taken by chance (`make check-concurrency`) |
//! | `once_map` | Map of what is made once, each value when it is first asked for, by a call that may wait for a peer |
//!
//! [loom]: https://docs.rs/loom
//! [shuttle]: https://docs.rs/shuttle

#[cfg(not(loom))]
pub mod delays;
pub mod descriptors;
mod event_count;
pub mod face;
pub mod fork;
#[cfg_attr(shuttle, expect(dead_code, reason = "loom models it"))]
mod gate;
mod monitor;
#[cfg(not(any(loom, shuttle)))]
mod once_map;
mod parker;
pub mod queue;
pub mod ranked;
#[cfg(not(loom))]
pub mod spin;
#[cfg(not(loom))]
pub mod threads;
pub mod wake_flag;
mod worker_threads;

pub use event_count::{EventCount, EventfdWake, Key, PollPause, WakeReason};
pub use gate::{Gate, NotClosed, Section};
pub use monitor::{Delegated, Latch, Monitor, WaitQueue};
#[cfg(not(any(loom, shuttle)))]
pub use once_map::OnceMap;
pub use parker::{Parker, WaitSlot};
pub use queue::Offers;
pub use worker_threads::{ForkJoinPool, LazyThread};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
