//! Copy lane of a proxy: its stream, and completion.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Driver, copy_from_host};
use crate::device::cuda::calls::{Calls, check};
use crate::device::cuda::pinned::allocate;
use crate::device::gpu::{Block, GpuError, Lane};
use crate::device::remote::frame::MAX_PAYLOAD;

/// Copies one behind the other, in a stream of their own.
pub(super) struct CudaLane {
    calls: &'static Calls,
    context: u64,
    /// Copies from the host are made by these, in a context of this library's own.
    own: Option<&'static Driver>,
    stream: Stream,
    /// The last mark, as the stream has written it.
    done: Block,
    marks: u64,
}

impl CudaLane {
    /// A lane of the calling thread's context, which is this one.
    pub(super) fn new(calls: &'static Calls, context: u64) -> Result<Self, GpuError> {
        Ok(Self {
            calls,
            context,
            own: None,
            stream: Stream::new(calls)?,
            done: allocate(calls, 8)?,
            marks: 0,
        })
    }

    /// The same in the calling thread's context, which is this library's own
    /// ([`Scope::of_copies`](crate::cuda::Scope::of_copies)).
    pub(super) fn in_own_context(
        calls: &'static Calls,
        context: u64,
        driver: &'static Driver,
    ) -> Result<Self, GpuError> {
        Ok(Self { own: Some(driver), ..Self::new(calls, context)? })
    }

    /// Waits for all copies and marks.
    pub(super) fn wait(&self) -> Result<(), GpuError> {
        self.stream.wait("a copy")
    }

    /// Does once what a proxy asks for, so that the driver makes and loads at these first copies, while no
    /// kernel waits, what it would make at later ones. The memory is not shared.
    pub(super) fn warm_up(&mut self, memory: &Block) -> Result<(), GpuError> {
        let max_bytes = memory.bytes / 2;
        // Within a GPU, where others would take turns with kernels.
        if self.own.is_none() {
            for bytes in [8, max_bytes] {
                self.copy(memory.address, memory.address + max_bytes, bytes)?;
            }
        }
        // Links copy to and from staging memory in the host.
        let staging = allocate(self.calls, max_bytes.clamp(8, u64::from(MAX_PAYLOAD)))?;
        for bytes in [8, staging.bytes.min(max_bytes)] {
            self.copy(staging.address, memory.address, bytes)?;
            self.copy_from_host(memory.address, staging.address, bytes)?;
        }
        self.set(memory.address, 0)?;
        self.mark()?;
        // The staging memory is freed behind its copies.
        self.wait()
    }
}

impl Lane for CudaLane {
    fn enter(&mut self) {
        // The lane's calls would tell of an error.
        // SAFETY: the context lives as long as the program uses the team.
        let _ = unsafe { self.calls.set_context(self.context as *mut c_void) };
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        // SAFETY: the proxy has found both ranges in windows, or in memory of its queue.
        check("a copy", unsafe { self.calls.copy(to, from, bytes as usize, self.stream.handle()) })
    }

    fn copy_from_host(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        let Some(driver) = self.own else { return self.copy(to, from, bytes) };
        // SAFETY: the proxy has found both ranges in windows, or in memory of its queue; the stream is the
        // own context's.
        check("a copy", unsafe {
            copy_from_host(driver, to, from, bytes as usize, self.stream.handle() as u64)
        })
    }

    fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError> {
        self.stream.write_value(to, value)
    }

    fn mark(&mut self) -> Result<u64, GpuError> {
        self.marks += 1;
        self.stream.write_value(self.done.address, self.marks)?;
        Ok(self.marks)
    }

    fn done(&self) -> u64 {
        // SAFETY: a word of memory that the lane has.
        let done = unsafe { &*(self.done.address as *const AtomicU64) };
        // Acquired: what the stream copied before is there.
        done.load(Ordering::Acquire)
    }
}

/// `CU_STREAM_NON_BLOCKING`: nothing of the legacy default stream holds it up.
const NON_BLOCKING: u32 = 1;

/// A stream in front of others: the device has few queues for streams of one priority, and a copy must not
/// stand behind a kernel that waits for it.
#[derive(Debug)]
pub(super) struct Stream {
    calls: &'static Calls,
    handle: u64,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream was made by `new` and nobody has it any more.
        let _ = unsafe { self.calls.destroy_stream(self.handle()) };
    }
}

impl Stream {
    /// A stream of the calling thread's context.
    pub(super) fn new(calls: &'static Calls) -> Result<Self, GpuError> {
        let (mut min_priority, mut greatest) = (0, 0);
        // SAFETY: there is room for both.
        check("the priorities of streams", unsafe {
            calls.priorities(&raw mut min_priority, &raw mut greatest)
        })?;
        let mut stream: *mut c_void = core::ptr::null_mut();
        // SAFETY: there is room for the stream.
        check("a stream", unsafe { calls.create_stream(&raw mut stream, NON_BLOCKING, greatest) })?;
        Ok(Self { calls, handle: stream as u64 })
    }

    /// As the driver knows it.
    pub(super) fn handle(&self) -> *mut c_void {
        self.handle as *mut c_void
    }

    /// Waits for all its work.
    pub(super) fn wait(&self, what: &str) -> Result<(), GpuError> {
        // SAFETY: the stream lives as long as this.
        check(what, unsafe { self.calls.synchronize(self.handle()) })
    }

    /// Writes a word behind what the stream has to do.
    pub(super) fn write_value(&self, to: u64, value: u64) -> Result<(), GpuError> {
        // SAFETY: the stream is alive; the driver checks the address.
        check("a word", unsafe { self.calls.write_value(self.handle(), to, value, 0) })
    }
}
