//! A queue between any number of threads on either side, which ends when one side has gone.
//!
//! It needs nothing of the calling thread: the channels of the standard library and of crossbeam ask for its handle,
//! which there is none of any more in the last destructors of a thread, where programs still call the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use core::sync::atomic::Ordering;

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

#[cfg(all(test, not(loom), not(shuttle)))]
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
}
