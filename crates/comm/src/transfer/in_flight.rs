//! Copies in flight. A receive that its program does not wait for begins its copy, so that those of several
//! messages follow each other on the GPU without a pause.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::cuda::CudaError;

/// Copies by their numbers, in queues: the copies of one queue end in the order in which they were begun.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    last: u64,
    queues: HashMap<u64, Queue<T>>,
    /// The queue of each copy that is under way.
    queue_of: HashMap<u64, u64>,
    ended: HashMap<u64, Ended<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    copies: VecDeque<(u64, T, Instant)>,
    /// When the last one ended.
    ended_at: Option<Instant>,
}

/// A copy that is over, and how long it took when it was its turn. Those that are seen to be over at the same
/// time share the time since the one before them: each alone cannot be known.
pub(crate) type Ended<T> = (T, Result<Duration, CudaError>);

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { last: 0, queues: HashMap::new(), queue_of: HashMap::new(), ended: HashMap::new() }
    }
}

impl<T> InFlight<T> {
    /// A copy was begun then. Its number is never 0.
    pub(crate) fn add(&mut self, queue: u64, copy: T, start: Instant) -> u64 {
        self.last += 1;
        self.queue_of.insert(self.last, queue);
        let queue =
            self.queues.entry(queue).or_insert_with(|| Queue { copies: VecDeque::new(), ended_at: None });
        queue.copies.push_back((self.last, copy, start));
        self.last
    }

    /// State of a copy; none while it is under way. One that is over is forgotten with the answer.
    /// `is_done` is asked for the oldest of a queue alone, and only where that is the one in question: the
    /// others cannot be done before it. `notify_sender` hears of each that is seen to be over, and whether it
    /// is well.
    pub(crate) fn end(
        &mut self,
        number: u64,
        now: Instant,
        is_done: impl Fn(&T) -> Result<bool, CudaError>,
        notify_sender: impl Fn(&T, bool),
    ) -> Option<Ended<T>> {
        if let Some(ended) = self.ended.remove(&number) {
            return Some(ended);
        }
        let name = *self.queue_of.get(&number)?;
        let queue = self.queues.get(&name)?;
        if queue.copies.front().is_none_or(|(oldest, ..)| *oldest != number) {
            return None;
        }
        self.collect_of(name, now, &is_done, &notify_sender);
        self.ended.remove(&number)
    }

    /// Looks at all queues, as [`end`](Self::end) does at one. Says whether a copy is over.
    pub(crate) fn collect(
        &mut self,
        now: Instant,
        is_done: impl Fn(&T) -> Result<bool, CudaError>,
        notify_sender: impl Fn(&T, bool),
    ) -> bool {
        let queues: Vec<u64> = self.queues.keys().copied().collect();
        let before = self.queue_of.len();
        for name in queues {
            self.collect_of(name, now, &is_done, &notify_sender);
        }
        self.queue_of.len() < before
    }

    /// Whether none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue_of.is_empty()
    }

    fn collect_of(
        &mut self,
        name: u64,
        now: Instant,
        is_done: &impl Fn(&T) -> Result<bool, CudaError>,
        notify_sender: &impl Fn(&T, bool),
    ) {
        let Some(queue) = self.queues.get_mut(&name) else { return };
        let mut over = Vec::new();
        while let Some((_, copy, _)) = queue.copies.front() {
            let done = match is_done(copy) {
                Ok(false) => break,
                done => done.map(drop),
            };
            let Some((oldest, copy, start)) = queue.copies.pop_front() else { break };
            notify_sender(&copy, done.is_ok());
            over.push((oldest, copy, start, done));
        }
        if let Some((_, _, first_start, _)) = over.first() {
            let since = queue.ended_at.map_or(*first_start, |ended_at| ended_at.max(*first_start));
            // At most as many as fit into a queue of the driver.
            let each = now.saturating_duration_since(since) / over.len() as u32;
            queue.ended_at = Some(now);
            for (oldest, copy, _, done) in over {
                self.queue_of.remove(&oldest);
                self.ended.insert(oldest, (copy, done.map(|()| each)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};

    fn untold(_: &u32, _: bool) {}

    #[test]
    fn copies_end_in_their_order_and_take_what_they_take_in_their_turn() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let asked = Cell::new(0);
        let done_below = |limit: u32| {
            let asked = &asked;
            move |copy: &u32| {
                asked.set(asked.get() + 1);
                Ok(*copy < limit)
            }
        };
        let mut copies = InFlight::default();
        let [first, second, third] = [0, 1, 2].map(|copy| copies.add(7, copy, at(u64::from(copy))));
        let other = copies.add(8, 9, at(0));
        assert_eq!(copies.end(second, at(3), done_below(2), untold), None);
        assert_eq!(asked.get(), 0, "the oldest is asked for alone");
        assert_eq!(copies.end(first, at(3), done_below(0), untold), None);
        assert_eq!(asked.get(), 1);
        // The second was seen together with it.
        assert_eq!(copies.end(first, at(10), done_below(2), untold), Some((0, Ok(Duration::from_millis(5)))));
        assert_eq!(
            copies.end(second, at(11), done_below(0), untold),
            Some((1, Ok(Duration::from_millis(5))))
        );
        assert_eq!(copies.end(third, at(14), done_below(3), untold), Some((2, Ok(Duration::from_millis(4)))));
        assert_eq!(copies.end(third, at(15), done_below(3), untold), None, "it is forgotten");
        assert_eq!(copies.end(other, at(5), done_below(10), untold), Some((9, Ok(Duration::from_millis(5)))));
        assert_eq!((copies.queue_of.len(), copies.ended.len()), (0, 0));
    }

    #[test]
    fn one_that_fails_is_over() {
        let error = CudaError { call: "cuEventQuery", code: 700 };
        let mut copies = InFlight::default();
        let now = Instant::now();
        let [first, second] = [1_u32, 2].map(|copy| copies.add(7, copy, now));
        assert_eq!(copies.end(first, now, |_| Err(error), untold), Some((1, Err(error))));
        assert_eq!(copies.end(second, now, |_| Ok(true), untold), Some((2, Err(error))));
    }

    #[test]
    fn whoever_waits_for_a_copy_hears_of_its_end_though_nobody_asks_for_it() {
        let error = CudaError { call: "cuEventQuery", code: 700 };
        let (mut copies, now, heard) = (InFlight::default(), Instant::now(), RefCell::new(Vec::new()));
        let notify_sender = |copy: &u32, is_well| heard.borrow_mut().push((*copy, is_well));
        let numbers = [(7, 1), (7, 2), (8, 3), (8, 4)].map(|(queue, copy)| copies.add(queue, copy, now));
        let is_done = |copy: &u32| match copy {
            1 => Ok(true),
            3 => Err(error),
            _ => Ok(false),
        };
        assert!(copies.collect(now, is_done, notify_sender) && !copies.collect(now, is_done, notify_sender));
        heard.borrow_mut().sort_unstable();
        assert_eq!(heard.take(), [(1, true), (3, false)]);
        assert!(!copies.is_idle() && copies.collect(now, |_| Ok(true), notify_sender) && copies.is_idle());
        assert_eq!(heard.take().len(), 2);
        // Each is notified of once, and its own end is kept for whoever has begun it.
        let ends = numbers.map(|number| {
            copies.end(number, now, |_| Ok(true), notify_sender).map(|(copy, end)| (copy, end.is_ok()))
        });
        assert_eq!(ends, [Some((1, true)), Some((2, true)), Some((3, false)), Some((4, true))]);
        assert!(heard.take().is_empty());
    }
}
