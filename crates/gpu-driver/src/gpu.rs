//! What the worker's engine needs besides the calls of the declaration list.

use crate::context;
use crate::driver::Driver;
use crate::staging::Reuse;
use crate::waits::{Join, Source};
use causeway_api::handle::{Allocation, Context, Event, Library, Native, Stream};
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::{CUipcEventHandle, CUresult};
use causeway_gpu::device_code::{CodeMemory, LoadedCode};
use causeway_gpu::device_memory::{ImportError, ImportedMemory, ResumeError, SuspendError, SuspendedTo};
use causeway_gpu::gpudirect::{GpuDirectMemory, GpuDirectPath, GpuDirectPaths};
use causeway_gpu::host_memory::SetAside;
use causeway_gpu::idle_poller::IdlePoller;
use causeway_gpu::{
    Completion, CuResult, Gate, Gpu, NativeLocation, OutputSink, Registration, Shared, Staging,
};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How many commands are given to a stream before the driver is asked to finish some.
///
/// A launch blocks in the driver when its stream holds about 1,024 commands; a host function or a wait counts
/// as several. Half of that keeps the GPU busy for milliseconds and leaves room.
const QUEUE_LIMIT: usize = 512;

impl Driver {
    /// A mark behind everything that `stream` holds now.
    fn mark(&self, context: Native<Context>, stream: Native<Stream>) -> CuResult<Native<Event>> {
        let mark = self.waits.mark(context, |event| {
            // SAFETY: the handles are the driver's own.
            unsafe { self.functions.cuEventRecord(event.as_raw(), stream.as_raw()) }
        });
        mark.inspect_err(|error| self.output.report_assertion(self.functions, Err(*error)))
    }

    /// Calls `done` after all streams of a context one by one, for drivers that cannot mark a context as a
    /// whole.
    fn after_each_stream(&self, context: Native<Context>, done: Completion) -> CuResult<()> {
        let streams = self.streams.of(context);
        let mut marks = Vec::with_capacity(streams.len());
        for stream in &streams {
            // All or none: what a refusal leaves out may go on for ever.
            match self.mark(context, *stream) {
                Ok(mark) => marks.push(mark),
                Err(error) => {
                    marks.into_iter().for_each(|mark| self.events.release(context, mark));
                    return Err(error);
                }
            }
        }
        for ((stream, mark), part) in streams.iter().zip(marks).zip(Join::split(streams.len(), done)) {
            self.waits.after_mark(context, Source::Stream(*stream), mark, part);
        }
        Ok(())
    }
}

impl Gpu for Driver {
    fn snapshot(&self) -> CuResult<Snapshot> {
        self.take_snapshot()
    }

    fn set_output(&self, sink: OutputSink) {
        self.output.set_sink(sink);
    }

    fn time_shared_device(&self) -> CuResult<u32> {
        Ok(self.current_device()?.cast_unsigned())
    }

    fn make_current(&self, context: Native<Context>) -> CuResult<()> {
        context::set(self.functions, context)
    }

    unsafe fn start_copy_to_device(
        &self,
        destination: &NativeLocation,
        source: *const u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        // SAFETY: the caller keeps the source readable and unchanged until the copy is done.
        unsafe { self.copy_in(destination, source, stream) }
    }

    unsafe fn start_copy_from_device(
        &self,
        source: &NativeLocation,
        destination: *mut u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        // SAFETY: the caller keeps the destination writable and untouched until the copy is done.
        unsafe { self.copy_out(source, destination, stream) }
    }

    fn set_aside(&self) -> &Arc<SetAside> {
        &self.set_aside
    }

    fn staging(&self, bytes: usize) -> CuResult<Staging> {
        self.staging.take(bytes, self.context_to_pin_in(), Reuse::ByLength)
    }

    fn warm_staging(&self, bytes: usize) -> CuResult<Staging> {
        self.staging.take(bytes, self.context_to_pin_in(), Reuse::Latest)
    }

    unsafe fn register_host(&self, address: *mut u8, bytes: usize) -> CuResult<Box<dyn Registration>> {
        let context = self.context_to_pin_in().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        // SAFETY: the caller keeps the memory mapped until the registration has ended.
        unsafe { self.registrations.register(self.functions, context, address, bytes) }
    }

    fn shared_memory(&self, address: u64, bytes: usize, managed: bool) -> CuResult<(u64, Shared)> {
        self.share(address, bytes, managed)
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
        unsafe { self.share_of_client(address, bytes, memory, offset) }
    }

    fn allocation_memory(&self, allocation: Native<Allocation>, bytes: usize) -> CuResult<Staging> {
        self.host_memory_of(allocation, bytes)
    }

    fn managed_variable(&self, library: Native<Library>, name: &str) -> CuResult<(u64, Staging)> {
        self.find_managed(library, name)
    }

    fn gpudirect_paths(&self, device: i32) -> GpuDirectPaths {
        self.find_gpudirect_paths(device)
    }

    fn gpudirect_memory(&self, path: GpuDirectPath, address: u64, bytes: usize) -> CuResult<GpuDirectMemory> {
        self.make_gpudirect_memory(path, address, bytes)
    }

    fn finish_direct_writes(&self, context: Native<Context>) -> CuResult<()> {
        context::within(self.functions, context, || self.flush_direct_writes())
    }

    fn after(&self, stream: Native<Stream>, done: Completion) -> CuResult<()> {
        // SAFETY: the handle is the driver's own. An error says that it is not known whether the work is
        // done.
        let is_idle = || unsafe { self.functions.cuStreamQuery(stream.as_raw()) }.is_ok();
        if self.waits.may_complete_at_once() && is_idle() {
            done(Ok(()));
            return Ok(());
        }
        let context = self.context_of(stream)?;
        let mark = self.mark(context, stream)?;
        self.waits.after_mark(context, Source::Stream(stream), mark, done);
        Ok(())
    }

    fn after_a_while(&self, stream: Native<Stream>, done: Completion) -> CuResult<()> {
        let context = self.context_of(stream)?;
        let mark = self.mark(context, stream)?;
        self.waits.some_time_after_mark(context, Source::Stream(stream), mark, done);
        Ok(())
    }

    fn idle_poller(&self) -> IdlePoller<'_> {
        self.waits.idle_poller()
    }

    fn stream_query(&self, stream: Native<Stream>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuStreamQuery(stream.as_raw()) }
    }

    fn event_query(&self, event: Native<Event>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        unsafe { self.functions.cuEventQuery(event.as_raw()) }
    }

    fn after_event(&self, event: Native<Event>, done: Completion) -> CuResult<()> {
        if self.waits.may_complete_at_once() {
            // SAFETY: the handle is the driver's own.
            match unsafe { self.functions.cuEventQuery(event.as_raw()) } {
                Err(CUresult::CUDA_ERROR_NOT_READY) => {}
                ended => {
                    self.output.report_assertion(self.functions, ended);
                    done(ended);
                    return Ok(());
                }
            }
        }
        let context = context::current(self.functions)?;
        self.waits.after_event(context, event, done);
        Ok(())
    }

    fn after_context(&self, done: Completion) -> CuResult<()> {
        let context = context::current(self.functions)?;
        let mark = self.waits.mark(context, |event| {
            // SAFETY: the handles are the driver's own.
            unsafe { self.functions.cuCtxRecordEvent(context.as_raw(), event.as_raw()) }
        });
        match mark {
            Ok(mark) => {
                self.waits.after_mark(context, Source::Context, mark, done);
                Ok(())
            }
            // Drivers before 12.5 cannot mark a context as a whole.
            Err(CUresult::CUDA_ERROR_NOT_FOUND | CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
                self.after_each_stream(context, done)
            }
            Err(error) => {
                self.output.report_assertion(self.functions, Err(error));
                Err(error)
            }
        }
    }

    fn gate(&self, stream: Native<Stream>, reached: Box<dyn FnOnce() + Send>) -> CuResult<Box<dyn Gate>> {
        self.gates.stop(self.functions, self.context_of(stream)?, stream, reached)
    }

    fn queue_limit(&self) -> Option<usize> {
        Some(QUEUE_LIMIT)
    }

    fn memory_free(&self, address: u64) -> CuResult<()> {
        // SAFETY: no pointers of this process; the driver knows its allocations.
        unsafe { self.functions.cuMemFree_v2(address) }
    }

    fn export_allocation(&self, allocation: Native<Allocation>) -> CuResult<OwnedFd> {
        self.export_descriptor(allocation)
    }

    fn import_allocation(&self, descriptor: OwnedFd) -> CuResult<Native<Allocation>> {
        self.import_descriptor(&descriptor)
    }

    fn import_memory(
        &self,
        descriptor: OwnedFd,
        size: u64,
        device: i32,
    ) -> Result<ImportedMemory, ImportError> {
        self.map_imported(&descriptor, size as usize, device)
    }

    fn unmap_imported(&self, imported: ImportedMemory) -> CuResult<()> {
        self.unmap_memory_of_peer(imported.address, imported.size as usize)
    }

    fn export_event(&self, event: Native<Event>) -> CuResult<Vec<u8>> {
        let mut handle = CUipcEventHandle::default();
        // SAFETY: the pointer is to a local; the event is the driver's own.
        unsafe { self.functions.cuIpcGetEventHandle(&mut handle, event.as_raw())? };
        Ok(handle.reserved.map(|byte| byte.cast_unsigned()).to_vec())
    }

    fn import_event(&self, bytes: &[u8]) -> CuResult<Native<Event>> {
        let mut handle = CUipcEventHandle::default();
        if bytes.len() != handle.reserved.len() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        for (place, byte) in handle.reserved.iter_mut().zip(bytes) {
            *place = byte.cast_signed();
        }
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuIpcOpenEventHandle(&mut raw, handle)? };
        Ok(Native::from_raw(raw))
    }

    fn primary_context_reset(&self, device: i32) -> CuResult<()> {
        self.primary_reset(device)
    }

    fn context_destroy(&self, context: Native<Context>) -> CuResult<()> {
        self.destroy_context(context)
    }

    fn suspends_to(&self) -> Result<SuspendedTo, SuspendError> {
        self.check_suspension()
    }

    fn is_quiet(&self) -> bool {
        self.all_is_done()
    }

    fn load_kernels_if_quiet(&self) {
        self.block_hashers.load_kernels_if_quiet(|| self.all_is_done());
    }

    fn suspend(&self, _store: Option<OwnedFd>) -> Result<(), SuspendError> {
        self.suspend_process()
    }

    fn resume(&self) -> Result<(), ResumeError> {
        self.resume_process()
    }

    fn code_memory(&self, loaded: &[LoadedCode<'_>]) -> Result<Vec<CodeMemory>, String> {
        self.find_code_memory(loaded)
    }
}
