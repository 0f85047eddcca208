//! Spin policy: how long a thread polls before it sleeps; and the CPU load of this machine.
//!
//! Waking a thread that sleeps takes about 5 us on a machine of its own, and 50 to 100 us on a virtual one
//! whose processor has been released meanwhile. An answer passes three threads, so a wait that all of them
//! slept through was noticed 250 to 500 us late (a virtual machine with an H200, 2026-11-22); a pinned copy
//! of 16 MiB takes 320. CUDA itself does not sleep at all in a waiting call unless it is told to, where there
//! are more processors than contexts. So where there are cores to spare threads poll for a while before they
//! sleep; on few cores the thread that brings the answer needs the core more. A thread that polls gives its core
//! to any other that wants it: otherwise the lanes of a long copy, as many as there are cores, wait up to 4
//! ms for it, which the scheduler thinks is fair.
//!
//! CPU load matters where a limit of time is about the other end of a connection, and is not meant for a
//! machine on which no thread makes progress.

use core::cell::Cell;
use std::time::{Duration, Instant};

use causeway_config::ValueError;
use causeway_config::read::PROCESS;
use causeway_config::table::CORES;

use crate::queue::Receiver;

/// Polls between two readings of the clock, and two offers of the core to others.
const POLLS: u32 = 32;

/// From this many cores on, threads may poll for nothing for a short while.
const SOME_CORES: usize = 4;

/// From this many on, the three threads of a waiting call may be so for as long as most waits take.
const MANY_CORES: usize = 8;

/// How long a thread polls that somebody waits for. What takes longer is noticed late by a hundredth of its
/// time at most.
const WAITED_FOR: Duration = Duration::from_millis(20);

/// The same on some cores: longer than a round trip, and than waking a thread.
const WAITED_FOR_ON_SOME: Duration = Duration::from_micros(50);

/// How long a thread of a busy session polls for the next piece of work.
const BETWEEN_WORK: Duration = Duration::from_micros(200);

/// How long a thread that has carried bytes of copies within a host polls for more: programs do that much
/// between two. When they slept the lanes of a copy of 16 MiB, which takes 500 us, began 62 us after it, else
/// 41 (a virtual machine with an H200, 2026-11-23).
const BETWEEN_COPIES: Duration = Duration::from_millis(3);

/// How long a worker polls for the next command of its client. Programs do that much between two calls as
/// well, and a copy whose command had to wake the worker begins that much later: of 64 MiB, which take 1.2
/// ms, 30 us are a fortieth.
const BETWEEN_COMMANDS: Duration = BETWEEN_COPIES;

/// How many cores the user wants to be counted on, if any number (`CAUSEWAY_CORES`).
fn cores_of_user() -> Result<Option<usize>, ValueError> {
    Ok(PROCESS.number(&CORES)?.map(|cores| cores as usize))
}

/// Cores that this process counts on: as many as the user says, or as it may use.
pub fn cores() -> usize {
    static COUNTED: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNTED.get_or_init(|| {
        let configured = cores_of_user().ok().flatten();
        configured.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    })
}

/// Whether there are so many that what a copy waits for is rather memory than a core.
pub fn has_many_cores() -> bool {
    cores() >= MANY_CORES
}

fn by_cores(many: Duration, some: Duration) -> Duration {
    match cores() {
        MANY_CORES.. => many,
        SOME_CORES.. => some,
        _ => Duration::ZERO,
    }
}

/// How long to poll for an answer, or for the end of work, that somebody waits for.
pub fn while_waited_for() -> Duration {
    by_cores(WAITED_FOR, WAITED_FOR_ON_SOME)
}

/// How long to poll for what comes next in a busy session.
pub fn between_work() -> Duration {
    by_cores(BETWEEN_WORK, Duration::ZERO)
}

/// How long a thread of the lanes polls for the next bytes of copies, after some.
pub fn between_copies(is_within_a_host: bool) -> Duration {
    if is_within_a_host { by_cores(BETWEEN_COPIES, Duration::ZERO) } else { between_work() }
}

/// How long a worker polls for its client's next command, or a client for what its worker says unasked.
pub fn between_commands() -> Duration {
    by_cores(BETWEEN_COMMANDS, WAITED_FOR_ON_SOME)
}

/// To be called where a program polls by itself and hears that it is not so far yet: after a number of such
/// answers its thread gives its core to any other that wants it. UCX asks `cuEventQuery` all the time, from
/// messages of 64 KiB on: two ranks of an MPI that do so on two cores leave none to the threads that carry
/// their copies out and answer them, but what the scheduler's slices give. Copies of 64 KiB and 1 MiB that are
/// polled for took 0.2 to 0.8 of the time for it, by one process or four on two cores (2026-11-27).
pub fn polled_in_vain() {
    thread_local! {
        static VAIN: Cell<u32> = const { Cell::new(0) };
    }
    // Has no destructor, and so is there as long as the thread is.
    VAIN.set(VAIN.get().wrapping_add(1));
    if VAIN.get().is_multiple_of(POLLS) {
        std::thread::yield_now();
    }
}

/// A thread that polls for something.
pub struct BusyPoll {
    begun: Instant,
    polls: u32,
    waited: Duration,
}

impl BusyPoll {
    /// It begins now.
    #[expect(clippy::new_without_default, reason = "the moment at which it is made matters")]
    pub fn new() -> Self {
        Self { begun: Instant::now(), polls: 0, waited: Duration::ZERO }
    }

    /// Passes the time until it makes sense to poll again, and says how long this has taken so far.
    pub fn pause(&mut self) -> Duration {
        core::hint::spin_loop();
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS) {
            std::thread::yield_now();
            self.waited = self.begun.elapsed();
        }
        self.waited
    }
}

/// So many of the threads that send on lanes poll [between copies](between_copies). More would take the cores
/// from those that have work.
pub fn senders() -> usize {
    cores() / 4
}

/// So many of the threads that receive on lanes poll [between copies](between_copies).
pub fn receivers() -> usize {
    cores() / 2
}

/// Polls until `is_there` says so, or for `timeout`; whether it is there.
pub fn until(timeout: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    if timeout.is_zero() {
        return is_there();
    }
    let mut poll = BusyPoll::new();
    loop {
        if is_there() {
            return true;
        }
        if poll.pause() >= timeout {
            return false;
        }
    }
}

/// The next thing in a queue, for which the thread polls for a while; nothing when the queue has ended.
pub fn receive<T>(queue: &Receiver<T>) -> Option<T> {
    let mut next = None;
    until(between_work(), || {
        next = queue.try_receive();
        next.is_some()
    });
    next.or_else(|| queue.receive())
}

/// How many threads that want to run there must be to each processor. Beside each other, two are ordinary.
const MANY: usize = 3;

/// Whether many more threads want to run than there are processors. False where the system does not say.
pub fn is_overcommitted() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    load.ok().and_then(|load| runnable(&load)).is_some_and(|runnable| runnable >= MANY * processors)
}

/// How many threads run or could, of what `/proc/loadavg` says: three averages, `runnable/all`, the newest process.
fn runnable(load: &str) -> Option<usize> {
    load.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::queue;

    #[test]
    fn polling_ends_when_it_is_there_or_when_patience_does() {
        let mut polls = 0;
        let third_time = || {
            polls += 1;
            polls == 3
        };
        assert!(until(Duration::from_secs(3600), third_time));
        assert!(!until(Duration::from_millis(1), || false));
        assert!(until(Duration::ZERO, || true) && !until(Duration::ZERO, || false));
    }

    #[test]
    fn a_queue_gives_what_it_has_and_then_its_end() {
        let (sender, queue) = queue();
        let late = std::thread::spawn(move || {
            sender.send(1).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            sender.send(2).unwrap();
        });
        assert_eq!([receive(&queue), receive(&queue), receive(&queue)], [Some(1), Some(2), None]);
        late.join().unwrap();
    }

    #[test]
    fn runnable_threads_are_read() {
        assert_eq!(runnable("18.55 17.49 12.11 26/1045 14001\n"), Some(26));
        assert_eq!(runnable("18.55 17.49 12.11"), None);
        assert_eq!(runnable("0 0 0 x/5 1"), None);
    }
}
