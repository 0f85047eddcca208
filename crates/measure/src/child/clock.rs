//! Time and processor time of one repetition.

use std::time::Instant;

/// What one repetition took, for one operation of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Microseconds until the call returned.
    pub returned_us: f64,
    /// Microseconds until the work was done.
    pub done_us: f64,
    /// Processor seconds of this process, for all operations of the repetition together.
    pub processor_s: f64,
}

/// Measures one repetition.
#[derive(Debug)]
pub struct Stopwatch {
    processor_s: f64,
    start: Instant,
}

impl Stopwatch {
    /// Starts; the processor's clock is read first, since that is a system call.
    pub fn start() -> Self {
        Self { processor_s: processor_seconds(), start: Instant::now() }
    }

    /// Seconds since the start.
    pub fn lap(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Ends the repetition, in which `operations` were carried out and all calls had returned after
    /// `returned` seconds.
    pub fn stop(self, returned: f64, operations: u64) -> Measured {
        let done = self.lap();
        let each = 1e6 / operations as f64;
        Measured {
            returned_us: returned * each,
            done_us: done * each,
            processor_s: (processor_seconds() - self.processor_s).max(0.0),
        }
    }
}

/// Processor time of all threads of this process, in user and in system mode, which is the sum that
/// `getrusage` gives, to the nanosecond.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure and nothing else. It does not fail for the calling process's
    // clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
