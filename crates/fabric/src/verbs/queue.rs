//! How full is a send queue, and which of its requests get a completion?
//!
//! A request's entry is free again when its completion, or that of a later one, has been polled. Completions cost the card
//! and the host time, so only one request in an interval asks for one. Pure.

use super::Violation;

/// The account of a send queue.
#[derive(Debug, Clone)]
pub struct SendQueue {
    capacity: u64,
    interval: u64,
    posted: u64,
    completed: u64,
    /// Requests since the last one that asked for a completion.
    unsignalled: u64,
}

/// A request that has been given an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What its completion is called: how many requests have been posted with it.
    pub id: u64,
    /// Whether it asks for a completion.
    pub is_signalled: bool,
}

impl SendQueue {
    /// A queue for `capacity` requests, one in `interval` of which asks for a completion. The interval is made so small that
    /// a full queue always has a completion to come, and a second one before it is half empty.
    pub fn new(capacity: u32, interval: u32) -> Self {
        let capacity = u64::from(capacity.max(1));
        let interval = u64::from(interval).clamp(1, (capacity / 4).max(1));
        Self { capacity, interval, posted: 0, completed: 0, unsignalled: 0 }
    }

    /// Entries that are free.
    pub fn room(&self) -> u32 {
        (self.capacity - (self.posted - self.completed)) as u32
    }

    /// Requests known to be done.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Gives the next request an entry.
    ///
    /// # Panics
    /// Without room.
    pub fn post(&mut self) -> Entry {
        assert!(self.room() > 0, "a request is posted only where there is room");
        self.posted += 1;
        self.unsignalled += 1;
        let is_signalled = self.unsignalled >= self.interval;
        if is_signalled {
            self.unsignalled = 0;
        }
        Entry { id: self.posted, is_signalled }
    }

    /// A completion has come: the request, and all before it, are done.
    pub fn complete(&mut self, id: u64) -> Result<(), Violation> {
        if id > self.posted {
            return Err(Violation::Completion);
        }
        self.completed = self.completed.max(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_always_has_a_completion_to_come() {
        for capacity in 1..100 {
            for interval in [1, 2, 16, 1000] {
                let mut queue = SendQueue::new(capacity, interval);
                let mut signalled = Vec::new();
                for round in 0..5 * capacity {
                    while queue.room() > round % capacity {
                        let entry = queue.post();
                        signalled.extend(entry.is_signalled.then_some(entry.id));
                    }
                    while queue.room() == 0 {
                        let first = signalled.remove(0);
                        queue.complete(first).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn one_request_in_an_interval_is_signalled() {
        let mut queue = SendQueue::new(64, 8);
        let signalled = (0..64).filter(|_| queue.post().is_signalled).count();
        assert_eq!((signalled, queue.room()), (8, 0));
        queue.complete(8).unwrap();
        assert_eq!(queue.room(), 8);
        assert_eq!(queue.complete(65), Err(Violation::Completion));
    }
}
