//! Send queue accounting: free slots, signalled requests, completions, operations of several requests, and
//! coalescing.
//!
//! Completions cost the card and the host time, so of sends and writes only one in an interval asks for one,
//! and ends those before it as well. A read is ended by its own completion alone: the standards have requests
//! complete in their order, but Soft-iWARP (`siw`, Linux 6.1) completes a send once it is with TCP, before
//! the bytes of a read that was posted earlier have come. Whoever took that for the read's end would use
//! memory that the bytes have yet to reach.
//!
//! Coalescing: a message costs both ends nearly the same whether it brings 64 bytes or thousands. As long as few messages
//! with short transfers are under way, each transfer goes at once; when there are more, those that follow
//! wait until some of them are known to have come, and go together. That is Nagle's rule (RFC 896), and like
//! there a full message need not wait for that. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use causeway_transport::{LinkError, OnComplete};
use parking_lot::Mutex;

use crate::error::Violation;

/// The account of a send queue; `T` is what follows from the end of a request.
#[derive(Debug, Clone)]
pub struct SendQueue<T> {
    capacity: u64,
    interval: u64,
    posted: u64,
    /// The latest request that has completed: all sends and writes up to it are done.
    completed: u64,
    /// Requests since the last one that asked for a completion.
    unsignalled: u64,
    /// Sends and writes under way from whose end something follows, by their ids, in their order.
    others: VecDeque<(u64, T)>,
    /// Reads under way, in the same way.
    reads: VecDeque<(u64, T)>,
}

/// A request that has been given an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What its completion is called: how many requests have been posted with it.
    pub id: u64,
    /// Whether the request asks for a completion.
    pub is_signalled: bool,
}

impl<T> SendQueue<T> {
    /// A queue for `capacity` requests, one in `interval` of which asks for a completion. The interval is
    /// made so small that a full queue always has a completion to come, and a second one before it is half
    /// empty.
    pub fn new(capacity: u32, interval: u32) -> Self {
        let capacity = u64::from(capacity.max(1));
        let interval = u64::from(interval).clamp(1, (capacity / 4).max(1));
        let (others, reads) = Default::default();
        Self { capacity, interval, posted: 0, completed: 0, unsignalled: 0, others, reads }
    }

    /// Entries that are free.
    pub fn free_slots(&self) -> u32 {
        let overtaken = self.reads.partition_point(|(id, _)| *id <= self.completed) as u64;
        (self.capacity - (self.posted - self.completed) - overtaken) as u32
    }

    /// The latest request that has completed: sends and writes up to it are done.
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Gives the next request, a send or a write, an entry.
    ///
    /// # Panics
    /// Without room.
    pub fn post(&mut self) -> Entry {
        assert!(self.free_slots() > 0, "a request is posted only where there is room");
        self.posted += 1;
        self.unsignalled += 1;
        let is_signalled = self.unsignalled >= self.interval;
        if is_signalled {
            self.unsignalled = 0;
        }
        Entry { id: self.posted, is_signalled }
    }

    /// What follows from the end of the send or write that was posted last.
    pub fn follows(&mut self, what: T) {
        self.others.push_back((self.posted, what));
    }

    /// Gives a read an entry, from whose end `what` follows; the read's id. It must ask for a completion.
    ///
    /// # Panics
    /// Without room.
    pub fn post_read(&mut self, what: T) -> u64 {
        assert!(self.free_slots() > 0, "a read is posted only where there is room");
        self.posted += 1;
        // It ends the sends and writes before it.
        self.unsignalled = 0;
        self.reads.push_back((self.posted, what));
        self.posted
    }

    /// A completion has come: the request is done, and so are all sends and writes before it. `ended` is told
    /// what follows.
    pub fn complete(&mut self, id: u64, mut ended: impl FnMut(T)) -> Result<(), Violation> {
        if id > self.posted {
            return Err(Violation::Completion);
        }
        if let Ok(index) = self.reads.binary_search_by_key(&id, |(read, _)| *read)
            && let Some((_, what)) = self.reads.remove(index)
        {
            ended(what);
        }
        self.completed = self.completed.max(id);
        while let Some((_, what)) = self.others.pop_front_if(|(other, _)| *other <= id) {
            ended(what);
        }
        Ok(())
    }

    /// What would follow from the ends of all that is under way.
    pub fn in_flight(&mut self) -> impl Iterator<Item = &mut T> {
        self.others.iter_mut().chain(&mut self.reads).map(|(_, what)| what)
    }
}

/// Work of one or more requests, on whichever queue pairs.
pub struct Operation {
    left: AtomicU32,
    then: Mutex<Option<OnComplete>>,
    is_over: AtomicBool,
}

impl Operation {
    /// Work of so many requests.
    pub fn new(requests: u32, then: OnComplete) -> Arc<Self> {
        let (left, is_over) = (AtomicU32::new(requests), AtomicBool::new(false));
        Arc::new(Self { left, then: Mutex::new(Some(then)), is_over })
    }

    /// One of the requests is done.
    pub fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(Ok(()));
        }
    }

    /// The link has ended.
    pub fn fail(&self, cause: &LinkError) {
        self.end(Err(cause.clone()));
    }

    fn end(&self, outcome: Result<(), LinkError>) {
        let then = self.then.lock().take();
        if let Some(then) = then {
            then(outcome);
            self.is_over.store(true, Ordering::Release);
        }
    }

    /// Whether what follows has been done.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Messages that may be under way when another one goes that is not full, where somebody polls for their
/// completions all the time.
const FEW: u32 = 4;

/// The same for full messages, and where completions are looked for now and then: each has a place in memory
/// of its own.
pub const SLOTS: u32 = 8;

/// One message in so many has a completion: at least one of the [`FEW`], and one more so that the wire is not
/// idle until it is noticed.
const INTERVAL: u64 = 2;

/// The messages of a queue pair that bring transfers.
#[derive(Debug, Clone, Default)]
pub struct Coalescer {
    sent: u64,
    in_flight: u32,
}

/// A message that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its place in memory, of [`SLOTS`].
    pub slot: u32,
    /// Whether the message asks for a completion even if it brings one transfer from where that lies, so that
    /// its place is not used.
    pub is_signalled: bool,
}

impl Coalescer {
    /// Whether a message may go now, and need not wait for more transfers. `attends`: somebody polls for
    /// completions.
    pub fn may_send(&self, is_full: bool, attends: bool) -> bool {
        self.in_flight < if is_full || !attends { SLOTS } else { FEW }
    }

    /// A message is sent.
    pub fn send(&mut self) -> Sent {
        let slot = (self.sent % u64::from(SLOTS)) as u32;
        self.sent += 1;
        self.in_flight += 1;
        Sent { slot, is_signalled: self.sent.is_multiple_of(INTERVAL) }
    }

    /// The oldest message that is under way is with the peer.
    pub fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use proptest::prelude::*;

    use super::*;

    /// What follows from a completion.
    fn ended<T>(queue: &mut SendQueue<T>, id: u64) -> Vec<T> {
        let mut all = Vec::new();
        queue.complete(id, |what| all.push(what)).unwrap();
        all
    }

    #[test]
    fn a_full_queue_always_has_a_completion_to_come() {
        for capacity in 1..100 {
            for interval in [1, 2, 16, 1000] {
                let mut queue = SendQueue::<()>::new(capacity, interval);
                let mut signalled = Vec::new();
                for round in 0..5 * capacity {
                    while queue.free_slots() > round % capacity {
                        let entry = queue.post();
                        signalled.extend(entry.is_signalled.then_some(entry.id));
                    }
                    while queue.free_slots() == 0 {
                        let first = signalled.remove(0);
                        ended(&mut queue, first);
                    }
                }
            }
        }
    }

    #[test]
    fn one_request_in_an_interval_is_signalled() {
        let mut queue = SendQueue::<()>::new(64, 8);
        let signalled = (0..64).filter(|_| queue.post().is_signalled).count();
        assert_eq!((signalled, queue.free_slots()), (8, 0));
        ended(&mut queue, 8);
        assert_eq!(queue.free_slots(), 8);
        assert_eq!(queue.complete(65, |()| {}), Err(Violation::Completion));
    }

    #[test]
    fn a_read_outlasts_the_completions_of_what_was_posted_after_it() {
        let mut queue = SendQueue::new(8, 2);
        queue.post();
        queue.follows("a write");
        let read = queue.post_read("a read");
        let sends: Vec<u64> = (0..6).map(|_| queue.post().id).collect();
        queue.follows("the last send");
        assert_eq!(queue.free_slots(), 0);
        assert_eq!(ended(&mut queue, sends[3]), ["a write"]);
        assert_eq!(
            (queue.free_slots(), queue.completed()),
            (5, sends[3]),
            "the read and two sends have entries"
        );
        assert_eq!(ended(&mut queue, sends[5]), ["the last send"]);
        assert_eq!(queue.free_slots(), 7);
        assert_eq!(ended(&mut queue, read), ["a read"]);
        assert_eq!((queue.free_slots(), queue.completed()), (8, sends[5]));
        assert!(ended(&mut queue, read).is_empty(), "a read ends once");
    }

    #[test]
    fn no_read_is_the_end_of_another_one_but_of_the_writes_before_it() {
        let mut queue = SendQueue::new(4, 4);
        let first = queue.post_read("the first");
        queue.post();
        queue.follows("a write");
        let second = queue.post_read("the second");
        queue.post();
        queue.follows("a later write");
        assert_eq!(ended(&mut queue, second), ["the second", "a write"]);
        assert_eq!(queue.free_slots(), 2);
        assert!(queue.in_flight().eq([&mut "a later write", &mut "the first"]));
        assert_eq!(ended(&mut queue, first), ["the first"]);
        assert_eq!(queue.free_slots(), 3);
    }

    proptest! {
        /// Sends complete at once and reads later, as with Soft-iWARP: what a model without selective
        /// signalling says is what the queue says, whichever completions there are.
        #[test]
        fn whatever_completes_first_each_request_ends_once_and_its_entry_is_free_again(
            capacity in 1_u32..20,
            interval in 1_u32..20,
            steps in prop::collection::vec(0_u8..4, 0..400),
        ) {
            let mut queue = SendQueue::new(capacity, interval);
            // The ids of reads under way, and those of sends: those that will have a completion, and those
            // without.
            let mut reads = VecDeque::new();
            let mut sends: VecDeque<(u64, bool)> = VecDeque::new();
            for step in steps {
                let is_full = queue.free_slots() == 0;
                match step {
                    0 if !is_full => {
                        let id = queue.posted + 1;
                        prop_assert_eq!(queue.post_read(id), id);
                        reads.push_back(id);
                    }
                    1 if !is_full => {
                        let entry = queue.post();
                        queue.follows(entry.id);
                        sends.push_back((entry.id, entry.is_signalled));
                    }
                    2 => if let Some(read) = reads.pop_front() {
                        let mut expected = vec![read];
                        while let Some((id, _)) = sends.pop_front_if(|(id, _)| *id < read) {
                            expected.push(id);
                        }
                        prop_assert_eq!(ended(&mut queue, read), expected);
                    },
                    _ => if let Some(index) = sends.iter().position(|(_, is_signalled)| *is_signalled) {
                        let expected: Vec<u64> = sends.drain(..=index).map(|(id, _)| id).collect();
                        let id = expected[index];
                        prop_assert_eq!(ended(&mut queue, id), expected);
                    },
                }
                prop_assert_eq!(queue.free_slots() as usize, capacity as usize - reads.len() - sends.len());
                let has_one_to_come = !reads.is_empty() || sends.iter().any(|(_, is_signalled)| *is_signalled);
                prop_assert!(queue.free_slots() > 0 || has_one_to_come);
            }
        }
    }

    #[test]
    fn what_follows_comes_once_and_after_the_last_request() {
        let (sender, ended) = mpsc::channel();
        let of = |requests| {
            let sender = sender.clone();
            Operation::new(requests, Box::new(move |outcome| sender.send(outcome.is_ok()).unwrap()))
        };
        let operation = of(2);
        operation.done();
        assert!(ended.try_recv().is_err() && !operation.is_over());
        operation.done();
        operation.fail(&LinkError::PeerDisconnected);
        assert!(ended.try_iter().eq([true]) && operation.is_over());
        of(3).fail(&LinkError::PeerDisconnected);
        assert!(ended.try_iter().eq([false]));
    }

    #[test]
    fn few_messages_go_at_once_and_then_only_full_ones() {
        let mut bundles = Coalescer::default();
        for _ in 0..FEW {
            assert!(bundles.may_send(false, true));
            bundles.send();
        }
        assert!(!bundles.may_send(false, true) && bundles.may_send(false, false));
        while bundles.may_send(true, true) {
            bundles.send();
        }
        assert_eq!(bundles.in_flight, SLOTS);
        (FEW..SLOTS + 1).for_each(|_| bundles.done());
        assert!(bundles.may_send(false, true));
    }

    #[test]
    fn whoever_waits_has_a_completion_to_come_and_no_place_is_used_twice_at_a_time() {
        for before in 0..4 {
            let mut bundles = Coalescer::default();
            (0..before).for_each(|_| {
                bundles.send();
                bundles.done();
            });
            let mut in_flight = Vec::new();
            while bundles.may_send(false, true) {
                in_flight.push(bundles.send());
            }
            assert!(in_flight.iter().any(|sent| sent.is_signalled));
            while bundles.may_send(true, true) {
                in_flight.push(bundles.send());
            }
            let mut places: Vec<_> = in_flight.iter().map(|sent| sent.slot).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..SLOTS));
        }
    }
}
