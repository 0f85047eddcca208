//! Memory of the client that lies in this process, too: both are on one host, and kernels reach the program's
//! own bytes.
//!
//! Descriptors that were received wait for the command that names them. Where a session is restored it is the commands
//! that wait: the program hands its memory over again, under the numbers that the journal has.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use causeway_api::calls::Request;
use causeway_api::handle::{Allocation, Context, Handle, Native};
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Gpu, Staging};
use causeway_memory::{SealedMemory, SharedFile};

use crate::locks::{Monitor, Mutex, rank};
use crate::worker::memory::cut_short;

/// The memory of a session's client that this process has.
#[derive(Default)]
pub struct ClientMemory {
    /// Memory that nobody can cut short.
    arrived: Waiting<SealedMemory>,
    /// Files.
    files: Waiting<OwnedFd>,
    /// By address.
    mapped: Mutex<rank::Leaf, HashMap<u64, (Handle<Context>, Staging)>>,
}

impl ClientMemory {
    /// The client has handed over memory under a number.
    pub fn arrive(&self, number: u64, memory: Option<SealedMemory>) {
        self.arrived.arrive(number, memory);
    }

    /// The client has handed over a file under a number.
    pub fn file_arrives(&self, number: u64, file: Option<OwnedFd>) {
        self.files.arrive(number, file);
    }

    /// Whether the memory of this number is there, or never will be.
    pub fn has_arrived(&self, number: u64) -> bool {
        self.arrived.has_arrived(number)
    }

    /// Whether the file of this number is there, or never will be.
    pub fn has_file_arrived(&self, number: u64) -> bool {
        self.files.has_arrived(number)
    }

    /// Has commands wait for descriptors while the result lives, instead of refusing what has not come; and a client that
    /// hands over more than [`MAX_QUEUED`] waits until they are used.
    pub fn restore(&self) -> Restoring<'_> {
        self.arrived.set_restoring(true);
        self.files.set_restoring(true);
        Restoring(self)
    }

    /// Nobody waits any more: the session is restored, or its client hands nothing over.
    pub fn end_restoring(&self) {
        self.arrived.set_restoring(false);
        self.files.set_restoring(false);
    }

    /// Waits for what a command names that is carried out again, while the session is restored.
    pub fn await_arrival(&self, request: &Request<'_>) {
        match request {
            Request::client_memory_map(map) => self.arrived.await_arrival(map.number),
            Request::client_file_map(map) => self.files.await_arrival(map.number),
            _ => {}
        }
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
        let memory = self.arrived.take(number).ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        if memory.bytes() != bytes as u64 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the link has checked that the memory is sealed, and it has as many bytes.
        self.enter(context, address, || unsafe { gpu.client_memory(address, bytes, memory.descriptor(), 0) })
    }

    /// As [`Self::map`], for `bytes` of the file of this number, from `offset` on.
    pub fn map_file(
        &self,
        gpu: &dyn Gpu,
        context: Handle<Context>,
        address: u64,
        bytes: usize,
        offset: u64,
        number: u64,
    ) -> CuResult<()> {
        let file = self.files.take(number).ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let file = SharedFile::check(file, offset, bytes).map_err(|cause| {
            tracing::warn!("cannot use a file of the client: {cause}");
            CUresult::CUDA_ERROR_INVALID_VALUE
        })?;
        cut_short::prepare(gpu)?;
        // SAFETY: the file has as many bytes there, as was checked just now; what is cut short later becomes
        // zeros.
        self.enter(context, address, || unsafe {
            gpu.client_memory(address, bytes, file.descriptor(), offset)
        })
    }

    /// Takes in memory that `make` maps at an address where nothing is.
    fn enter(
        &self,
        context: Handle<Context>,
        address: u64,
        make: impl FnOnce() -> CuResult<Staging>,
    ) -> CuResult<()> {
        let mut mapped = self.mapped.lock();
        if mapped.contains_key(&address) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        mapped.insert(address, (context, make()?));
        Ok(())
    }

    /// Makes an allocation of the memory of this number.
    pub fn allocate(&self, gpu: &dyn Gpu, bytes: usize, number: u64) -> CuResult<Native<Allocation>> {
        let memory = self.arrived.take(number).ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
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

/// A session that is being restored: see [`ClientMemory::restore`].
pub struct Restoring<'a>(&'a ClientMemory);

impl Drop for Restoring<'_> {
    fn drop(&mut self) {
        self.0.end_restoring();
    }
}

/// Descriptors that may wait for the commands that name them. A client names each right after it has sent it.
pub const MAX_QUEUED: usize = 256;

/// How long the next descriptor may take: the program copies its memory before it hands it over.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// What waits for a command that names its number; nothing where it could not be taken.
pub struct Waiting<T>(Monitor<rank::Leaf, Queue<T>>);

struct Queue<T> {
    arrived: HashMap<u64, Option<T>>,
    is_restoring: bool,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(Monitor::new(Queue { arrived: HashMap::new(), is_restoring: false }))
    }
}

impl<T> Waiting<T> {
    /// The client has handed something over under a number. Blocks, while the session is restored, until it can be
    /// kept, and with it the client that sends more.
    pub fn arrive(&self, number: u64, what: Option<T>) {
        let has_capacity = |queue: &mut Queue<T>| {
            let is_full = queue.arrived.len() >= MAX_QUEUED;
            (!is_full || !queue.is_restoring).then_some(!is_full)
        };
        if !self.0.wait(has_capacity) {
            tracing::warn!("the client registered too many memory regions without using them");
            return;
        }
        // Only this thread, which receives descriptors, adds any.
        self.0.change(|queue| queue.arrived.insert(number, what));
    }

    /// Whether what has this number is there, or never will be.
    pub fn has_arrived(&self, number: u64) -> bool {
        let queue = self.0.lock();
        queue.arrived.contains_key(&number) || queue.arrived.len() >= MAX_QUEUED
    }

    /// Takes out what has this number.
    pub fn take(&self, number: u64) -> Option<T> {
        self.0.change(|queue| queue.arrived.remove(&number)).flatten()
    }

    /// Waits until what has this number is there, if the session is being restored.
    fn await_arrival(&self, number: u64) {
        let is_over =
            |queue: &mut Queue<T>| (!queue.is_restoring || queue.arrived.contains_key(&number)).then_some(());
        if self.0.wait_for(ARRIVAL_TIMEOUT, is_over).is_none() {
            tracing::warn!(number, "the program has not handed over memory that its session has");
        }
    }

    fn set_restoring(&self, is_restoring: bool) {
        self.0.change(|queue| queue.is_restoring = is_restoring);
    }
}

#[cfg(test)]
mod tests {
    use causeway_gpu::calls::*;
    use causeway_gpu_software::{Options, SoftwareGpu};

    use super::*;

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
    fn a_file_is_mapped_from_where_the_client_says_and_only_if_it_has_the_bytes() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let context = gpu.primary_context_retain(0, 0).unwrap();
        gpu.make_current(context).unwrap();
        let window = gpu.snapshot().unwrap().host_window.0;
        let (memory, owner) = (ClientMemory::default(), Handle::<Context>::new(1, 1));
        let file = SealedMemory::new("test", 2 * BYTES as u64).unwrap();
        let send = |number| {
            memory.file_arrives(number, Some(file.descriptor().try_clone_to_owned().unwrap()));
        };
        let map = |offset, number| memory.map_file(&gpu, owner, window, BYTES, offset, number);

        assert!(!memory.has_file_arrived(1));
        assert_eq!(map(0, 1), Err(CUresult::CUDA_ERROR_NOT_SUPPORTED));
        for offset in [1, BYTES as u64 + 4096, u64::MAX - 4095] {
            send(2);
            assert!(map(offset, 2).is_err(), "{offset}");
        }
        memory.file_arrives(3, Some(std::fs::File::open("/dev/zero").unwrap().into()));
        assert!(map(0, 3).is_err());
        send(4);
        map(BYTES as u64, 4).unwrap();
        let mut shared = memory.remove(window).unwrap();
        shared.as_mut_slice()[5] = 7;
        let mut bytes = [0; 6];
        rustix::io::pread(file.descriptor(), &mut bytes, BYTES as u64).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn a_file_that_is_cut_short_has_zeros_where_it_had_bytes() {
        let gpu = SoftwareGpu::with_options(&Options { memory: 1 << 20, ..Options::default() }).unwrap();
        let context = gpu.primary_context_retain(0, 0).unwrap();
        gpu.make_current(context).unwrap();
        let window = gpu.snapshot().unwrap().host_window.0;
        let memory = ClientMemory::default();
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&file, &[7; BYTES], 0).unwrap();
        memory.file_arrives(1, Some(file.try_clone().unwrap()));
        memory.map_file(&gpu, Handle::new(1, 1), window, BYTES, 0, 1).unwrap();
        let mut shared = memory.remove(window).unwrap();
        assert_eq!(shared.as_slice()[BYTES - 1], 7);
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!((shared.as_slice()[4095], shared.as_slice()[BYTES - 1]), (7, 0));
        shared.as_mut_slice()[BYTES - 1] = 3;
        assert_eq!(shared.as_slice()[4096..BYTES], [[0; 4095].as_slice(), &[3]].concat());
    }

    #[test]
    fn a_client_that_only_hands_over_is_stopped() {
        let waiting = Waiting::<()>::default();
        (0..2 * MAX_QUEUED as u64).for_each(|number| waiting.arrive(number, None));
        assert_eq!(waiting.0.lock().arrived.len(), MAX_QUEUED);
        // A command that names what was refused is refused, too, and waits for nothing.
        assert!(waiting.has_arrived(MAX_QUEUED as u64 + 1));
    }

    #[test]
    fn a_session_that_is_restored_waits_for_what_comes_late_and_has_capacity_for_all() {
        let memory = ClientMemory::default();
        let restoring = memory.restore();
        let all = 3 * MAX_QUEUED as u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..all {
                    if number % 100 == 0 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    memory.arrive(number, Some(SealedMemory::new("test", BYTES as u64).unwrap()));
                }
            });
            for number in 0..all {
                memory.arrived.await_arrival(number);
                assert!(memory.arrived.take(number).is_some(), "{number}");
            }
        });
        // The end lets go of a client that is still at it.
        (0..MAX_QUEUED as u64).for_each(|number| memory.arrive(number, None));
        std::thread::scope(|scope| {
            scope.spawn(|| memory.arrive(all, None));
            drop(restoring);
        });
        memory.arrived.await_arrival(all);
    }
}
