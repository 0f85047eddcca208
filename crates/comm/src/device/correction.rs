//! Correction of a rank's table of initiators while its kernels run, by the thread of its first proxy.
//!
//! It times batches, looks now and then at what kernels have timed, and writes the rows of the table that
//! change, all by the lane that has a batch's copies. It does nothing where batches use no lane: a call of
//! the driver may wait for another thread of the program, which kernels that use memory of the host alone do not.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::choice::{Initiator, InitiatorPolicy, QUEUE};
use super::costs::{Batch, Costs};
use super::gpu::{GpuError, Lane};
use super::layout::{CLASSES, NetworkChoice, SCOPES, TeamState};
use crate::locks::{Mutex, MutexGuard, rank};

/// Batches that were timed before the table is looked at: twice as many each time.
const FIRST_INTERVAL: u32 = 16;
const MAX_INTERVAL: u32 = 4096;

/// Rows that are written at a time, between which the queue is looked at.
const ROWS: usize = 4;

/// Bytes of pinned memory that one needs.
pub const SCRATCH_BYTES: u64 = (SCOPES * 16) as u64;

/// What a team's proxies know of costs.
#[derive(Debug, Clone)]
pub struct SharedCosts(Arc<Mutex<rank::Costs, Costs>>);

impl SharedCosts {
    /// What is known at the beginning.
    pub fn new(costs: Costs) -> Self {
        Self(Arc::new(Mutex::new(costs)))
    }

    /// The costs; a panic of another thread leaves nothing half done.
    pub fn lock(&self) -> MutexGuard<'_, rank::Costs, Costs> {
        self.0.lock()
    }
}

/// A batch that is being timed: until the lane has passed a mark.
#[derive(Debug)]
struct Timing {
    start: Instant,
    mark: u64,
    copies: u32,
    bytes: u64,
}

/// Corrects the table of a rank.
#[derive(Debug)]
pub struct Corrector {
    costs: SharedCosts,
    /// The address of the rank's [`TeamState`], and of [`SCRATCH_BYTES`] of pinned memory.
    state: u64,
    scratch: u64,
    timing: Option<Timing>,
    batches: u32,
    interval: u32,
    /// The mark behind which the scratch memory holds what kernels have timed.
    reading: Option<u64>,
    timed: [[u64; 2]; SCOPES],
    /// The table as kernels have it, and rows that differ.
    written: [[u64; CLASSES]; SCOPES],
    changed: Vec<(usize, usize, u64)>,
    /// The mark behind all that the lane has of this.
    last: u64,
}

impl Corrector {
    /// For the rank whose state lies there, and holds this table.
    pub fn new(costs: SharedCosts, state: u64, scratch: u64, written: [[u64; CLASSES]; SCOPES]) -> Self {
        Self {
            costs,
            state,
            scratch,
            timing: None,
            batches: 0,
            interval: FIRST_INTERVAL,
            reading: None,
            timed: [[0; 2]; SCOPES],
            written,
            changed: Vec::new(),
            last: 0,
        }
    }

    /// The start of a batch, if it is to be timed.
    pub fn start(&self) -> Option<Instant> {
        self.timing.is_none().then(Instant::now)
    }

    /// Times a batch that began then: it ends at this mark of the lane.
    pub fn time(&mut self, start: Instant, mark: u64, copies: u32, bytes: u64) {
        self.timing = Some(Timing { start, mark, copies, bytes });
    }

    /// Takes note of how far the lane has come.
    pub fn passed(&mut self, done: u64) {
        let Some(Timing { start, copies, bytes, .. }) = self.timing.take_if(|timing| timing.mark <= done)
        else {
            return;
        };
        let nanoseconds = start.elapsed().as_nanos() as f64;
        self.costs.lock().observe_batch(Batch { copies, bytes, nanoseconds });
        self.batches += 1;
    }

    /// Whether the lane has nothing of this any more.
    pub fn is_done(&self, done: u64) -> bool {
        self.last <= done
    }

    /// Goes on with the correction, while the queue is empty. The lane is the one that has timed batches.
    ///
    /// # Errors
    /// What the driver says.
    pub fn step(&mut self, lane: &mut dyn Lane) -> Result<(), GpuError> {
        if let Some(mark) = self.reading {
            if lane.done() >= mark {
                self.reading = None;
                self.learn();
            }
        } else if !self.changed.is_empty() {
            self.write(lane)?;
        } else if self.batches >= self.interval {
            self.batches = 0;
            self.interval = (2 * self.interval).min(MAX_INTERVAL);
            let timed = self.state + offset_of!(TeamState, timed) as u64;
            lane.copy(self.scratch, timed, SCRATCH_BYTES)?;
            self.last = lane.mark()?;
            self.reading = Some(self.last);
        }
        Ok(())
    }

    /// What kernels have timed since the last look, and the rows that change.
    fn learn(&mut self) {
        let mut costs = self.costs.lock();
        for (scope, seen) in self.timed.iter_mut().enumerate() {
            // SAFETY: the scratch memory has so many words, which stay as long as the team.
            let word = |at: usize| unsafe {
                &*((self.scratch + 16 * scope as u64 + 8 * at as u64) as *const AtomicU64)
            };
            let now = [0, 1].map(|at| word(at).load(Ordering::Acquire));
            costs.observe_direct(scope, now[0].wrapping_sub(seen[0]), now[1].wrapping_sub(seen[1]));
            *seen = now;
        }
        let table = costs.table(InitiatorPolicy::Auto);
        drop(costs);
        for (scope, (rows, written)) in table.iter().zip(&self.written).enumerate() {
            for (class, (row, before)) in rows.iter().zip(written).enumerate() {
                if row != before {
                    self.changed.push((scope, class, *row));
                }
            }
        }
        self.written = table;
    }

    fn write(&mut self, lane: &mut dyn Lane) -> Result<(), GpuError> {
        let table = self.state + offset_of!(TeamState, choice) as u64;
        for (scope, class, row) in self.changed.drain(..self.changed.len().min(ROWS)) {
            lane.set(table + 8 * (scope * CLASSES + class) as u64, row)?;
        }
        self.last = lane.mark()?;
        Ok(())
    }
}

/// Corrects the table for ranks that a network card reaches. Kernels and this thread tell each other by pinned memory, so
/// that no call of the driver is needed.
#[derive(Debug)]
pub struct NetworkCorrector {
    costs: SharedCosts,
    /// Address of the [`NetworkChoice`].
    shared: u64,
    /// A request of the proxy to another rank that is the only one under way: since when, and the number behind it.
    timing: Option<(Instant, u64)>,
    looks: u32,
    timed: [u64; 2],
    version: u64,
}

impl NetworkCorrector {
    /// Turns between two looks at what kernels have timed.
    const INTERVAL: u32 = 1024;

    /// For the rank with a [`NetworkChoice`] at this address of pinned memory.
    ///
    /// # Safety
    /// It is there, zeroed, as long as this.
    pub unsafe fn new(costs: SharedCosts, shared: u64) -> Self {
        Self { costs, shared, timing: None, looks: 0, timed: [0; 2], version: 0 }
    }

    fn shared(&self) -> &NetworkChoice {
        // SAFETY: whoever called `new` keeps the memory there as long as this. All fields are atomic.
        unsafe { &*(self.shared as *const NetworkChoice) }
    }

    /// A request to another rank was begun, with nothing else under way; it is the last one before this number.
    pub fn start(&mut self, end: u64) {
        self.timing = Some((Instant::now(), end));
    }

    /// Others were begun, so that its time is not its own.
    pub fn disturb(&mut self) {
        self.timing = None;
    }

    /// All requests before this number are done.
    pub fn passed(&mut self, done: u64) {
        if let Some((start, _)) = self.timing.take_if(|(_, end)| *end <= done) {
            let nanoseconds = start.elapsed().as_nanos() as f64 + QUEUE;
            self.costs.lock().observe_network(Initiator::Proxy, 1, nanoseconds);
        }
    }

    /// Goes on with the correction, while the queue is empty.
    pub fn step(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(Self::INTERVAL) {
            return;
        }
        // The count is written behind the time.
        let count = self.shared().timed[0].load(Ordering::Acquire);
        let time = self.shared().timed[1].load(Ordering::Acquire);
        let (counted, taken) = (count.wrapping_sub(self.timed[0]), time.wrapping_sub(self.timed[1]));
        let mut costs = self.costs.lock();
        if counted != 0 {
            costs.observe_network(Initiator::Verbs, counted, taken as f64);
            self.timed = [count, time];
        }
        if costs.version() == self.version {
            return;
        }
        self.version = costs.version();
        let table = costs.network_table(InitiatorPolicy::Auto);
        drop(costs);
        let mut has_changed = false;
        for (row, now) in self.shared().rows.iter().zip(table) {
            has_changed |= row.swap(now, Ordering::Relaxed) != now;
        }
        if has_changed {
            self.shared().version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::choice::{Copies, default_curves};

    /// A lane on memory of this process, which is done at once.
    #[derive(Default)]
    struct Instantly(u64);

    impl Lane for Instantly {
        fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
            // SAFETY: the tests pass memory of theirs.
            unsafe { core::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
            Ok(())
        }

        fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError> {
            // SAFETY: the tests pass words of theirs, aligned and accessed by atomic operations alone.
            unsafe { &*(to as *const AtomicU64) }.store(value, Ordering::Release);
            Ok(())
        }

        fn mark(&mut self) -> Result<u64, GpuError> {
            self.0 += 1;
            Ok(self.0)
        }

        fn done(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn rows_change_where_kernels_can_read_them_once_enough_was_measured() {
        // Copies of the proxy that cost next to nothing, as was thought.
        let copies = Copies { latency: 10.0, post: 1.0, bandwidth: 1e4 };
        let costs = SharedCosts::new(Costs::new(&default_curves(), Some(copies)));
        let before = costs.lock().table(InitiatorPolicy::Auto);
        let mut state = Box::new(TeamState::empty());
        state.choice = before;
        // Threads of a block that copy a gigabyte in 2.5 ms.
        state.timed[2] = [1 << 30, 2_500_000];
        let scratch = [0_u64; 2 * SCOPES];
        let (address, scratch) = (&raw mut *state as u64, scratch.as_ptr() as u64);
        let mut corrector = Corrector::new(costs.clone(), address, scratch, before);
        let mut lane = Instantly::default();
        for batch in 0..FIRST_INTERVAL {
            corrector.step(&mut lane).unwrap();
            assert_eq!(lane.0, 0, "nothing is asked of the lane before {FIRST_INTERVAL} batches: {batch}");
            let start = corrector.start().expect("no other batch is timed");
            corrector.time(start, u64::from(batch) + 1, 1, 8);
            assert!(corrector.start().is_none(), "one at a time");
            corrector.passed(u64::from(batch));
            assert!(corrector.start().is_none(), "the lane has not passed its mark");
            corrector.passed(u64::from(batch) + 1);
        }
        for _ in 0..SCOPES * CLASSES {
            corrector.step(&mut lane).unwrap();
        }
        assert!(corrector.is_done(lane.done()));
        // SAFETY: the table in the box, as it was changed by its address.
        let found = unsafe { core::ptr::addr_of!(state.choice).read_volatile() };
        assert_eq!(found, costs.lock().table(InitiatorPolicy::Auto));
        assert_ne!(found, before);
        assert_eq!(costs.lock().measurements(), (u64::from(FIRST_INTERVAL), [0, 0, 1]));
        let marks = lane.0;
        (0..100).for_each(|_| corrector.step(&mut lane).unwrap());
        assert_eq!(lane.0, marks, "and then twice as many");
    }
}
