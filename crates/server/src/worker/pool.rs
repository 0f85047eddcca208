//! A few threads for jobs that would hold up the command stream: slow driver calls, and sending bulk data.

use crate::locks::{Monitor, rank};
use causeway_sync::delays;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Compilers of device code, which run on these threads, recurse deeply: as much stack as a program's first
/// thread has, where they run without us. Rust's own default is a quarter of that.
const STACK: usize = 8 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that start when there is work for them and live as long as the session.
pub struct Pool {
    name: &'static str,
    max_threads: usize,
    started: AtomicUsize,
    /// Jobs that are queued or running.
    load: Arc<Monitor<rank::Leaf, usize>>,
    jobs: Sender<Job>,
    queue: Receiver<Job>,
}

impl Pool {
    /// A pool of at most `max_threads` threads.
    pub fn new(name: &'static str, max_threads: usize) -> Self {
        let (jobs, queue) = unbounded();
        Self { name, max_threads, started: AtomicUsize::new(0), load: Default::default(), jobs, queue }
    }

    /// Runs `job` on one of the threads. Jobs start in order when there is one thread.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let load = {
            // Nobody waits for more.
            let mut load = self.load.lock();
            *load += 1;
            *load
        };
        let started = self.started.load(Ordering::Relaxed);
        // Two callers may both see room for a thread: one more than needed does no harm.
        if load > started && started < self.max_threads {
            self.start_thread();
        }
        // The pool itself holds the receiving end, so the channel is open as long as `self` is.
        let _ = self.jobs.send(Box::new(job));
    }

    /// Whether no job is queued or running.
    pub fn is_idle(&self) -> bool {
        *self.load.lock() == 0
    }

    /// Waits until no job is queued or running, but no longer than `timeout`.
    pub fn finish(&self, timeout: Duration) {
        self.load.wait_for(timeout, |load| (*load == 0).then_some(()));
    }

    fn start_thread(&self) {
        let queue = self.queue.clone();
        let load = Arc::clone(&self.load);
        let started =
            std::thread::Builder::new().name(self.name.to_owned()).stack_size(STACK).spawn(move || {
                for job in queue {
                    delays::inject();
                    job();
                    load.change(|load| *load -= 1);
                }
            });
        match started {
            Ok(_) => {
                self.started.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tracing::error!("cannot start a thread for {}: {error}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_and_one_thread_keeps_their_order() {
        let pool = Pool::new("test", 1);
        let (done, results) = unbounded();
        for number in 0..100 {
            let done = done.clone();
            pool.run(move || done.send(number).unwrap());
        }
        assert_eq!(results.iter().take(100).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_that_wait_hold_up_none_while_there_may_be_more_threads() {
        let pool = Pool::new("test", 9);
        let (release, held) = unbounded::<()>();
        for _ in 0..8 {
            let held = held.clone();
            pool.run(move || {
                let _ = held.recv();
            });
        }
        let (done, ended) = unbounded();
        for number in 0..100 {
            let done = done.clone();
            pool.run(move || done.send(number).unwrap());
        }
        assert_eq!(ended.iter().take(100).count(), 100);
        drop(release);
        pool.finish(Duration::from_secs(60));
        assert_eq!(*pool.load.lock(), 0);
    }

    #[test]
    fn finishing_waits_for_jobs_and_not_for_ever() {
        let pool = Pool::new("test", 1);
        let (release, held) = unbounded::<()>();
        pool.run(move || {
            let _ = held.recv();
        });
        pool.finish(Duration::from_millis(1));
        release.send(()).unwrap();
        pool.finish(Duration::from_secs(60));
        assert_eq!(*pool.load.lock(), 0);
    }
}
