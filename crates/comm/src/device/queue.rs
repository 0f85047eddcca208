//! Request queue, the proxy's side: taking of requests, merging of adjacent transfers of a batch, and the
//! order of signals.
//!
//! A signal goes by this proxy's own stores and lane, or over the link to the peer. Each way keeps its order;
//! one would overtake the other.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::device::layout::{MAX_RANKS, MAX_REQUEST_BYTES, QueueCounters, Response};
use crate::device::request::{PHASE, Request};

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
        // SAFETY: whoever called `new` keeps the counters there, aligned, as long as the consumer; their
        // fields are atomic.
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
        // SAFETY: the answers follow the counters, one for each slot; whoever called `new` keeps all of them
        // there as long as the consumer.
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

/// Joins transfers that go the same way and whose bytes lie one behind the other at both ends. Requests that
/// are under way together have no order among each other, so a transfer may join one that is not the last.
/// What `packed` held before is gone; its room is used again.
pub fn pack(transfers: impl IntoIterator<Item = Request>, packed: &mut Vec<Request>) {
    packed.clear();
    for next in transfers {
        let joined = packed.last_mut().is_some_and(|last| join(last, &next));
        if !joined {
            packed.push(next);
        }
    }
}

/// Makes `first` both, if they are neighbours.
fn join(first: &mut Request, next: &Request) -> bool {
    let Request::Transfer { is_get, there, local, local_offset, bytes } = first else { return false };
    let Request::Transfer { is_get: get, there: to, local: from, local_offset: offset, bytes: more } = next
    else {
        return false;
    };
    let is_neighbour = *is_get == *get
        && (there.peer, there.window, *local) == (to.peer, to.window, *from)
        && there.offset + *bytes == to.offset
        && *local_offset + *bytes == *offset
        && *bytes + *more <= MAX_REQUEST_BYTES;
    if is_neighbour {
        *bytes += *more;
    }
    is_neighbour
}

/// How a signal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalPath {
    /// By this proxy.
    Mapped = 0,
    /// Over the link to the peer's proxy.
    Linked = 1,
}

/// The last signal to each peer by each way.
#[derive(Debug)]
pub struct SignalOrder(Vec<[Option<u64>; 2]>);

impl Default for SignalOrder {
    fn default() -> Self {
        Self(vec![[None; 2]; MAX_RANKS])
    }
}

impl SignalOrder {
    /// Takes a signal with a number of the queue; the last one of the other way, behind which it has to come.
    pub fn push(&mut self, peer: u32, path: SignalPath, number: u64) -> Option<u64> {
        let last = &mut self.0[peer as usize];
        last[path as usize] = Some(number);
        last[1 - path as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::request::RemoteRange;

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

    fn put(peer: u32, offset: u64, local_offset: u64, bytes: u64) -> Request {
        let there = RemoteRange { peer, window: 2, offset };
        Request::Transfer { is_get: false, there, local: 3, local_offset, bytes }
    }

    fn pack(transfers: impl IntoIterator<Item = Request>) -> Vec<Request> {
        let mut packed = vec![put(9, 0, 0, 1)];
        super::pack(transfers, &mut packed);
        packed
    }

    #[test]
    fn neighbours_become_one() {
        let packed = pack([put(1, 0, 64, 8), put(1, 8, 72, 8), put(1, 16, 80, 100), put(2, 116, 180, 4)]);
        assert_eq!(packed, [put(1, 0, 64, 116), put(2, 116, 180, 4)]);
        // Neighbours at one end alone are two.
        assert_eq!(pack([put(1, 0, 64, 8), put(1, 8, 80, 8)]).len(), 2);
        assert_eq!(
            pack([put(1, 0, 0, MAX_REQUEST_BYTES), put(1, MAX_REQUEST_BYTES, MAX_REQUEST_BYTES, 1)]).len(),
            2
        );
    }

    fn apply(requests: &[Request], memory: &mut [[u8; 64]; 4]) {
        for request in requests {
            let Request::Transfer { is_get, there, local_offset, bytes, .. } = *request else { continue };
            for at in 0..bytes {
                let (there_at, here_at) = ((there.offset + at) as usize, (local_offset + at) as usize);
                if is_get {
                    memory[3][here_at] = memory[there.peer as usize][there_at];
                } else {
                    memory[there.peer as usize][there_at] = memory[3][here_at];
                }
            }
        }
    }

    proptest! {
        #[test]
        fn packed_transfers_do_the_same(
            parts in proptest::collection::vec((0..3_u32, 0..3_u64, 0..4_u64, any::<bool>()), 0..12),
        ) {
            // Runs of neighbours and breaks between them.
            let (mut offset, mut requests) = (0, Vec::new());
            for (peer, gap, bytes, is_get) in parts {
                let there = RemoteRange { peer, window: 2, offset: offset + gap };
                requests.push(Request::Transfer { is_get, there, local: 3, local_offset: offset, bytes });
                offset += bytes + gap;
            }
            let of_rank = |rank| core::array::from_fn(|at| (rank * 64 + at) as u8);
            let start: [[u8; 64]; 4] = core::array::from_fn(of_rank);
            let (mut one, mut other) = (start, start);
            apply(&requests, &mut one);
            apply(&pack(requests), &mut other);
            prop_assert_eq!(one, other);
        }
    }
}
