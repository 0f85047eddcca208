//! Request queue, the proxy's side.

use core::sync::atomic::{AtomicU64, Ordering};

use super::layout::{QueueCounters, Response};
use super::request::PHASE;

/// The proxy's side of a queue. One thread has it.
#[derive(Debug)]
pub struct Consumer {
    slots: *const [AtomicU64; 2],
    counters: *const QueueCounters,
    capacity: u64,
    next: u64,
    completed: u64,
}

// SAFETY: the memory stays as long as the queue does, and is only reached by atomic operations.
unsafe impl Send for Consumer {}

/// Bytes of the slots of a queue, and of its counters and answers.
pub fn bytes(capacity: u64) -> (u64, u64) {
    (16 * capacity, (size_of::<QueueCounters>() as u64) + capacity * size_of::<Response>() as u64)
}

impl Consumer {
    /// The queue whose slots and counters lie at these addresses. All is zero at first.
    ///
    /// # Safety
    /// There are as many bytes as [`bytes`] says for this capacity, a power of two, aligned as the types are,
    /// as long as the consumer exists.
    pub unsafe fn new(slots: u64, counters: u64, capacity: u64) -> Self {
        Self { slots: slots as *const _, counters: counters as *const _, capacity, next: 0, completed: 0 }
    }

    fn counters(&self) -> &QueueCounters {
        // SAFETY: as promised to `new`.
        unsafe { &*self.counters }
    }

    /// Requests that it holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes the next request if it is there: its number and its halves.
    pub fn take(&mut self) -> Option<(u64, [u64; 2])> {
        // SAFETY: the slot is one of those that were promised to `new`.
        let slot = unsafe { &*self.slots.add((self.next & (self.capacity - 1)) as usize) };
        // The rounds of a queue begin with 1, so that zeros are no requests.
        let phase = if (self.next / self.capacity) & 1 == 0 { PHASE } else { 0 };
        // Acquired: what the kernel wrote before its request is to be found. Each half for itself, as they
        // may arrive one after the other.
        let halves = [slot[0].load(Ordering::Acquire), slot[1].load(Ordering::Acquire)];
        if halves.iter().any(|word| word & PHASE != phase) {
            return None;
        }
        self.next += 1;
        Some((self.next - 1, halves))
    }

    /// Lets kernels have the slots of all requests that were taken.
    pub fn accept(&self) {
        // Released: the slots were read before they are written again.
        self.counters().accepted.0.store(self.next, Ordering::Release);
    }

    /// Says that all requests before a number are done.
    pub fn complete(&mut self, number: u64) {
        if number > self.completed {
            self.completed = number;
            // Released: what was copied is there for whoever sees it.
            self.counters().completed.0.store(number, Ordering::Release);
        }
    }

    /// Where the answer to a request stands.
    pub fn response(&self, number: u64) -> &Response {
        let first = self.counters.wrapping_add(1).cast::<Response>();
        // SAFETY: the answers follow the counters, one for each slot, as promised to `new`.
        unsafe { &*first.add((number & (self.capacity - 1)) as usize) }
    }

    /// Whether the answer that stood there before has been read.
    pub fn can_respond(&self, number: u64) -> bool {
        let response = self.response(number);
        response.taken.load(Ordering::Acquire) == response.number.load(Ordering::Relaxed)
    }

    /// Answers a request, with what was copied where there is no value.
    pub fn publish(&self, number: u64, value: Option<u64>) {
        let response = self.response(number);
        let value = value.unwrap_or_else(|| response.brought.load(Ordering::Acquire));
        response.value.store(value, Ordering::Relaxed);
        // Released: the value comes first.
        response.number.store(number + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Vec<u128>, Vec<u128>, u64);

    impl Memory {
        fn new(capacity: u64) -> Self {
            let (slots, counters) = bytes(capacity);
            Self(vec![0; slots as usize / 16], vec![0; counters as usize / 16 + 8], capacity)
        }

        fn consumer(&mut self) -> Consumer {
            let counters = (self.1.as_mut_ptr() as u64).next_multiple_of(128);
            // SAFETY: the vectors are that long.
            unsafe { Consumer::new(self.0.as_mut_ptr() as u64, counters, self.2) }
        }

        fn post(&mut self, number: u64, words: [u64; 2], halves: [bool; 2]) {
            let phase = if (number / self.2).is_multiple_of(2) { PHASE } else { 0 };
            let slot = self.0.as_mut_ptr().wrapping_add((number % self.2) as usize).cast::<AtomicU64>();
            for half in (0..2).filter(|half| halves[*half]) {
                // SAFETY: the slot has two halves.
                unsafe { (*slot.add(half)).store(words[half] | phase, Ordering::Release) };
            }
        }
    }

    #[test]
    fn requests_are_taken_in_order_once_both_halves_are_there_for_many_rounds() {
        let mut memory = Memory::new(4);
        let mut queue = memory.consumer();
        for number in 0..40_u64 {
            assert_eq!(queue.take(), None, "nothing of an earlier round is taken again");
            memory.post(number, [number, 7], [number % 2 == 0, number % 2 == 1]);
            assert_eq!(queue.take(), None, "half a request is none");
            memory.post(number, [number, 7], [true, true]);
            let (taken, halves) = queue.take().unwrap();
            assert_eq!((taken, halves.map(|word| word & !PHASE)), (number, [number, 7]));
            queue.accept();
            queue.complete(number + 1);
            assert_eq!(queue.counters().accepted.0.load(Ordering::Relaxed), number + 1);
        }
        queue.complete(3);
        assert_eq!(queue.counters().completed.0.load(Ordering::Relaxed), 40, "it does not go back");
    }

    #[test]
    fn an_answer_waits_until_the_one_before_has_been_read() {
        let mut memory = Memory::new(2);
        let queue = memory.consumer();
        assert!(queue.can_respond(1));
        queue.publish(1, Some(5));
        assert!(!queue.can_respond(3) && queue.can_respond(2));
        let response = queue.response(1);
        assert_eq!((response.value.load(Ordering::Relaxed), response.number.load(Ordering::Relaxed)), (5, 2));
        response.taken.store(2, Ordering::Release);
        assert!(queue.can_respond(3));
    }
}
