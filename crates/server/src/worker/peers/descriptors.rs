//! Descriptors of another worker's memory that were received and are not used yet.

use super::gpudirect::PEER_TIMEOUT;
use causeway_link::DescriptorError;
use causeway_sync::Monitor;
use rustc_hash::FxHashMap;
use std::os::fd::OwnedFd;

/// Descriptors that may wait for the client's word. A client names each one before it has the next one sent.
const MAX_QUEUED: usize = 64;

/// Descriptors of another worker's memory, by import; none where it could not be received.
#[derive(Default)]
pub struct Descriptors(Monitor<FxHashMap<u64, Option<OwnedFd>>>);

impl Descriptors {
    /// Takes in what came for an import; false when too many wait.
    pub fn arrive(&self, import: u64, descriptor: Result<OwnedFd, DescriptorError>) -> bool {
        self.0.change(|waiting| {
            let has_capacity = waiting.len() < MAX_QUEUED;
            if has_capacity {
                waiting.insert(import, descriptor.ok());
            }
            has_capacity
        })
    }

    /// The descriptor for an import, which may still be on its way.
    pub fn take(&self, import: u64) -> Option<OwnedFd> {
        self.0.wait_for(PEER_TIMEOUT, |waiting| waiting.remove(&import)).flatten()
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
        assert!((0..MAX_QUEUED as u64).all(|import| descriptors.arrive(import, file())));
        assert!(!descriptors.arrive(1000, file()));
        assert!(descriptors.take(3).is_some() && descriptors.arrive(1000, file()));
    }
}
