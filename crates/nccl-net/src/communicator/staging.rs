//! Copies of GPUs for the parts of messages: into blocks of the host before they are sent, and out of them when they have
//! come; and from memory that the sender has exported.
//!
//! The first lane's worker alone begins and looks at copies (`advance_*`), so that its lock is waited for by those that
//! only add to a queue, and by the end of the communicator, when that worker has let go of it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_cuda::{CudaError, PendingCopy};

use crate::engine::{Frame, NO_REQUEST, Output};
use crate::gpu::{GpuMemory, ImportedMemory, MAX_COPIES};
use crate::staging_block::StagingBlock;

/// Where the number of a block stands in the token of what is written, above the request.
const BLOCK_SHIFT: u32 = 32;

/// A part that is to be copied from a GPU before it is sent.
struct Fetch {
    gpu: GpuMemory,
    from: u64,
    header: Frame,
    request: u32,
    lane: usize,
}

/// A copy, and what it needs until it is done.
struct Running<T> {
    copy: PendingCopy,
    of: T,
}

/// A copy at the receiver: of a part, or of a whole message that was offered.
pub(super) struct Delivery {
    pub(super) message: u64,
    pub(super) bytes: u64,
    pub(super) source: Source,
}

/// What a delivery is copied from, which stays until it is done.
pub(super) enum Source {
    /// The part that came.
    Block {
        /// It goes back to the others.
        _block: StagingBlock,
    },
    /// The sender's memory.
    Exported {
        /// It stays mapped.
        _memory: Arc<ImportedMemory>,
    },
}

/// What is to be copied at the receiver.
pub(super) struct PendingDelivery {
    pub(super) gpu: GpuMemory,
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) of: Delivery,
}

/// The copies of a communicator.
#[derive(Default)]
pub(super) struct Staging {
    /// Parts that wait for a copy.
    fetches: Mutex<VecDeque<Fetch>>,
    /// Copies into blocks.
    fetching: Mutex<VecDeque<Running<(Fetch, StagingBlock)>>>,
    /// Blocks that are being written to lanes, by their numbers.
    writing: Mutex<HashMap<u32, StagingBlock>>,
    next_block: AtomicU32,
    /// What has come and waits for a copy.
    deliveries: Mutex<VecDeque<PendingDelivery>>,
    /// Copies to the receiver's memory.
    delivering: Mutex<VecDeque<Running<Delivery>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Staging {
    /// Sends a part when it is copied from a GPU.
    pub(super) fn fetch_later(&self, gpu: GpuMemory, from: u64, header: Frame, request: u32, lane: usize) {
        lock(&self.fetches).push_back(Fetch { gpu, from, header, request, lane });
    }

    /// Begins copies, and sends parts whose copies are done. Whether any is left.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn advance_fetches(&self, mut send: impl FnMut(usize, Output)) -> Result<bool, CudaError> {
        let mut fetching = lock(&self.fetching);
        while let Some(running) = fetching.front() {
            if !running.copy.is_done()? {
                break;
            }
            let Some(Running { of: (fetch, block), .. }) = fetching.pop_front() else { break };
            let number = self.next_block.fetch_add(1, Ordering::Relaxed) % (u32::MAX - 1) + 1;
            let payload = block.memory().cast_const();
            lock(&self.writing).insert(number, block);
            let token = u64::from(number) << BLOCK_SHIFT | u64::from(fetch.request);
            send(fetch.lane, Output { header: fetch.header, payload, token, descriptor: None });
        }
        // Blocks that lanes have not written yet count, too: a slow network takes no more than these.
        while fetching.len() + lock(&self.writing).len() < MAX_COPIES {
            let Some(fetch) = lock(&self.fetches).pop_front() else { break };
            let block = StagingBlock::take()?;
            let (to, bytes) = (block.memory() as u64, fetch.header.length as usize);
            // SAFETY: a part is no longer than a block, and NCCL keeps the message as it is until its request is done.
            let copy = unsafe { fetch.gpu.copy(to, fetch.from, bytes) }?;
            fetching.push_back(Running { copy, of: (fetch, block) });
        }
        Ok(!fetching.is_empty() || !lock(&self.fetches).is_empty())
    }

    /// Something is written: the request that it belongs to, if it does to any.
    pub(super) fn written(&self, token: u64) -> Option<u32> {
        if token == NO_REQUEST {
            return None;
        }
        lock(&self.writing).remove(&((token >> BLOCK_SHIFT) as u32));
        Some(token as u32)
    }

    /// Copies something that has come.
    pub(super) fn deliver_later(&self, delivery: PendingDelivery) {
        lock(&self.deliveries).push_back(delivery);
    }

    /// Begins copies, and reports those that are done. Whether any is left.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn advance_deliveries(&self, mut done: impl FnMut(&Delivery)) -> Result<bool, CudaError> {
        let mut delivering = lock(&self.delivering);
        while let Some(running) = delivering.front() {
            if !running.copy.is_done()? {
                break;
            }
            let Some(Running { of, .. }) = delivering.pop_front() else { break };
            done(&of);
        }
        while delivering.len() < MAX_COPIES {
            let Some(PendingDelivery { gpu, to, from, of }) = lock(&self.deliveries).pop_front() else {
                break;
            };
            // SAFETY: a part is no longer than its block, an offer lies in the memory that is mapped, and both in the
            // memory of the receive, which NCCL leaves alone until its request is done.
            let copy = unsafe {
                match of.source {
                    Source::Block { .. } => gpu.copy_from_host(to, from, of.bytes as usize),
                    Source::Exported { .. } => gpu.copy(to, from, of.bytes as usize),
                }
            }?;
            delivering.push_back(Running { copy, of });
        }
        Ok(!delivering.is_empty() || !lock(&self.deliveries).is_empty())
    }

    /// Waits until no copy goes on, and forgets those that have not begun. For when no lane is served any more.
    pub(super) fn wait(&self) {
        lock(&self.fetches).clear();
        lock(&self.deliveries).clear();
        let fetching = core::mem::take(&mut *lock(&self.fetching));
        let delivering = core::mem::take(&mut *lock(&self.delivering));
        // A copy that fails ends, too.
        fetching.into_iter().for_each(|Running { copy, of }| {
            let _ = copy.wait();
            drop(of);
        });
        delivering.into_iter().for_each(|Running { copy, of }| {
            let _ = copy.wait();
            drop(of);
        });
        lock(&self.writing).clear();
    }
}
