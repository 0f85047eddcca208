//! Descriptors of the client that were received and are not used yet.

use parking_lot::Mutex;
use std::collections::HashMap;

/// So many may wait for the commands that name them. A client names each right after it has sent it.
pub const MAX_QUEUED: usize = 256;

/// What waits for a command that names its number; nothing where it could not be taken.
pub struct Waiting<T>(Mutex<HashMap<u64, Option<T>>>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Waiting<T> {
    /// The client has handed something over under a number.
    pub fn arrive(&self, number: u64, what: Option<T>) {
        let mut arrived = self.0.lock();
        if arrived.len() < MAX_QUEUED {
            arrived.insert(number, what);
        } else {
            tracing::warn!("the client hands over memory without end and does not use it");
        }
    }

    /// Whether what has this number is there, or never will be.
    pub fn has_arrived(&self, number: u64) -> bool {
        let arrived = self.0.lock();
        arrived.contains_key(&number) || arrived.len() >= MAX_QUEUED
    }

    /// Takes out what has this number.
    pub fn take(&self, number: u64) -> Option<T> {
        self.0.lock().remove(&number).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_only_hands_over_is_stopped() {
        let waiting = Waiting::<()>::default();
        (0..2 * MAX_QUEUED as u64).for_each(|number| waiting.arrive(number, None));
        assert_eq!(waiting.0.lock().len(), MAX_QUEUED);
        // A command that names what was turned away is refused and waits for nothing.
        assert!(waiting.has_arrived(MAX_QUEUED as u64 + 1));
    }
}
