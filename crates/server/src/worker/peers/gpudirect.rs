//! What links between workers have besides bytes: descriptors of another worker's memory that are not used
//! yet, and GPUDirect RDMA.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use causeway_link::{DescriptorError, DeviceUse, Link};
use rustc_hash::FxHashMap;

use crate::locks::{Monitor, rank};
use crate::worker::rdma::{DeviceBlocks, GpuDirect};
use crate::worker::session::Session;

/// How long one end may need for what the other end, or the client, knows to be done.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// GPUDirect for a link to another worker, and in words whether there is any; nothing where the link has no
/// cards.
pub fn gpudirect(
    session: &Session,
    blocks: &Arc<DeviceBlocks>,
    link: &Link,
    usage: DeviceUse,
) -> (Option<GpuDirect>, String) {
    match GpuDirect::new(link, session.gpu(), blocks, usage) {
        Ok(direct) => {
            let text = direct.explain();
            (Some(direct), text)
        }
        Err(_) if !link.is_one_sided() => (None, String::new()),
        Err(why) => (None, why),
    }
}

/// Descriptors that may wait for the client's word. A client names each one before it has the next one sent.
const MAX_QUEUED: usize = 64;

/// Descriptors of another worker's memory, by import; none where it could not be received.
#[derive(Default)]
pub struct Descriptors(Monitor<rank::Leaf, FxHashMap<u64, Option<OwnedFd>>>);

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
