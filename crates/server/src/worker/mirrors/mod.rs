//! Memory of the client that kernels reach: the worker's copies of it, and what has changed in them.
//!
//! A mirror is written to by kernels at any time. What the client has changed is put in as soon as it comes, as on a
//! machine where both write to the same memory; what kernels have changed is looked for when the client asks.

use causeway_api::calls::mirror_create;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_fabric::mirror::{Changes, find_changes, merge_changes, read_changes};
use causeway_gpu::{CuResult, DeviceBytes, Gpu, Shared, Staging};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// A reply with more changes than this ends, and the client asks again.
const MOST_CHANGES: usize = 1 << 20;

/// Memory of a device is looked through in pieces of this size: one copy takes as long as a few of the small ones.
const PIECE: usize = 4 << 20;

struct Mirror {
    context: Handle<Context>,
    memory: Shared,
    /// What both ends last agreed on.
    known: Vec<u8>,
}

/// The mirrors of a session, by their addresses on the device.
#[derive(Default)]
pub struct Mirrors {
    table: Mutex<BTreeMap<u64, Mirror>>,
}

impl Mirrors {
    /// Makes a mirror, which belongs to the current context: that is `context`.
    pub fn create(&self, gpu: &dyn Gpu, context: Handle<Context>, request: &mirror_create) -> CuResult<u64> {
        let (address, bytes) = (request.address, request.size);
        let mut table = self.table.lock();
        let overlaps = |(start, mirror): (&u64, &Mirror)| {
            address < start + mirror.known.len() as u64 && *start < address.saturating_add(bytes as u64)
        };
        if bytes == 0 || address != 0 && table.iter().any(overlaps) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let known = zeroed(bytes)?;
        let (address, memory) = gpu.shared_memory(address, bytes, request.managed != 0)?;
        table.insert(address, Mirror { context, memory, known });
        Ok(address)
    }

    /// Takes memory of the back end as a mirror, if it is not one already.
    pub fn adopt(&self, address: u64, memory: Staging) -> CuResult<()> {
        let known = zeroed(memory.len())?;
        let mirror = Mirror { context: Handle::NULL, memory: Shared::Here(memory), known };
        self.table.lock().entry(address).or_insert(mirror);
        Ok(())
    }

    /// Takes a mirror out, and says how many bytes it has; the device must not use it any more when it is dropped.
    pub fn remove(&self, address: u64) -> CuResult<(impl Send + use<>, usize)> {
        let mirror = self.table.lock().remove(&address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let bytes = mirror.known.len();
        Ok((mirror, bytes))
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
            let put = match table.range_mut(..=address).next_back() {
                Some((start, mirror)) => mirror.put((address - start) as usize, bytes),
                None => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            };
            outcome = outcome.and(put);
        });
        read.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE).and(outcome)
    }

    /// Finds what kernels have changed from the address `start` on. Also says where to go on, 0 for nowhere.
    pub fn changes(&self, gpu: &dyn Gpu, start: u64) -> CuResult<(u64, Changes)> {
        let mut changes = Changes::default();
        for (&address, mirror) in self.table.lock().iter_mut() {
            changes.separate();
            let from = start.saturating_sub(address) as usize;
            if from >= mirror.known.len() {
                continue;
            }
            let stopped = mirror.find(gpu, from, |at, bytes| {
                changes.add(address + at as u64, bytes);
                changes.len() < MOST_CHANGES
            })?;
            if changes.len() >= MOST_CHANGES {
                return Ok((address + stopped as u64, changes));
            }
        }
        Ok((0, changes))
    }
}

impl Mirror {
    /// Puts in the client's bytes from `at` on.
    fn put(&mut self, at: usize, bytes: &[u8]) -> CuResult<()> {
        let known = self.known.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
        let known = known.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        match &self.memory {
            // SAFETY: the memory has as many bytes as the known, which has these.
            Shared::Here(memory) => unsafe { merge_changes(memory.as_ptr().add(at), known, bytes) },
            // The program may touch managed memory only while no kernel runs (concurrentManagedAccess is 0), so what
            // is known is what is there, and whole lines may be written.
            Shared::OnDevice(memory) => {
                memory.write(at, bytes)?;
                known.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Finds what kernels have changed from the byte `from` on, as `find_changes` does.
    fn find(
        &mut self,
        gpu: &dyn Gpu,
        from: usize,
        found: impl FnMut(usize, &[u8]) -> bool,
    ) -> CuResult<usize> {
        let end = self.known.len();
        match &self.memory {
            Shared::Here(memory) => {
                // SAFETY: the memory has as many bytes as the known.
                Ok(unsafe { find_changes(memory.as_ptr(), &mut self.known, from, end, found) })
            }
            Shared::OnDevice(memory) => find_on_device(&**memory, gpu, &mut self.known, from, found),
        }
    }
}

fn find_on_device(
    memory: &dyn DeviceBytes,
    gpu: &dyn Gpu,
    known: &mut [u8],
    from: usize,
    mut found: impl FnMut(usize, &[u8]) -> bool,
) -> CuResult<usize> {
    let mut copy = gpu.staging(PIECE.min(known.len() - from))?;
    let mut start = from;
    let mut goes_on = true;
    while start < known.len() && goes_on {
        let length = copy.len().min(known.len() - start);
        if let Err(error) = memory.read(start, &mut copy.as_mut_slice()[..length]) {
            // The device may still write to it.
            let bytes = copy.len();
            gpu.set_aside().add(copy, bytes);
            return Err(error);
        }
        // SAFETY: the copy has the length of this part of the known.
        let stopped = unsafe {
            find_changes(copy.as_ptr(), &mut known[start..start + length], 0, length, |at, bytes| {
                goes_on = found(start + at, bytes);
                goes_on
            })
        };
        start += stopped;
    }
    Ok(start)
}

/// Zeros, which the system makes page by page when they are first needed.
fn zeroed(bytes: usize) -> CuResult<Vec<u8>> {
    let mut probe = Vec::<u8>::new();
    probe.try_reserve_exact(bytes).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    drop(probe);
    Ok(vec![0; bytes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_gpu::cpu::{Options, SoftwareGpu};
    use std::sync::Arc;

    /// Memory of a device that is not there.
    struct Bytes(Arc<Mutex<Vec<u8>>>);

    impl DeviceBytes for Bytes {
        fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
            into.copy_from_slice(&self.0.lock()[at..at + into.len()]);
            Ok(())
        }

        fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
            self.0.lock()[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn memory_of_a_device_is_looked_through_piece_by_piece() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let size = 2 * PIECE + 100;
        let bytes = Arc::new(Mutex::new(vec![0; size]));
        let memory = Shared::OnDevice(Box::new(Bytes(Arc::clone(&bytes))));
        let mirrors = Mirrors::default();
        let mirror = Mirror { context: Handle::NULL, memory, known: vec![0; size] };
        const BASE: u64 = 0x10_0000;
        mirrors.table.lock().insert(BASE, mirror);
        for at in [3, PIECE - 1, PIECE, size - 1] {
            bytes.lock()[at] = 9;
        }
        let (next, changes) = mirrors.changes(&gpu, 0).unwrap();
        let mut found = Vec::new();
        read_changes(changes.as_bytes(), |address, bytes| {
            let places = bytes.iter().enumerate().filter(|(_, byte)| **byte == 9);
            found.extend(places.map(|(at, _)| (address - BASE) as usize + at));
        })
        .unwrap();
        assert_eq!((next, found), (0, vec![3, PIECE - 1, PIECE, size - 1]));
        assert!(mirrors.changes(&gpu, 0).unwrap().1.is_empty());
        // The client's bytes are in the memory, and are not reported back.
        let mut sent = Changes::default();
        sent.add(BASE + size as u64 - 2, &[5, 6]);
        mirrors.write(sent.as_bytes()).unwrap();
        assert_eq!(bytes.lock()[size - 2..], [5, 6]);
        assert!(mirrors.changes(&gpu, 0).unwrap().1.is_empty());
        sent.clear();
        sent.add(BASE + size as u64 - 1, &[5, 6]);
        assert_eq!(mirrors.write(sent.as_bytes()), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        // Everything changed: several replies.
        bytes.lock().fill(1);
        let (mut start, mut total, mut rounds) = (0, 0, 0);
        loop {
            let (next, changes) = mirrors.changes(&gpu, start).unwrap();
            read_changes(changes.as_bytes(), |_, bytes| total += bytes.len()).unwrap();
            rounds += 1;
            if next == 0 {
                break;
            }
            start = next;
        }
        assert_eq!(total, size);
        assert!(rounds >= 8, "{rounds} replies");
    }
}
