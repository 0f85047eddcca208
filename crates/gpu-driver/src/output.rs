//! What kernels print.
//!
//! The driver writes the output of a kernel's `printf` to the C library's `stdout` of this process, a failed
//! assertion to `stderr`, and does so only in calls that synchronise. Both therefore lead to files in memory,
//! which are read after such a call; whoever starts a worker keeps another descriptor for what the worker
//! itself has to say. A pipe would not do: the thread that empties it is the one that makes the driver write,
//! and a device prints up to a megabyte at a time.

use crate::fatbin::may_print;
use crate::functions::Functions;
use causeway_api::sys::CUresult;
use causeway_gpu::{OutputSink, OutputStream};
use causeway_sync::face::Mutex;
use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Takes the output of kernels from the standard streams to a sink.
#[derive(Default)]
pub(crate) struct Output {
    /// Whether a module that may print has been loaded; others are spared the synchronising call.
    prints: AtomicBool,
    /// It has no rank: the sink, which is the worker's, is called under it, so that the text keeps its order.
    capture: Mutex<Option<Capture>>,
}

/// The program's streams, led to files.
struct Capture {
    standard: RedirectedFd,
    error: RedirectedFd,
    sink: OutputSink,
}

/// A descriptor of this process that leads to a file in memory.
struct RedirectedFd {
    descriptor: libc::c_int,
    file: File,
    /// How much of the file has been read.
    read: u64,
    /// Where the descriptor led before.
    original: OwnedFd,
}

impl Output {
    /// Whether kernels may print.
    pub(crate) fn expected(&self) -> bool {
        self.prints.load(Ordering::Relaxed)
    }

    /// Notes whether the code that is being loaded may print on devices of these compute capabilities, times
    /// ten.
    pub(crate) fn inspect(&self, image: &[u8], capabilities: &[u32]) {
        if !self.expected() && may_print(image, capabilities) {
            self.prints.store(true, Ordering::Relaxed);
        }
    }

    /// Leads standard output to `sink` from now on.
    pub(crate) fn set_sink(&self, sink: OutputSink) {
        let mut capture = self.capture.lock();
        if let Some(capture) = capture.as_mut() {
            capture.drain();
            capture.sink = sink;
            return;
        }
        match Capture::begin(sink) {
            Ok(started) => *capture = Some(started),
            Err(error) => {
                tracing::error!(%error, "cannot redirect standard output; the output of kernels stays on the \
                    server")
            }
        }
    }

    /// Passes on the text of an assertion when that is what has ended work of the current context.
    pub(crate) fn report_assertion(&self, functions: &Functions, outcome: causeway_gpu::CuResult<()>) {
        if outcome != Err(CUresult::CUDA_ERROR_ASSERT) {
            return;
        }
        // The driver tells of it in a call that synchronises; this one does not wait, for nothing goes on any
        // more. SAFETY: no pointers.
        let _ = unsafe { functions.cuCtxSynchronize() };
        self.drain();
    }

    /// Passes on what has been printed.
    pub(crate) fn drain(&self) {
        if let Some(capture) = self.capture.lock().as_mut() {
            capture.drain();
        }
    }
}

impl Capture {
    fn begin(sink: OutputSink) -> io::Result<Self> {
        Ok(Self {
            standard: RedirectedFd::new(libc::STDOUT_FILENO)?,
            error: RedirectedFd::new(libc::STDERR_FILENO)?,
            sink,
        })
    }

    fn drain(&mut self) {
        // SAFETY: null means "all streams".
        unsafe { libc::fflush(core::ptr::null_mut()) };
        self.standard.drain(|bytes| (self.sink)(OutputStream::Standard, bytes));
        self.error.drain(|bytes| (self.sink)(OutputStream::Error, bytes));
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.drain();
    }
}

impl RedirectedFd {
    fn new(descriptor: libc::c_int) -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated.
        let file = unsafe { libc::memfd_create(c"causeway-output".as_ptr(), libc::MFD_CLOEXEC) };
        let file = checked(file)?;
        // SAFETY: a descriptor that was just made and that nothing else owns.
        let file = unsafe { File::from_raw_fd(file) };
        // Appending keeps writers and the reader's position apart.
        // SAFETY: `fcntl` and `dup2` work on descriptors only; `fflush` takes null for "all streams".
        let original = unsafe {
            checked(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND))?;
            let original = checked(libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3))?;
            let original = OwnedFd::from_raw_fd(original);
            libc::fflush(core::ptr::null_mut());
            checked(libc::dup2(file.as_raw_fd(), descriptor))?;
            original
        };
        Ok(Self { descriptor, file, read: 0, original })
    }

    fn drain(&mut self, sink: impl Fn(&[u8])) {
        let start = self.read;
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.file.read_at(&mut buffer, self.read) {
                Ok(0) => break,
                Ok(count) => {
                    sink(&buffer[..count]);
                    self.read += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::error!(%error, "cannot read the output of kernels");
                    break;
                }
            }
        }
        if self.read > start {
            let (offset, length) = (start as libc::off_t, (self.read - start) as libc::off_t);
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // The memory is released without cutting the file off, since another thread may be writing. A
            // failure only leaves it allocated.
            // SAFETY: works on a descriptor that is open.
            unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset, length) };
        }
    }
}

impl Drop for RedirectedFd {
    fn drop(&mut self) {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(self.original.as_raw_fd(), self.descriptor) };
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
