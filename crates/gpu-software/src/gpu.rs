//! The back end: its state, and what the worker's engine needs besides the calls of the declaration list.

use crate::array::Arrays;
use crate::context::Context;
use crate::contexts::Contexts;
use crate::graph::Graphs;
use crate::handles::StreamId;
use crate::host_memory::{Managed, Pinned, StagingPool};
use crate::linker::Links;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::operation::{HostDestination, HostSource, Operation};
use crate::options::Options;
use crate::scheduler::Scheduler;
use crate::swap::Swapped;
use crate::texture_references::References;
use crate::textures::Textures;
use crate::virtual_memory::VirtualMemory;
use crate::{attributes, condition, region};
use causeway_api::handle::{self, Native};
use causeway_api::snapshot::{Snapshot, Window};
use causeway_api::sys::{CUdevice, CUresult};
use causeway_api::types::Region;
use causeway_api::visible::DuplicateDevice;
use causeway_config::ValueError;
use causeway_gpu::device_code::{CodeMemory, LoadedCode};
use causeway_gpu::device_memory::{ImportError, ImportedMemory, ResumeError, SuspendError, SuspendedTo};
use causeway_gpu::gpudirect::{GpuDirectChoice, GpuDirectMemory, GpuDirectPath, GpuDirectPaths};
use causeway_gpu::host_memory::{AfterFailure, SetAside};
use causeway_gpu::{
    Completion, CuResult, Gate, Gpu, KernelTimer, NativeLocation, OutputSink, Registration, Shared, Staging,
    device_memory,
};
use causeway_ptx::memory::{AddressSpace, PREFERRED_BASE, ReservationError};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use thiserror::Error;

/// Why the software GPU could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The environment asks for something that makes no sense.
    #[error(transparent)]
    Options(#[from] ValueError),
    /// Its memory could not be set up.
    #[error("the software GPU has no memory: {0}")]
    Memory(#[from] ReservationError),
    /// A device is to be offered twice.
    #[error(transparent)]
    Twice(#[from] DuplicateDevice),
    /// None of its devices can be used.
    #[error(
        "CUDA_VISIBLE_DEVICES is `{list}` where the server was started, which hides every one of the \
         {devices} device(s) of the software GPU; unset it, or give numbers from 0 or UUIDs"
    )]
    NoDevice {
        /// What the variable holds.
        list: String,
        /// How many devices there are.
        devices: u32,
    },
    /// Its first thread could not be started.
    #[error("the software GPU could not start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// A GPU made of software.
pub struct SoftwareGpu {
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) contexts: Contexts,
    pub(crate) modules: Arc<Modules>,
    pub(crate) links: Links,
    pub(crate) driver_version: i32,
    pub(crate) capability: u32,
    /// The numbers of the devices that can be used: the device 0 of clients is the first of them.
    pub(crate) devices: Vec<u32>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) arrays: Arrays,
    pub(crate) references: Arc<References>,
    pub(crate) graphs: Graphs,
    pub(crate) staging: Arc<StagingPool>,
    pub(crate) set_aside: Arc<SetAside>,
    pub(crate) pinned: Pinned,
    pub(crate) virtual_memory: VirtualMemory,
    /// What is on disk instead of in memory, while the device is suspended.
    pub(crate) swapped: Mutex<Option<Swapped>>,
}

/// Where the device's memory of so many bytes lies: where the client's program has nothing.
fn location(bytes: u64) -> u64 {
    let first = PREFERRED_BASE.next_multiple_of(bytes);
    // Up to 64 TiB; programs, libraries and stacks lie above.
    let bases = (0..).map(|number| first + number * bytes).take_while(|base| base + bytes <= 1 << 46);
    device_memory::first_free_address(
        bases,
        |base| Some(base..base + bytes),
        &device_memory::ranges_taken_by_client(),
    )
    .unwrap_or(PREFERRED_BASE)
}

impl SoftwareGpu {
    /// Starts one as the environment says; see [`Options::from_environment`].
    ///
    /// # Errors
    /// When the environment makes no sense, or the system refuses addresses or threads.
    pub fn new() -> Result<Self, StartError> {
        Self::with_options(&Options::from_environment()?)
    }

    /// Starts one.
    ///
    /// # Errors
    /// When the system refuses addresses or threads.
    pub fn with_options(options: &Options) -> Result<Self, StartError> {
        let devices = options.visible_devices()?;
        if devices.is_empty() {
            let list = options.visible.clone().unwrap_or_default();
            return Err(StartError::NoDevice { list, devices: options.devices });
        }
        let space = Arc::new(AddressSpace::placed(options.memory, location)?);
        let machine = Machine {
            space: Arc::clone(&space),
            pool: causeway_ptx::Pool::for_machine(),
            output: parking_lot::RwLock::new(None),
            kernel_timer: parking_lot::RwLock::new(None),
            conditions: condition::Conditions::default(),
            textures: Textures::default(),
        };
        let scheduler = Scheduler::new(machine);
        scheduler.start()?;
        Ok(Self {
            contexts: Contexts::default(),
            modules: Arc::new(Modules::new(Arc::clone(&space), options.capability, options.newest_ptx)),
            links: Links::new(options.capability),
            driver_version: options.driver_version,
            capability: options.capability,
            memory: Arc::new(Memory::new(Arc::clone(&space), Arc::clone(&scheduler), devices.len() as u32)),
            devices,
            arrays: Arrays::default(),
            references: Arc::default(),
            graphs: Graphs::default(),
            staging: Arc::default(),
            // An operation that has ended with an error has ended, and a failed context begins no other.
            set_aside: SetAside::new(AfterFailure::Free),
            pinned: Pinned::new(options.pinned),
            virtual_memory: VirtualMemory::new(Arc::clone(&space)),
            swapped: Mutex::default(),
            space,
            scheduler,
        })
    }

    /// What a software GPU that is made like this says about all its devices. None is made, so there are no
    /// addresses.
    pub fn describe(options: &Options) -> Snapshot {
        let Options { memory, driver_version, capability, .. } = *options;
        let devices: Vec<_> = (0..options.devices).collect();
        attributes::snapshot(memory, &devices, driver_version, capability, 0..0, Window::default())
    }

    /// Refuses a number that is no device's.
    pub(crate) fn check_device(&self, device: CUdevice) -> CuResult<()> {
        let known = usize::try_from(device).is_ok_and(|device| device < self.devices.len());
        if known { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
    }

    /// The stream that a handle means: the null one is the current context's legacy default stream.
    pub(crate) fn stream(&self, stream: Native<handle::Stream>) -> CuResult<StreamId> {
        if stream == Native::NULL { Ok(self.contexts.current()?.legacy) } else { Ok(stream.value()) }
    }

    /// The context of a stream.
    pub(crate) fn context_of(&self, stream: StreamId) -> CuResult<Arc<Context>> {
        Ok(Arc::clone(&self.scheduler.state.lock().usable(stream)?.context))
    }

    /// Takes everything of a closed context down when its streams are through.
    pub(crate) fn tear_down(&self, context: &Arc<Context>) {
        let (id, modules, memory) = (context.id, Arc::clone(&self.modules), Arc::clone(&self.memory));
        let (scheduler, references) = (Arc::clone(&self.scheduler), Arc::clone(&self.references));
        let done = Box::new(move |_outcome| {
            references.forget_all_of(id);
            scheduler.machine.textures.forget_all_of(id);
            modules.unload_all_of(id);
            memory.free_all_of(id);
        });
        self.scheduler.close_context(context, done);
    }

    /// The textures and surfaces that there are.
    pub(crate) fn textures(&self) -> &Textures {
        &self.scheduler.machine.textures
    }

    /// The memory that a place of a copy means, checked.
    pub(crate) fn region_of(&self, location: &NativeLocation) -> CuResult<Region> {
        let region = self.arrays.region(location)?;
        self.check_region(&region)?;
        Ok(region)
    }

    /// Checks a region of device memory for an operation in `stream`.
    pub(crate) fn check_region(&self, region: &Region) -> CuResult<()> {
        region::check(&self.space, region)
    }
}

impl Drop for SoftwareGpu {
    fn drop(&mut self) {
        self.scheduler.stop();
    }
}

impl Gpu for SoftwareGpu {
    fn snapshot(&self) -> CuResult<Snapshot> {
        let (host, device) = (self.space.host_window(), self.virtual_memory.window());
        let (memory, version) = (self.space.capacity(), self.driver_version);
        Ok(attributes::snapshot(memory, &self.devices, version, self.capability, host, device))
    }

    fn shared_capacity(&self) -> Option<u64> {
        Some(self.space.capacity())
    }

    fn set_output(&self, sink: OutputSink) {
        *self.scheduler.machine.output.write() = Some(sink);
    }

    fn set_kernel_timer(&self, timer: KernelTimer) -> bool {
        *self.scheduler.machine.kernel_timer.write() = Some(timer);
        true
    }

    fn make_current(&self, context: Native<handle::Context>) -> CuResult<()> {
        self.contexts.make_current(context)
    }

    unsafe fn start_copy_to_device(
        &self,
        destination: &NativeLocation,
        source: *const u8,
        stream: Native<handle::Stream>,
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        self.context_of(stream)?;
        let destination = self.region_of(destination)?;
        let copy = Operation::CopyIn { destination, source: HostSource(source) };
        self.scheduler.issue(stream, copy)
    }

    unsafe fn start_copy_from_device(
        &self,
        source: &NativeLocation,
        destination: *mut u8,
        stream: Native<handle::Stream>,
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        self.context_of(stream)?;
        let source = self.region_of(source)?;
        let copy = Operation::CopyOut { source, destination: HostDestination(destination) };
        self.scheduler.issue(stream, copy)
    }

    fn set_aside(&self) -> &Arc<SetAside> {
        &self.set_aside
    }

    fn staging(&self, bytes: usize) -> CuResult<Staging> {
        self.staging.take(bytes)
    }

    unsafe fn register_host(&self, _address: *mut u8, bytes: usize) -> CuResult<Box<dyn Registration>> {
        self.pinned.register(bytes)
    }

    fn shared_memory(&self, address: u64, bytes: usize, managed: bool) -> CuResult<(u64, Shared)> {
        let (address, memory) = self.memory.share(address, bytes)?;
        // As a real GPU's, so that what this means for both ends can be seen without one.
        Ok((
            address,
            if managed { Shared::OnDevice(Box::new(Managed(memory))) } else { Shared::Here(memory) },
        ))
    }

    unsafe fn client_memory(
        &self,
        address: u64,
        bytes: usize,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> CuResult<Staging> {
        // SAFETY: the caller has `bytes` in whole pages of the file, and handles the SIGBUS of those that are
        // taken away.
        unsafe { self.memory.share_of_client(address, bytes, memory, offset) }
    }

    fn client_allocation(&self, memory: OwnedFd, bytes: usize) -> CuResult<Native<handle::Allocation>> {
        self.virtual_memory.adopt(memory, bytes as u64).map(Native::from_value)
    }

    fn allocation_memory(&self, allocation: Native<handle::Allocation>, bytes: usize) -> CuResult<Staging> {
        self.virtual_memory.memory_of(allocation.value(), bytes as u64)
    }

    fn managed_variable(&self, library: Native<handle::Library>, name: &str) -> CuResult<(u64, Staging)> {
        let (address, size) = self.modules.managed_variable(library.value(), name)?;
        // SAFETY: variables lie in memory that is mapped and initialised as long as their program is loaded.
        Ok((address, unsafe { Staging::new(address as *mut u8, size, |_, _| ()) }))
    }

    fn gpudirect_paths(&self, _device: i32) -> GpuDirectPaths {
        GpuDirectPaths::of_host_memory(GpuDirectChoice::from_environment())
    }

    fn gpudirect_memory(&self, path: GpuDirectPath, address: u64, bytes: usize) -> CuResult<GpuDirectMemory> {
        match path {
            GpuDirectPath::HostMemory if bytes > 0 && self.space.covers(address, bytes as u64) => {
                Ok(GpuDirectMemory::Addresses)
            }
            GpuDirectPath::HostMemory => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            GpuDirectPath::DmaBuf | GpuDirectPath::Peermem => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    fn finish_direct_writes(&self, _context: Native<handle::Context>) -> CuResult<()> {
        // The processor that runs kernels sees what a card has written to memory.
        Ok(())
    }

    // A fault does not keep these from waiting: an operation that was under way when it came may still use
    // memory that its owner keeps for as long as the completion has not been called. The completion gets the
    // fault.

    fn after(&self, stream: Native<handle::Stream>, done: Completion) -> CuResult<()> {
        let stream = if stream == Native::NULL { self.contexts.entered()?.legacy } else { stream.value() };
        self.scheduler.after_stream(stream, done)
    }

    fn stream_query(&self, stream: Native<handle::Stream>) -> CuResult<()> {
        let done = self.scheduler.is_done(self.stream(stream)?)?;
        if done { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
    }

    fn event_query(&self, event: Native<handle::Event>) -> CuResult<()> {
        self.contexts.current()?;
        self.scheduler.query_event(event.value())
    }

    fn after_event(&self, event: Native<handle::Event>, done: Completion) -> CuResult<()> {
        let context = self.contexts.entered()?;
        self.scheduler.after_event(event.value(), context, done)
    }

    fn after_context(&self, done: Completion) -> CuResult<()> {
        self.scheduler.after_context(&self.contexts.entered()?, done)
    }

    fn gate(
        &self,
        stream: Native<handle::Stream>,
        reached: Box<dyn FnOnce() + Send>,
    ) -> CuResult<Box<dyn Gate>> {
        self.scheduler.gate(self.stream(stream)?, reached)
    }

    fn queue_limit(&self) -> Option<usize> {
        None
    }

    fn memory_free(&self, address: u64) -> CuResult<()> {
        self.memory.free(address)
    }

    fn export_allocation(&self, allocation: Native<handle::Allocation>) -> CuResult<OwnedFd> {
        self.virtual_memory.export(allocation.value())
    }

    fn import_allocation(&self, descriptor: OwnedFd) -> CuResult<Native<handle::Allocation>> {
        self.virtual_memory.import(descriptor).map(Native::from_value)
    }

    fn import_memory(
        &self,
        descriptor: OwnedFd,
        size: u64,
        device: i32,
    ) -> Result<ImportedMemory, ImportError> {
        self.check_device(device).map_err(ImportError::Access)?;
        self.virtual_memory.import_mapped(descriptor, size)
    }

    fn unmap_imported(&self, imported: ImportedMemory) -> CuResult<()> {
        self.virtual_memory.unmap(imported.address, imported.size)
    }

    fn export_event(&self, _event: Native<handle::Event>) -> CuResult<Vec<u8>> {
        // An event is a place in the queues of this process.
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn import_event(&self, _bytes: &[u8]) -> CuResult<Native<handle::Event>> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    fn primary_context_reset(&self, device: i32) -> CuResult<()> {
        self.check_device(device)?;
        if let Some(context) = self.contexts.reset_primary(device) {
            self.tear_down(&context);
        }
        Ok(())
    }

    fn context_destroy(&self, context: Native<handle::Context>) -> CuResult<()> {
        let context = self.contexts.remove(context)?;
        self.tear_down(&context);
        Ok(())
    }

    fn suspends_to(&self) -> Result<SuspendedTo, SuspendError> {
        Ok(SuspendedTo::File)
    }

    fn is_quiet(&self) -> bool {
        self.scheduler.is_quiet()
    }

    fn suspend(&self, store: Option<OwnedFd>) -> Result<(), SuspendError> {
        let no_file = || SuspendError::Store(io::Error::other("the broker has given no file"));
        let file = File::from(store.ok_or_else(no_file)?);
        // SAFETY: the device is quiet, and the engine calls nothing until `resume` has returned.
        let swapped = unsafe { Swapped::write_out(file, &self.space, &self.virtual_memory) };
        *self.swapped.lock() = Some(swapped.map_err(SuspendError::Store)?);
        Ok(())
    }

    fn resume(&self) -> Result<(), ResumeError> {
        let swapped = self.swapped.lock().take();
        // SAFETY: the engine has called nothing since `suspend`, which has written all of it.
        let restored = swapped.map_or(Ok(()), |swapped| unsafe { swapped.bring_in(&self.space) });
        restored.map_err(ResumeError::Store)
    }

    fn code_memory(&self, _: &[LoadedCode<'_>]) -> Result<Vec<CodeMemory>, String> {
        self.modules.code_memory()
    }

    fn fix_next_module(&self, addresses: Vec<u64>) {
        self.modules.fix_next_addresses(addresses);
    }

    fn load_library_at(&self, library: Native<handle::Library>, addresses: &[u64]) -> CuResult<()> {
        self.modules.load_library_into(library.value(), &*self.contexts.current()?, addresses)
    }
}
