//! Memory of the client that lies in this process, too: both are on one host, and kernels reach the program's
//! own bytes.

use causeway_api::handle::{Allocation, Context, Handle, Native};
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Gpu, Staging};
use causeway_memory::SealedMemory;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Pieces of memory that may wait for the commands that name them. A client names each right after it has
/// sent it.
const MOST_WAITING: usize = 256;

/// The memory of a session's client that this process has.
#[derive(Default)]
pub struct ClientMemory {
    /// What the client has handed over and not named yet; nothing where it could not be taken.
    arrived: Mutex<HashMap<u64, Option<SealedMemory>>>,
    /// By address.
    mapped: Mutex<HashMap<u64, (Handle<Context>, Staging)>>,
}

impl ClientMemory {
    /// The client has handed over memory under a number.
    pub fn arrive(&self, number: u64, memory: Option<SealedMemory>) {
        let mut arrived = self.arrived.lock();
        if arrived.len() < MOST_WAITING {
            arrived.insert(number, memory);
        } else {
            tracing::warn!("the client hands over memory without end and does not use it");
        }
    }

    /// Whether the memory of this number is there, or never will be.
    pub fn has_arrived(&self, number: u64) -> bool {
        let arrived = self.arrived.lock();
        arrived.contains_key(&number) || arrived.len() >= MOST_WAITING
    }

    /// Maps the memory of this number at an address of the host window, for kernels of the current context,
    /// which is `context`.
    pub fn map(
        &self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        address: u64,
        bytes: usize,
        number: u64,
    ) -> CuResult<()> {
        let memory = self.arrived.lock().remove(&number).flatten();
        let memory = memory.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let mut mapped = self.mapped.lock();
        if memory.bytes() != bytes as u64 || mapped.contains_key(&address) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the link has checked that the memory is sealed, and it has as many bytes.
        let shared = unsafe { gpu.client_memory(address, bytes, memory.descriptor())? };
        mapped.insert(address, (context, shared));
        Ok(())
    }

    /// Makes an allocation of the memory of this number.
    pub fn allocate(&self, gpu: &dyn Gpu, bytes: usize, number: u64) -> CuResult<Native<Allocation>> {
        let memory = self.arrived.lock().remove(&number).flatten();
        let memory = memory.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        if memory.bytes() != bytes as u64 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        gpu.client_allocation(memory.into(), bytes)
    }

    /// Takes memory out; the device must not use it any more when the result is dropped.
    pub fn remove(&self, address: u64) -> CuResult<Staging> {
        let removed = self.mapped.lock().remove(&address);
        removed.map(|(_, memory)| memory).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Lets go of the memory of a context, which is about to end.
    pub fn end_context(&self, context: Handle<Context>) {
        self.mapped.lock().retain(|_, (other, _)| *other != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_gpu::calls::*;
    use causeway_gpu_software::{Options, SoftwareGpu};

    const BYTES: usize = 8192;

    #[test]
    fn memory_is_mapped_once_it_has_come_and_only_as_it_is() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let context = gpu.primary_context_retain(0, 0).unwrap();
        gpu.make_current(context).unwrap();
        let window = gpu.snapshot().unwrap().host_window.0;
        let (memory, owner) = (ClientMemory::default(), Handle::<Context>::new(1, 1));
        let map = |address, bytes, number| memory.map(&gpu, owner, address, bytes, number);
        let send = |number| memory.arrive(number, Some(SealedMemory::new("test", BYTES as u64).unwrap()));

        assert!(!memory.has_arrived(7));
        assert_eq!(map(window, BYTES, 7), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        send(7);
        assert!(memory.has_arrived(7));
        map(window, BYTES, 7).unwrap();
        assert!(!memory.has_arrived(7));
        for (address, bytes) in [(window, BYTES), (window + 4096, BYTES), (window + (1 << 19), 2 * BYTES)] {
            send(8);
            assert!(map(address, bytes, 8).is_err(), "{address:#x} {bytes}");
        }
        assert!(memory.remove(window + 1).is_err());
        drop(memory.remove(window).unwrap());
        send(9);
        map(window, BYTES, 9).unwrap();
        memory.end_context(owner);
        assert!(memory.remove(window).is_err());
        memory.arrive(10, None);
        assert_eq!(map(window, BYTES, 10), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
    }

    #[test]
    fn a_client_that_only_hands_over_is_stopped() {
        let memory = ClientMemory::default();
        (0..2 * MOST_WAITING as u64).for_each(|number| memory.arrive(number, None));
        assert_eq!(memory.arrived.lock().len(), MOST_WAITING);
        // A command that names what was turned away is refused and waits for nothing.
        assert!(memory.has_arrived(MOST_WAITING as u64 + 1));
    }
}
