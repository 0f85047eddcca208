//! Memory of the client that kernels reach: the worker's copies of it, and what has changed in them.
//!
//! A mirror is written to by kernels at any time. What the client has changed is put in as soon as it comes, as on a
//! machine where both write to the same memory; what kernels have changed is looked for when the client asks.

use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_fabric::mirror::{Changes, find_changes, merge_changes, read_changes};
use causeway_gpu::{CuResult, Gpu, Staging};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A reply with more changes than this ends, and the client asks again.
const MOST_CHANGES: usize = 1 << 20;

struct Mirror {
    context: Handle<Context>,
    memory: Staging,
    /// What both ends last agreed on.
    known: Vec<u8>,
}

/// The mirrors of a session, by their addresses on the device.
#[derive(Default)]
pub struct Mirrors {
    table: Mutex<BTreeMap<u64, Mirror>>,
}

impl Mirrors {
    /// Makes a mirror at `address`, or anywhere for 0; it belongs to the current context, which is `context`.
    pub fn create(
        &self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        address: u64,
        bytes: usize,
    ) -> CuResult<u64> {
        let mut table = self.table.lock();
        let overlaps = |(start, mirror): (&u64, &Mirror)| {
            address < start + mirror.known.len() as u64 && *start < address.saturating_add(bytes as u64)
        };
        if bytes == 0 || address != 0 && table.iter().any(overlaps) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut known = Vec::new();
        known.try_reserve_exact(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        drop(known);
        let (address, memory) = gpu.shared_memory(address, bytes)?;
        // Zeroed by the system, page by page when it is first needed.
        known = vec![0; bytes];
        table.insert(address, Mirror { context, memory, known });
        Ok(address)
    }

    /// Takes memory of the back end as a mirror, if it is not one already.
    pub fn adopt(&self, address: u64, memory: Staging) {
        let known = vec![0; memory.len()];
        self.table.lock().entry(address).or_insert(Mirror { context: Handle::NULL, memory, known });
    }

    /// Takes a mirror out; the device must not use it any more when the result is dropped.
    pub fn remove(&self, address: u64) -> CuResult<impl Send + use<>> {
        self.table.lock().remove(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Takes the mirrors of a context out, which is about to end.
    pub fn end_context(&self, context: Handle<Context>) {
        self.table.lock().retain(|_, mirror| mirror.context != context);
    }

    /// Puts in what the client has changed.
    pub fn write(&self, changes: &[u8]) -> CuResult<()> {
        let mut table = self.table.lock();
        let mut outcome = Ok(());
        let read = read_changes(changes, |address, bytes| {
            let Some((start, mirror)) = table.range_mut(..=address).next_back() else {
                outcome = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                return;
            };
            let at = (address - start) as usize;
            let Some(known) = mirror.known.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) else {
                outcome = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                return;
            };
            // SAFETY: the memory has as many bytes as the known, which has these.
            unsafe { merge_changes(mirror.memory.as_ptr().add(at), known, bytes) };
        });
        read.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE).and(outcome)
    }

    /// Finds what kernels have changed from the address `start` on. Also says where to go on, 0 for nowhere.
    pub fn changes(&self, start: u64) -> (u64, Changes) {
        let mut changes = Changes::default();
        for (&address, mirror) in self.table.lock().iter_mut() {
            changes.separate();
            let length = mirror.known.len();
            let from = start.saturating_sub(address) as usize;
            if from >= length {
                continue;
            }
            // SAFETY: the memory has as many bytes as the known.
            let stopped = unsafe {
                find_changes(mirror.memory.as_ptr(), &mut mirror.known, from, length, |at, bytes| {
                    changes.add(address + at as u64, bytes);
                    changes.len() < MOST_CHANGES
                })
            };
            if changes.len() >= MOST_CHANGES {
                return (address + stopped as u64, changes);
            }
        }
        (0, changes)
    }
}
