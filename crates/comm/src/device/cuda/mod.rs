//! GPU of a team by the CUDA driver. Memory that peers can map, pinned memory, and lanes of
//! copies.

mod calls;
mod lane;
mod pinned;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use calls::{Calls, Entered, check};
use lane::{CudaLane, Stream};
use pinned::{allocate, map_pages, pin, shared_failed};

use super::gpu::{Block, Gpu, GpuError, HostPages, Lane};
use super::measuring::{self, StoredCalibration};
use super::shared::SharedFile;
use crate::cuda::{
    Bounce, CudaError, DeviceMemory, Driver, Mapping, Scope, dma_buf, gpu_model, gpu_number,
    has_native_atomics, is_under_mps, node_of,
};
use crate::device::choice::{Copies, LONG};
use crate::device::gpu::Residency;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` and `_COOPERATIVE_LAUNCH`.
const MULTIPROCESSORS: c_int = 16;
const COOPERATIVE_LAUNCH: c_int = 95;

/// How long a word that a stream writes may take to be seen here, where both have the same memory.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The longest copy of those that a new lane tries.
const WARM_UP_BYTES: u64 = 1 << 20;

/// A GPU of this process.
#[derive(Debug, Clone)]
pub struct CudaGpu {
    driver: &'static Driver,
    calls: &'static Calls,
    context: u64,
    device: i32,
    number: u64,
    /// Other devices of this process whose kernels use its memory.
    peer_devices: Vec<i32>,
    /// The file that keeps for later jobs what its copies cost, if one is to.
    profile: Option<PathBuf>,
    /// For set-up alone.
    stream: Arc<Stream>,
}

fn no_driver() -> GpuError {
    GpuError {
        what: "a team".to_owned(),
        cause: "the program has loaded no CUDA driver, or one older than 11.7: make a context first"
            .to_owned(),
    }
}

impl CudaGpu {
    /// The GPU of the calling thread's context.
    ///
    /// # Errors
    /// When there is none, or it shares no memory with this process.
    pub fn current() -> Result<Self, GpuError> {
        let calls = Calls::loaded().ok_or_else(no_driver)?;
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the context.
        check("a context", unsafe { calls.current_context(&raw mut context) })?;
        if context.is_null() {
            return Err(GpuError {
                what: "a team".to_owned(),
                cause: "the calling thread has no CUDA context: use the GPU first (cudaFree(0))".to_owned(),
            });
        }
        Self::of_context(calls, context as u64)
    }

    /// A GPU by its number in this process, with its primary context, which the runtime uses.
    ///
    /// # Errors
    /// When there is none, or it shares no memory with this process.
    pub fn of_device(device: i32) -> Result<Self, GpuError> {
        let calls = Calls::loaded().ok_or_else(no_driver)?;
        let mut context: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the context, which is kept for good.
        check("a device's context", unsafe { calls.retain_primary(&raw mut context, device) })?;
        Self::of_context(calls, context as u64)
    }

    fn of_context(calls: &'static Calls, context: u64) -> Result<Self, GpuError> {
        let driver = Driver::loaded().ok_or_else(no_driver)?;
        let _entered = Entered::new(calls, context)?;
        let mut device = 0;
        // SAFETY: there is room for the number.
        check("a context's device", unsafe { calls.context_device(&raw mut device) })?;
        let number = gpu_number(driver, device).ok_or_else(no_driver)?;
        let stream = Arc::new(Stream::new(calls)?);
        let gpu =
            Self { driver, calls, context, device, number, stream, peer_devices: Vec::new(), profile: None };
        gpu.must_share_memory()?;
        Ok(gpu)
    }

    /// The same GPU, whose memory the kernels of all these devices use: of ranks of the same process.
    pub fn with_devices(self, devices: &[i32]) -> Self {
        let mut peer_devices: Vec<i32> =
            devices.iter().copied().filter(|other| *other != self.device).collect();
        peer_devices.sort_unstable();
        peer_devices.dedup();
        Self { peer_devices, ..self }
    }

    /// The same GPU, of which a file keeps what its copies cost.
    pub fn with_profile(self, profile: Option<PathBuf>) -> Self {
        Self { profile, ..self }
    }

    /// Queues and signals lie in memory that kernels and this process both really have. Behind a network each
    /// has a copy, which is an error here instead of a wait of kernels that never ends.
    fn must_share_memory(&self) -> Result<(), GpuError> {
        let word = self.host_memory(8)?;
        let refused = |cause: String| GpuError {
            what: "a team".to_owned(),
            cause: format!(
                "kernels and this process don't follow each other's writes in pinned memory, which proxies \
                 and the end of a team need: {cause}. Run the program on the GPU's own host, where Causeway \
                 shares memory (--via shm)"
            ),
        };
        // SAFETY: the memory has a word, and is this function's.
        let seen = unsafe { &*(word.address as *const AtomicU64) };
        self.stream.write_value(word.address, 1).map_err(|error| refused(error.cause))?;
        let until = Instant::now() + SEEN_WITHIN;
        while seen.load(Ordering::Acquire) != 1 {
            if Instant::now() > until {
                return Err(refused("what a stream wrote has not come".to_owned()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// An attribute of the device, 0 where the driver does not know it.
    fn attribute(&self, attribute: c_int) -> c_int {
        let mut value = 0;
        // SAFETY: there is room for the value.
        let known = unsafe { self.calls.device_attribute(&raw mut value, attribute, self.device) };
        if known.is_ok() { value } else { 0 }
    }

    /// Whether this process shares its GPU by NVIDIA's MPS, without which processes on it take turns.
    pub fn is_under_mps(&self) -> bool {
        is_under_mps(self.driver, self.device)
    }

    /// What of a kernel the GPU runs at the same time.
    ///
    /// # Safety
    /// `function` is a `CUfunction` of the GPU's context.
    ///
    /// # Errors
    /// What the driver says.
    pub unsafe fn residency(
        &self,
        function: *mut c_void,
        threads: u32,
        shared: usize,
    ) -> Result<Residency, GpuError> {
        if self.attribute(COOPERATIVE_LAUNCH) == 0 {
            return Ok(Residency::OneBlockOfEachGrid);
        }
        let _entered = Entered::new(self.calls, self.context)?;
        let mut blocks = 0;
        // SAFETY: there is room for the number; the caller passes a function of this context.
        let known = unsafe { self.calls.occupancy(&raw mut blocks, function, threads as c_int, shared) };
        check("the occupancy of a kernel", known)?;
        let blocks = u32::try_from(blocks * self.attribute(MULTIPROCESSORS)).unwrap_or(0);
        Ok(Residency::Blocks(blocks))
    }

    fn copy(&self, what: &str, to: u64, from: u64, bytes: usize) -> Result<(), GpuError> {
        let _entered = Entered::new(self.calls, self.context)?;
        let stream = self.stream.handle();
        // SAFETY: the callers pass a range of their own, and memory of the GPU, which the driver checks.
        check(what, unsafe { self.calls.copy(to, from, bytes, stream) })?;
        self.stream.wait(what)
    }
}

impl Gpu for CudaGpu {
    fn number(&self) -> u64 {
        self.number
    }

    fn has_atomics_on(&self, number: u64) -> bool {
        number == self.number || has_native_atomics(self.driver, self.device, number)
    }

    fn node(&self) -> Option<usize> {
        node_of(self.driver, self.device)
    }

    fn device_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        let _entered = Entered::new(self.calls, self.context)?;
        let failed = |cause: CudaError| GpuError {
            what: format!("{bytes} bytes of memory of the GPU"),
            cause: cause.to_string(),
        };
        let memory = Bounce::new(self.driver, self.device, bytes as usize).map_err(failed)?;
        for other in &self.peer_devices {
            memory.mapping.let_use(*other).map_err(|cause| GpuError {
                what: format!("memory of device {} that kernels of device {other} use", self.device),
                cause: format!(
                    "{cause}. Make a team of devices that reach each other (nvidia-smi topo -p2p rw)"
                ),
            })?;
        }
        let (address, length) = (memory.mapping.address, memory.bytes);
        let stream = self.stream.handle();
        // SAFETY: the memory is new and that long.
        check("a fill", unsafe { self.calls.fill(address, 0, length, stream) })?;
        self.stream.wait("a fill")?;
        let Bounce { mapping, descriptor, .. } = memory;
        let owner = Box::new(mapping);
        Ok(Block { address, bytes: length as u64, descriptor: Some(descriptor), owner })
    }

    fn host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        let _entered = Entered::new(self.calls, self.context)?;
        allocate(self.calls, bytes)
    }

    fn import(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        let _entered = Entered::new(self.calls, self.context)?;
        let mapping = Mapping::import(self.driver, descriptor, bytes as usize, self.device);
        let mapping = mapping.map_err(|cause| GpuError {
            what: format!("{bytes} bytes of a peer's memory"),
            cause: cause.to_string(),
        })?;
        Ok(Block { address: mapping.address, bytes, descriptor: None, owner: Box::new(mapping) })
    }

    fn shared_host_memory(&self, bytes: u64) -> Result<Block, GpuError> {
        let file = SharedFile::new(bytes).map_err(|cause| shared_failed(bytes, &cause))?;
        let _entered = Entered::new(self.calls, self.context)?;
        let mapped = pin(self.calls, &file, bytes)?;
        Ok(Block { descriptor: Some(file.into_descriptor()), ..mapped })
    }

    fn import_host(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError> {
        let file = SharedFile::of(descriptor, bytes).map_err(|cause| shared_failed(bytes, &cause))?;
        let _entered = Entered::new(self.calls, self.context)?;
        pin(self.calls, &file, bytes)
    }

    fn map_pages(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Block, GpuError> {
        if Driver::is_remote() {
            return Err(GpuError {
                what: "letting kernels use a card's rings".to_owned(),
                cause: "the GPU is a server's, which has copies of this process's pages".to_owned(),
            });
        }
        let _entered = Entered::new(self.calls, self.context)?;
        map_pages(self.calls, address, bytes, kind)
    }

    fn allows_rdma(&self) -> bool {
        !Driver::is_remote() && crate::cuda::abilities(self.driver, self.device).gpudirect
    }

    fn pci_address(&self) -> Option<String> {
        crate::cuda::pci_address(self.driver, self.device)
    }

    fn dma_buf(&self, address: u64) -> Option<(OwnedFd, u64)> {
        let memory = DeviceMemory::at(self.driver, address).filter(|memory| !memory.is_managed)?;
        let scope = Scope::of(self.driver, &memory).ok()?;
        let (descriptor, offset) = dma_buf(&scope, &memory).ok()?;
        Some((descriptor, offset + (address - memory.start)))
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.copy("a copy to the GPU", to, bytes.as_ptr() as u64, bytes.len())
    }

    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.copy("a copy from the GPU", bytes.as_mut_ptr() as u64, from, bytes.len())
    }

    fn lane(&self) -> Result<Box<dyn Lane>, GpuError> {
        Ok(Box::new(self.new_lane()?))
    }

    fn link_lane(&self) -> Result<Box<dyn Lane>, GpuError> {
        let failed =
            |cause: CudaError| GpuError { what: "a context for copies".to_owned(), cause: cause.to_string() };
        // A program's copy in the default stream that waits for a kernel would hold up one of its own context,
        // for which the kernel waits.
        let context = Scope::of_copies(self.driver, self.device).map_err(failed)?.context();
        let memory = self.device_memory(2 * WARM_UP_BYTES)?;
        let _entered = Entered::new(self.calls, context)?;
        let mut lane = CudaLane::in_own_context(self.calls, context, self.driver)?;
        lane.warm_up(&memory)?;
        Ok(Box::new(lane))
    }

    fn copies(&self) -> Result<Option<Copies>, GpuError> {
        let stored = self.profile.clone().map(|path| StoredCalibration { path, kind: self.kind() });
        measuring::once(self.number, stored.as_ref(), || {
            let mut lane = self.new_lane()?;
            let memory = self.device_memory(2 * LONG)?;
            let _entered = Entered::new(self.calls, self.context)?;
            let found = measuring::measure(&mut lane, memory.address, memory.address + LONG);
            // Behind the last copy, since the memory is freed then.
            lane.wait()?;
            found
        })
    }

    fn keep_copies(&self, copies: Copies) {
        let stored = self.profile.clone().map(|path| StoredCalibration { path, kind: self.kind() });
        measuring::correct(self.number, stored.as_ref(), copies);
    }
}

impl CudaGpu {
    /// What the profile calls such GPUs: a model, and who its driver is.
    fn kind(&self) -> String {
        let driver = if Driver::is_remote() { "Causeway" } else { "native" };
        format!("{}, {driver}", gpu_model(self.driver, self.device))
    }

    /// A lane that is ready: what the driver makes or loads at the first copies it makes and loads now, while
    /// no kernel waits.
    fn new_lane(&self) -> Result<CudaLane, GpuError> {
        let memory = self.device_memory(2 * WARM_UP_BYTES)?;
        let _entered = Entered::new(self.calls, self.context)?;
        let mut lane = CudaLane::new(self.calls, self.context)?;
        lane.warm_up(&memory)?;
        Ok(lane)
    }
}
