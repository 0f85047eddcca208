//! Queue and offers: items that pass between threads, in turn or by number.
//!
//! A queue is between any number of threads on either side, and ends when one side has gone. It needs nothing
//! of the calling thread: the channels of the standard library and of crossbeam ask for its handle, which
//! there is none of any more in the last destructors of a thread, where programs still call the driver.
//!
//! What one side has offered the other may take once, by number: its owner has it back when the other side
//! has declined it or is done with it. Who has taken something may use it until it says that it is done. So
//! an owner that withdraws an offer waits for that, and may free what was offered afterwards, whichever of
//! the two came first.

use core::sync::atomic::Ordering;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::face::AtomicUsize;
use crate::monitor::Monitor;

struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

struct Shared<T> {
    state: Monitor<State<T>>,
    /// How many items there are, so that who looks in vain takes no lock; written under the lock.
    length: AtomicUsize,
}

/// The end that items are put into.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end that items are taken from.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A queue without items.
pub fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let state = Monitor::new(State { items: VecDeque::new(), senders: 1, receivers: 1 });
    let shared = Arc::new(Shared { state, length: AtomicUsize::new(0) });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts an item behind all others.
    ///
    /// # Errors
    /// The item, when there is nobody any more who could take it.
    pub fn send(&self, item: T) -> Result<(), T> {
        self.0.state.change_for(1, |state| {
            if state.receivers == 0 {
                return Err(item);
            }
            state.items.push_back(item);
            self.0.length.store(state.items.len(), Ordering::Release);
            Ok(())
        })
    }
}

impl<T> Receiver<T> {
    /// The first item, if there is one now.
    pub fn try_receive(&self) -> Option<T> {
        if self.0.length.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.take(&mut self.0.state.lock())
    }

    /// Sleeps until there is an item; nothing when there is none, and nobody any more who could send one.
    pub fn receive(&self) -> Option<T> {
        self.0.state.wait(|state| match self.take(state) {
            None if state.senders > 0 => None,
            item => Some(item),
        })
    }

    fn take(&self, state: &mut State<T>) -> Option<T> {
        let item = state.items.pop_front();
        self.0.length.store(state.items.len(), Ordering::Release);
        item
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.change(|state| state.senders -= 1);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        let left = core::mem::take(&mut state.items);
        self.0.length.store(0, Ordering::Release);
        drop(state);
        // Whoever waits for what is in them hears of it by their own destructors, without the lock.
        drop(left);
    }
}

/// Offers by number. The value of one that is taken is with whoever took it.
#[derive(Debug)]
pub struct Offers<T>(Monitor<HashMap<u64, Option<T>>>);

impl<T> Offers<T> {
    /// Nothing is offered.
    pub fn new() -> Self {
        Self(Monitor::new(HashMap::new()))
    }

    /// Offers something by a number that no other offer has.
    pub fn offer(&self, number: u64, value: T) {
        self.0.lock().insert(number, Some(value));
    }

    /// Whether any offer has not ended.
    pub fn is_any(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Takes what is offered; nothing where it is not, or not any more. The offer ends with [`complete`](Self::complete).
    pub fn take(&self, number: u64) -> Option<T> {
        self.0.lock().get_mut(&number).and_then(Option::take)
    }

    /// Ends an offer that was declined, or taken and used. Returns what was not taken.
    pub fn complete(&self, number: u64) -> Option<T> {
        self.0.change(|offers| offers.remove(&number)).flatten()
    }

    /// Ends an offer unless it is taken, and waits until whoever has taken it has settled it.
    pub fn withdraw(&self, number: u64) {
        if !self.end_untaken(number) {
            self.0.wait(|offers| is_complete(offers, number));
        }
    }

    /// Waits until an offer is settled. Looks now and then whether the other side `is_lost`: then nobody takes it any
    /// more, and it ends unless it is taken.
    pub fn wait(&self, number: u64, check_interval: Duration, is_lost: impl Fn() -> bool) {
        while self.0.wait_for(check_interval, |offers| is_complete(offers, number)).is_none() {
            if is_lost() {
                self.end_untaken(number);
            }
        }
    }

    /// Ends an offer unless it is taken; whether it has ended.
    fn end_untaken(&self, number: u64) -> bool {
        let is_taken = |offers: &HashMap<_, _>| offers.get(&number).is_some_and(Option::is_none);
        self.0.change(|offers| {
            let ends = !is_taken(offers);
            if ends {
                offers.remove(&number);
            }
            ends
        })
    }
}

impl<T> Default for Offers<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn is_complete<T>(offers: &mut HashMap<u64, Option<T>>, number: u64) -> Option<()> {
    (!offers.contains_key(&number)).then_some(())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_order_until_all_senders_have_gone() {
        let (sender, receiver) = queue();
        let other = sender.clone();
        assert_eq!(receiver.try_receive(), None);
        sender.send(1).unwrap();
        other.send(2).unwrap();
        drop(sender);
        assert_eq!((receiver.try_receive(), receiver.receive()), (Some(1), Some(2)));
        let waiting = std::thread::spawn(move || receiver.receive());
        drop(other);
        assert_eq!(waiting.join().unwrap(), None);
    }

    #[test]
    fn without_a_receiver_items_come_back() {
        let (sender, receiver) = queue();
        let item = Arc::new(());
        sender.send(Arc::clone(&item)).unwrap();
        drop(receiver);
        assert_eq!(Arc::strong_count(&item), 1, "what nobody takes is dropped");
        assert!(sender.send(Arc::clone(&item)).is_err());
    }

    #[test]
    fn an_offer_is_taken_once_and_ends_once() {
        let offers = Offers::new();
        offers.offer(1, "one");
        offers.offer(2, "two");
        assert_eq!((offers.take(1), offers.take(1), offers.take(3)), (Some("one"), None, None));
        assert_eq!(offers.complete(1), None, "it was taken");
        assert_eq!(offers.complete(2), Some("two"));
        offers.withdraw(2);
        assert_eq!(offers.take(2), None);
    }

    #[test]
    fn a_wait_ends_when_the_other_side_is_lost() {
        let offers = Offers::new();
        offers.offer(1, ());
        offers.wait(1, Duration::from_millis(1), || true);
        assert_eq!(offers.take(1), None);
    }
}
