//! GPU back end: its trait, what the worker's engine needs besides the calls of the declaration list, and its
//! types.

use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use causeway_api::handle::{Allocation, Array, Context, Event, Library, MipmappedArray, Native, Stream};
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, TextureSource};

use crate::calls::Calls;
use crate::device_code::{CodeMemory, LoadedCode};
use crate::device_memory::{ImportError, ImportedMemory, ResumeError, SuspendError, SuspendedTo};
use crate::gpudirect::{GpuDirectMemory, GpuDirectPath, GpuDirectPaths};
use crate::host_memory::{SetAside, Staging};
use crate::idle_poller::IdlePoller;

/// A back end: the calls of the declaration list, and what the worker's engine needs besides.
///
/// No method blocks for work of the GPU unless its description says so: the engine calls them from the one
/// thread that issues every command of a client.
pub trait Gpu: Calls {
    /// The devices and their attributes. Starts the driver, creates no context.
    fn snapshot(&self) -> CuResult<Snapshot>;

    /// Bytes of device memory that all processes of the back end share without knowing of each other, so that somebody
    /// else must divide them up; nothing where the device does.
    fn shared_capacity(&self) -> Option<u64> {
        None
    }

    /// Where `printf` and failed assertions of kernels go from now on. It must have been called for
    /// everything that kernels printed before a completion of [`Gpu::after`] and its like is called.
    fn set_output(&self, sink: OutputSink);

    /// Who hears from now on how long each kernel has run; false where the back end does not measure that.
    fn set_kernel_timer(&self, timer: KernelTimer) -> bool {
        drop(timer);
        false
    }

    /// The number of the device whose time kernels of the current context take from others; devices that have the same
    /// processors have one number.
    fn time_shared_device(&self) -> CuResult<u32> {
        Ok(0)
    }

    /// Makes `context` the one that the calling thread's next calls mean.
    fn make_current(&self, context: Native<Context>) -> CuResult<()>;

    /// Starts a copy of contiguous host memory into `destination`, in stream order.
    /// [`InFlight`](crate::in_flight::InFlight) is the safe way to it.
    ///
    /// # Safety
    /// `source` must be readable for the place's bytes, and stay so unchanged until a completion of
    /// [`Gpu::after`] for the stream, asked for after this call, has been called; also when this call fails.
    unsafe fn start_copy_to_device(
        &self,
        destination: &NativeLocation,
        source: *const u8,
        stream: Native<Stream>,
    ) -> CuResult<()>;

    /// Starts a copy of `source` into contiguous host memory, in stream order.
    /// [`InFlight`](crate::in_flight::InFlight) is the safe way to it.
    ///
    /// # Safety
    /// `destination` must be writable for the place's bytes and not be touched until a completion of
    /// [`Gpu::after`] for the stream, asked for after this call, has been called; also when this call fails.
    unsafe fn start_copy_from_device(
        &self,
        source: &NativeLocation,
        destination: *mut u8,
        stream: Native<Stream>,
    ) -> CuResult<()>;

    /// The account of memory whose use by the device has no end that could be known.
    fn set_aside(&self) -> &Arc<SetAside>;

    /// Host memory for copies, as fast for the GPU as the back end can make it (pinned).
    fn staging(&self, bytes: usize) -> CuResult<Staging>;

    /// The same for bytes that the device is to read from the processor's caches: memory that was used just
    /// before.
    fn warm_staging(&self, bytes: usize) -> CuResult<Staging> {
        self.staging(bytes)
    }

    /// Makes memory of this process as fast for copies as [`Gpu::staging`] is, in the current context and for
    /// all others.
    ///
    /// # Safety
    /// The memory must stay mapped until the result is dropped.
    unsafe fn register_host(&self, address: *mut u8, bytes: usize) -> CuResult<Box<dyn Registration>>;

    /// Memory that kernels reach at `address`, a page of the snapshot's host window, or anywhere for 0:
    /// zeroed. It belongs to the current context. Gives its address on the device with it; it may be dropped
    /// when the device does not use it any more. `managed` memory is the device's own, at an address of the
    /// snapshot's window for that.
    fn shared_memory(&self, address: u64, bytes: usize, managed: bool) -> CuResult<(u64, Shared)>;

    /// Memory of the client, which kernels and this process reach at `address`, a page of the snapshot's host
    /// window: that of a file from `offset` on. It belongs to the current context as that of
    /// [`Gpu::shared_memory`] does.
    ///
    /// # Safety
    /// `memory` must have `bytes` there, in whole pages. Where somebody can take pages away, the caller must
    /// have a handler for the SIGBUS of whoever uses them.
    unsafe fn client_memory(
        &self,
        address: u64,
        bytes: usize,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> CuResult<Staging>;

    /// An allocation, to be mapped at addresses that the client chooses, of memory that the client has handed
    /// over: nobody can take away any of its `bytes`. For back ends that have no such allocations the
    /// client's memory is mirrored.
    fn client_allocation(&self, memory: OwnedFd, bytes: usize) -> CuResult<Native<Allocation>> {
        let _ = (memory, bytes);
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    /// All memory of an allocation of the host, which has `bytes`, for this process to read and write
    /// whatever kernels do. It stays as long as the result lives.
    fn allocation_memory(&self, allocation: Native<Allocation>, bytes: usize) -> CuResult<Staging>;

    /// Address and memory of a variable declared `__managed__`, for this process to read and write at any
    /// time as long as the library is loaded.
    fn managed_variable(&self, library: Native<Library>, name: &str) -> CuResult<(u64, Staging)>;

    /// How network cards may reach the memory of a device, as
    /// [`CHOICE_VARIABLE`](crate::gpudirect::CHOICE_VARIABLE) allows, and why not otherwise.
    fn gpudirect_paths(&self, device: i32) -> GpuDirectPaths;

    /// What a network card is given to reach a range of device memory in one of the device's
    /// [`Gpu::gpudirect_paths`]. The range must stay allocated for as long as the card may use it. An error
    /// is about this range, or this path, and says nothing about others.
    fn gpudirect_memory(&self, path: GpuDirectPath, address: u64, bytes: usize) -> CuResult<GpuDirectMemory>;

    /// To be called after a network card is known to have written to memory of the context's device, and
    /// before work that reads it begins there: where a GPU may still see what was there before, waits until
    /// it does not. The calling thread's context stays as it is.
    fn finish_direct_writes(&self, context: Native<Context>) -> CuResult<()>;

    /// Calls `done` when everything that `stream` holds now is done, or has ended with its context. An error
    /// here means that `done` is not called, and says nothing about the work, which may go on; the same goes
    /// for [`Gpu::after_event`] and [`Gpu::after_context`].
    fn after(&self, stream: Native<Stream>, done: Completion) -> CuResult<()>;

    /// Like [`Gpu::after`], for what nobody waits for: `done` may be called a little late, and may be
    /// overtaken by completions of other calls. Asking the driver less often leaves it to those who give the
    /// device work.
    fn after_a_while(&self, stream: Native<Stream>, done: Completion) -> CuResult<()> {
        self.after(stream, done)
    }

    /// The calling thread's idle poller: a thread with nothing else to do notices the end of work
    /// sooner than one that has to be woken for it. A thread has one at a time.
    fn idle_poller(&self) -> IdlePoller<'_> {
        IdlePoller::over_nothing()
    }

    /// Calls `done` when the last recorded use of `event` is done; at once when it was never recorded.
    fn after_event(&self, event: Native<Event>, done: Completion) -> CuResult<()>;

    /// Whether everything that `stream` holds now is done; "not ready" is an error.
    fn stream_query(&self, stream: Native<Stream>) -> CuResult<()>;

    /// Whether the last recorded use of `event` is done; "not ready" is an error.
    fn event_query(&self, event: Native<Event>) -> CuResult<()>;

    /// Calls `done` when everything that all streams of the current context hold now is done.
    fn after_context(&self, done: Completion) -> CuResult<()>;

    /// Stops `stream` at this point: calls `reached` when the stream gets here, and lets it go on when the
    /// gate is opened. Other streams are not held up.
    fn gate(&self, stream: Native<Stream>, reached: Box<dyn FnOnce() + Send>) -> CuResult<Box<dyn Gate>>;

    /// How many commands a stream may hold before another one would block, if there is such a limit.
    fn queue_limit(&self) -> Option<usize>;

    /// Frees memory of `memory_allocate`; called when the context is idle. May block shortly.
    fn memory_free(&self, address: u64) -> CuResult<()>;

    /// A descriptor that stands for an allocation in other processes of this machine.
    fn export_allocation(&self, allocation: Native<Allocation>) -> CuResult<OwnedFd>;

    /// The allocation that a descriptor of [`Gpu::export_allocation`] in another process stands for.
    fn import_allocation(&self, descriptor: OwnedFd) -> CuResult<Native<Allocation>>;

    /// Maps all of the allocation, of `size` bytes, that a descriptor of [`Gpu::export_allocation`] in
    /// another process stands for, so that `device` copies from it. The other process's device need not be
    /// one of this process's.
    fn import_memory(
        &self,
        descriptor: OwnedFd,
        size: u64,
        device: i32,
    ) -> Result<ImportedMemory, ImportError>;

    /// Takes away what [`Gpu::import_memory`] mapped. Nothing may use it any more. May block shortly.
    fn unmap_imported(&self, imported: ImportedMemory) -> CuResult<()>;

    /// The bytes that stand for an event in other processes of this machine.
    fn export_event(&self, event: Native<Event>) -> CuResult<Vec<u8>>;

    /// The event of another process that these bytes stand for.
    fn import_event(&self, bytes: &[u8]) -> CuResult<Native<Event>>;

    /// Resets the primary context of a device; called when the context is idle. May block.
    fn primary_context_reset(&self, device: i32) -> CuResult<()>;

    /// Destroys a context; called when it is idle. May block.
    fn context_destroy(&self, context: Native<Context>) -> CuResult<()>;

    /// Where [`Gpu::suspend`] takes device memory to.
    ///
    /// # Errors
    /// Why this back end cannot suspend the memory of this session, as far as that is known before.
    fn suspends_to(&self) -> Result<SuspendedTo, SuspendError> {
        Err(SuspendError::Unsupported("what executes the calls cannot move device memory to the host"))
    }

    /// Whether no stream holds anything that is not done, and every completion that was asked for has been called. A
    /// stream that has failed is not quiet.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Does what must not happen while a stream has work, such as loading code of the back end's own, if none has any now. To
    /// be called where no command can reach the device before this returns.
    fn load_kernels_if_quiet(&self) {}

    /// Takes all that the device holds for this process, which is [quiet](Gpu::is_quiet), to the host, and frees it on the
    /// device; with `store` for back ends that want a [file](SuspendedTo::File). Until [`Gpu::resume`] has returned no
    /// other method may be called, and nothing may use the memory. May block for seconds.
    ///
    /// # Errors
    /// Everything is as it was, but after [`SuspendError::Lost`].
    fn suspend(&self, store: Option<OwnedFd>) -> Result<(), SuspendError> {
        drop(store);
        self.suspends_to().map(drop)
    }

    /// Brings back what [`Gpu::suspend`] has taken away: at the same addresses, with the same bytes. May block for seconds.
    ///
    /// # Errors
    /// [`ResumeError::OutOfMemory`] leaves it suspended; after others it is lost.
    fn resume(&self) -> Result<(), ResumeError> {
        Ok(())
    }

    /// Where the variables of all loaded code, which is `loaded`, lie, so that their values can be carried to another
    /// process. May load what was to be loaded at its first use.
    ///
    /// # Errors
    /// Why that is not known, or cannot be carried; a sentence for people.
    fn code_memory(&self, loaded: &[LoadedCode<'_>]) -> Result<Vec<CodeMemory>, String> {
        if loaded.is_empty() {
            return Ok(Vec::new());
        }
        Err("what executes the calls does not tell where the variables of loaded code lie".to_owned())
    }

    /// The variables of the next module that is loaded are to lie where [`Gpu::code_memory`] says that they did in
    /// another process; its load fails where that is not possible.
    fn fix_next_module(&self, addresses: Vec<u64>) {
        drop(addresses);
    }

    /// Loads a library into the current context, with its variables where they were in another process.
    fn load_library_at(&self, library: Native<Library>, addresses: &[u64]) -> CuResult<()> {
        let _ = (library, addresses);
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Memory that kernels and this process use.
pub enum Shared {
    /// Memory of this process, to be read and written at any time.
    Here(Staging),
    /// Memory of a device.
    OnDevice(Box<dyn DeviceBytes>),
}

/// Memory of a device of which the worker moves bytes at once, whatever the streams are doing.
pub trait DeviceBytes: Send {
    /// Copies from the memory. When that fails, the device may still write to `into`: it must be set aside.
    fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()>;
    /// Copies into the memory.
    fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()>;
    /// The hashes ([`block_hash`](crate::block_hash)) of the blocks of a part that begins at a block, if the device computes
    /// them in less time than a copy takes; nothing where it does not, or is busy with other kernels.
    fn block_hashes(&self, at: usize, bytes: usize) -> Option<CuResult<Vec<u128>>> {
        let _ = (at, bytes);
        None
    }
}

/// Host memory that the back end knows. It is forgotten when this is dropped, which no copy to or from it
/// must outlive.
pub trait Registration: Send + Sync {
    /// Whether the registration is still known: the end of the context in which it was registered ends it.
    fn is_alive(&self) -> bool;
}

/// A stop in a stream. Dropping it unopened opens it, so that a lost client cannot hold a stream for ever.
pub trait Gate: Send {
    /// Lets the stream go on.
    fn open(self: Box<Self>);
}

/// The outcome of a driver call.
pub type CuResult<T> = Result<T, CUresult>;

/// One end of a copy, as the back end knows it.
pub type NativeLocation = DeviceLocation<Native<Array>>;

/// What a texture looks into, as the back end knows it.
pub type NativeSource = TextureSource<Native<Array>, Native<MipmappedArray>>;

/// Called once when work is done, on whatever thread noticed it; gets the error that ended the work, if any.
pub type Completion = Box<dyn FnOnce(CuResult<()>) + Send>;

/// Which stream of the program something is printed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputStream {
    /// Standard output, where `printf` of kernels goes.
    Standard,
    /// Standard error, where failed assertions of kernels are reported.
    Error,
}

/// Takes what kernels print.
pub type OutputSink = Box<dyn Fn(OutputStream, &[u8]) + Send + Sync>;

/// Gets how long a kernel has run, when it has ended.
pub type KernelTimer = Box<dyn Fn(Duration) + Send + Sync>;
