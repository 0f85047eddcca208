//! Completion polling: the thread that polls for the end of work, and the order of its reports.

use super::poll_interval::poll_interval;
use super::{CompletionEvent, Ended, Lanes, Shared, Wait};
use crate::context;
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;
use causeway_sync::Key;
use causeway_sync::face::{self, Stopwatch};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Shared {
    /// Brings arrivals into their lanes; tells whether there were any.
    pub(crate) fn sort_in(&self, lanes: &mut Lanes) -> bool {
        let arrivals = core::mem::take(&mut self.arrivals.lock().waits);
        let any = !arrivals.is_empty();
        for wait in arrivals {
            lanes.entry((wait.context, wait.source)).or_default().push_back(wait);
        }
        any
    }

    pub(crate) fn run(&self) {
        // Pauses of 20 us need a finer timer than the 50 us by which Linux lets sleepers be late.
        // SAFETY: sets a property of this thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1000) };
        let mut quiet_since = Stopwatch::new();
        loop {
            // Before anything is looked at: who calls after that is not slept over.
            let key = self.pause.key();
            if self.stopping.load(Ordering::Acquire) {
                break;
            }
            if self.poll_once() && self.are_urgent() || self.rest(key, quiet_since.elapsed()) {
                quiet_since = Stopwatch::new();
            }
        }
        let ended = {
            let mut lanes = self.lanes.lock();
            self.sort_in(&mut lanes);
            let left = lanes.drain().flat_map(|(_, lane)| lane).collect();
            self.end_all(left, CUresult::CUDA_ERROR_DEINITIALIZED)
        };
        self.deliver(ended);
    }

    /// Looks once at everything that is waited for and delivers what is over; whether something came or
    /// ended.
    pub(crate) fn poll_once(&self) -> bool {
        let Some(_alone) = self.deliver_alone() else { return false };
        let (ready, arrived) = {
            let mut lanes = self.lanes.lock();
            let arrived = self.sort_in(&mut lanes);
            (self.collect(&mut lanes), arrived)
        };
        let any = arrived || !ready.is_empty();
        self.deliver(ready);
        any
    }

    /// Passes time until asking again makes sense; whether somebody has called for that since `key`, or
    /// brought something after there was nothing.
    fn rest(&self, key: Key, waited: Duration) -> bool {
        let Some(interval) = poll_interval(self.are_urgent(), waited) else {
            face::spin();
            return false;
        };
        if self.is_any_waited_for() {
            return self.pause.pause(key, interval);
        }
        self.pause.idle_unless(key, || self.is_any_waited_for());
        true
    }

    /// Whether there are waits, urgent or not.
    fn is_any_waited_for(&self) -> bool {
        // Both locks at once: what another thread takes from one to the other is seen in one of them.
        let lanes = self.lanes.lock();
        !self.arrivals.lock().waits.is_empty() || !lanes.is_empty()
    }

    /// Keeps other threads from looking and delivering, unless one is at it.
    fn deliver_alone(&self) -> Option<face::MutexGuard<'_, ()>> {
        self.turn.try_lock()
    }

    /// Whether nothing is waited for, and no thread calls completions.
    pub(crate) fn is_idle(&self) -> bool {
        self.deliver_alone().is_some_and(|_alone| !self.is_any_waited_for())
    }

    /// Takes out the waits that are over, in the order in which they were asked for.
    ///
    /// When a wait is found to be over, the work it depends on is over too, also in other streams whose lanes
    /// were looked at a moment before. So the lanes are looked at again until nothing more is found: then no
    /// wait that is left can have been a condition of one that was taken.
    fn collect(&self, lanes: &mut Lanes) -> Vec<Ended> {
        let mut ready = Vec::new();
        loop {
            let before = ready.len();
            for lane in lanes.values_mut() {
                while let Some(status) = lane.front().and_then(|wait| self.status(wait)) {
                    ready.extend(lane.pop_front().map(|wait| self.end(wait, status)));
                }
            }
            if ready.len() == before {
                break;
            }
        }
        if !ready.is_empty() {
            lanes.retain(|_, lane| !lane.is_empty());
            ready.sort_unstable_by_key(|wait| wait.number);
        }
        ready
    }

    /// How a wait has ended, or nothing when it has not.
    fn status(&self, wait: &Wait) -> Option<CuResult<()>> {
        let ask = |event| {
            context::set(self.functions, wait.context)?;
            // SAFETY: the event exists: ours until it is released, the program's while it is watched.
            unsafe {
                self.functions.cuEventQuery(event)?;
                // What kernels print comes out of the driver only in a call that synchronises. The event is
                // done, so that this one does not wait.
                if self.output.expected() { self.functions.cuEventSynchronize(event) } else { Ok(()) }
            }
        };
        let result = match wait.sign {
            CompletionEvent::Own(event) => ask(event.as_raw()),
            CompletionEvent::Program(event) => self.events.with_watched(|| ask(event.as_raw())),
        };
        self.output.report_assertion(self.functions, result);
        if result == Err(CUresult::CUDA_ERROR_NOT_READY) { None } else { Some(result) }
    }

    /// Lets go of the event of a wait; while the lanes are locked, so that its context cannot end meanwhile.
    pub(crate) fn end(&self, wait: Wait, status: CuResult<()>) -> Ended {
        match wait.sign {
            CompletionEvent::Own(event) => self.events.release(wait.context, event),
            CompletionEvent::Program(event) => self.events.unwatch(self.functions, event),
        }
        Ended { number: wait.number, urgent: wait.urgent, done: wait.done, status }
    }

    pub(crate) fn end_all(&self, mut waits: Vec<Wait>, error: CUresult) -> Vec<Ended> {
        waits.sort_unstable_by_key(|wait| wait.number);
        waits.into_iter().map(|wait| self.end(wait, Err(error))).collect()
    }

    pub(crate) fn deliver(&self, ended: Vec<Ended>) {
        if !ended.is_empty() && self.output.expected() {
            self.output.drain();
        }
        for wait in ended {
            if catch_unwind(AssertUnwindSafe(|| (wait.done)(wait.status))).is_err() {
                tracing::error!("a completion panicked");
            }
            if wait.urgent {
                self.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
