//! What one side has offered and the other may take once, by number: its owner has it back when the other side has
//! declined it or is done with it.
//!
//! Who has taken something may use it until it says that it is done. So an owner that withdraws an offer waits for that,
//! and may free what was offered afterwards, whichever of the two came first.

use std::collections::HashMap;
use std::time::Duration;

use crate::monitor::Monitor;

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
