//! Which descriptors of another worker's memory have come and wait for the client's word?

use super::way::PATIENCE;
use causeway_link::DescriptorError;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Descriptors that may wait for the client's word. A client names each one before it has the next one sent.
const MOST_WAITING: usize = 64;

/// Descriptors of another worker's memory, by loan.
#[derive(Default)]
pub struct Descriptors {
    waiting: Mutex<FxHashMap<u64, Option<OwnedFd>>>,
    came: Condvar,
}

impl Descriptors {
    /// Takes in what came for a loan; false when too many wait.
    pub fn arrive(&self, loan: u64, descriptor: Result<OwnedFd, DescriptorError>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST_WAITING {
            return false;
        }
        waiting.insert(loan, descriptor.ok());
        self.came.notify_all();
        true
    }

    /// The descriptor for a loan, which may still be on its way.
    pub fn take(&self, loan: u64) -> Option<OwnedFd> {
        let deadline = Instant::now() + PATIENCE;
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(descriptor) = waiting.remove(&loan) {
                return descriptor;
            }
            if self.came.wait_until(&mut waiting, deadline).timed_out() {
                return waiting.remove(&loan).flatten();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_wait_for_the_clients_word_and_are_bounded() {
        let descriptors = Descriptors::default();
        assert!(descriptors.arrive(0, Err(DescriptorError::NotReceived)));
        assert!(descriptors.take(0).is_none());
        let file = || Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        assert!((0..MOST_WAITING as u64).all(|loan| descriptors.arrive(loan, file())));
        assert!(!descriptors.arrive(1000, file()));
        assert!(descriptors.take(3).is_some() && descriptors.arrive(1000, file()));
    }
}
