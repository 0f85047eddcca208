//! This rank's own parts of windows, as other ranks' proxies reach them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_ibverbs::{MemoryRegion, Segment};

use super::frame::{Frame, Position};
use crate::device::failure::Status;
use crate::device::gpu::Block;
use crate::locks::{Mutex, MutexGuard, rank};

/// How often it is looked whether a part is still used.
const RELEASE_INTERVAL: Duration = Duration::from_micros(50);

/// A part. It lives as long as somebody copies.
#[derive(Debug)]
pub struct Part {
    /// As the network card of the rank's links knows it, if that reaches it: in front of the memory, so that the
    /// card forgets it first.
    pub region: Option<MemoryRegion>,
    /// Its memory.
    pub memory: Arc<Block>,
    /// Bytes that belong to the window.
    pub bytes: u64,
    /// Whether the memory is the host's.
    pub in_host: bool,
}

/// A range of a part.
#[derive(Debug, Clone)]
pub struct PartRange {
    /// Of which.
    pub part: Arc<Part>,
    /// Where it begins.
    pub address: u64,
}

impl PartRange {
    /// So many of its bytes for a request to the rank's own card, if that reaches them.
    pub fn segment(&self, bytes: u64) -> Option<Segment> {
        let region = self.part.region.as_ref()?;
        Some(region.segment((self.address - self.part.memory.address) as usize, bytes as usize))
    }
}

/// The parts, by how many windows the team had made before.
#[derive(Debug, Default)]
pub struct Parts(Mutex<rank::Leaf, BTreeMap<u32, Arc<Part>>>);

impl Parts {
    fn lock(&self) -> MutexGuard<'_, rank::Leaf, BTreeMap<u32, Arc<Part>>> {
        // A panic of another thread leaves nothing half done.
        self.0.lock()
    }

    /// Adds a part, before other ranks hear of it.
    pub fn add(&self, window: u32, part: Part) {
        self.lock().insert(window, Arc::new(part));
    }

    /// What a peer's card needs to know of the first part from this number on that a card reaches.
    pub fn next_exposed(&self, from: u32) -> Option<Frame> {
        let parts = self.lock();
        let mut exposed = parts.range(from..).filter_map(|(window, part)| {
            let memory = part.region.as_ref()?.remote(0);
            Some(Frame::Window {
                window: *window,
                address: memory.address,
                bytes: part.bytes,
                key: memory.key,
                in_host: part.in_host,
            })
        });
        exposed.next()
    }

    /// Whether there is a part of this number, or may be one later.
    pub fn may_have(&self, window: u32) -> bool {
        let parts = self.lock();
        parts.contains_key(&window) || parts.keys().next_back().is_none_or(|last| window > *last)
    }

    /// Takes one away, which no kernel uses.
    pub fn remove(&self, window: u32) {
        let part = self.lock().remove(&window);
        // Its memory is freed here, where no thread waits for the lock.
        drop(part);
    }

    /// The same for memory that this does not free, which nothing copies from or to any more when it returns; false
    /// where that is not so within the limit: a peer takes nothing, or a lane stands still.
    pub fn remove_unused(&self, window: u32, limit: Duration) -> bool {
        let Some(part) = self.lock().remove(&window) else { return true };
        let until = Instant::now() + limit;
        // Who copies has all of it: the thread of the links, which returns it at the end of the team, too.
        while Arc::strong_count(&part) > 1 {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(RELEASE_INTERVAL);
        }
        true
    }

    /// So many bytes at a position.
    ///
    /// # Errors
    /// When they do not lie in a window.
    pub fn find(&self, position: Position, bytes: u64) -> Result<PartRange, Status> {
        let part = self.lock().get(&position.window).cloned().ok_or(Status::OtherTeam)?;
        if position.offset > part.bytes || bytes > part.bytes - position.offset {
            return Err(Status::OutOfBounds);
        }
        let address = part.memory.address + position.offset;
        Ok(PartRange { part, address })
    }

    /// The word at a position.
    ///
    /// # Errors
    /// Also when it does not lie at a multiple of 8.
    pub fn find_word(&self, position: Position) -> Result<PartRange, Status> {
        if position.offset.is_multiple_of(8) { self.find(position, 8) } else { Err(Status::Misaligned) }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn ranges_lie_in_a_part_that_is_there_or_are_refused() {
        let parts = Parts::default();
        let at = |window, offset| Position { window, offset };
        let memory = Arc::new(Block { address: 4096, bytes: 64, descriptor: None, owner: Box::new(()) });
        assert_eq!(parts.find(at(3, 0), 1).map(drop), Err(Status::OtherTeam));
        parts.add(3, Part { region: None, memory: Arc::clone(&memory), bytes: 40, in_host: true });
        assert_eq!(parts.find(at(3, 8), 32).map(|range| range.address), Ok(4104));
        for (offset, bytes) in [(8, 33), (41, 0), (u64::MAX, 2), (1, u64::MAX)] {
            assert_eq!(
                parts.find(at(3, offset), bytes).map(drop),
                Err(Status::OutOfBounds),
                "{offset} {bytes}"
            );
        }
        assert_eq!(parts.find_word(at(3, 4)).map(drop), Err(Status::Misaligned));
        let held = parts.find_word(at(3, 32)).unwrap();
        parts.remove(3);
        assert_eq!(parts.find(at(3, 0), 1).map(drop), Err(Status::OtherTeam));
        assert_eq!(Arc::strong_count(&memory), 2, "the copy still has it");
        drop(held);
        assert_eq!(Arc::strong_count(&memory), 1);
    }

    #[test]
    fn memory_of_the_program_is_given_back_behind_the_last_copy() {
        let parts = Parts::default();
        let memory = Arc::new(Block { address: 4096, bytes: 64, descriptor: None, owner: Box::new(()) });
        parts.add(1, Part { region: None, memory: Arc::clone(&memory), bytes: 64, in_host: false });
        let held = parts.find(Position { window: 1, offset: 0 }, 8).unwrap();
        let copied = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let freeing = scope.spawn(|| {
                assert!(parts.remove_unused(1, Duration::from_secs(3600)));
                copied.load(Ordering::Acquire)
            });
            while parts.find(Position { window: 1, offset: 0 }, 8).is_ok() {
                std::thread::yield_now();
            }
            copied.store(true, Ordering::Release);
            drop(held);
            assert!(freeing.join().unwrap(), "it came back while something was copied");
        });
        assert!(parts.remove_unused(1, Duration::ZERO), "there is none any more");
        parts.add(2, Part { region: None, memory, bytes: 64, in_host: false });
        let _held = parts.find(Position { window: 2, offset: 0 }, 8).unwrap();
        assert!(!parts.remove_unused(2, Duration::ZERO), "it is still copied");
        assert!(parts.find(Position { window: 2, offset: 0 }, 8).is_err());
    }
}
