//! Block hashes of device memory, computed by a kernel of ours in the session's context.
//!
//! The kernel must not become part of what a program waits for: its kernels may fill the device and wait for the
//! very thread whose wait this serves. So a computation that takes longer than a copy would is left to itself, and
//! the caller copies. It runs in a stream of its own, which nothing waits for.
//!
//! Loading the kernel waits for every stream of the context, and copies and launches in the context wait for the load
//! (H200, driver 580, 2026-11-30). A stream may stand until the program does something that it does after this wait. So
//! the kernel is loaded only [while all is quiet](BlockHashers::load_kernels_if_quiet), and only when copies have cost as much as
//! a load: compiling it takes 0.15 s.

use crate::context;
use crate::functions::Functions;
use crate::locks::{Mutex, rank};
use crate::pinned::Pages;
use crate::waits::poll_interval;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdevice_attribute, CUfunction, CUmodule,
    CUresult, CUstream, CUstream_flags,
};
use causeway_gpu::CuResult;
use causeway_gpu::block_hash::{BLOCK, KERNEL_NAME, MAX_BYTES, THREADS, kernel};
use core::time::Duration;
use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Blocks of threads for each multiprocessor, as many as have their registers there.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 2;

/// The kernel is loaded when so many bytes have been copied without it, which takes some 50 ms.
const MIN_COPIED: usize = 1 << 30;

/// How long a computation may take: at least the first, and as long as a copy at this many bytes a microsecond. A kernel
/// that finds the device free takes a twentieth of that.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const COPIED_PER_MICROSECOND: usize = 50_000;

/// The kernel goes before blocks of other kernels that have not begun. Drivers clamp what their devices do not have.
const HIGHEST_PRIORITY: i32 = -5;

/// The kernel in one context, once it is loaded. Whoever computes takes it out, and no lock is held meanwhile.
pub(crate) struct BlockHasher {
    functions: &'static Functions,
    context: Native<Context>,
    kernel: Mutex<rank::Leaf, Slot>,
}

/// Where the kernel is.
enum Slot {
    /// It is not loaded; so many bytes have been copied instead.
    NotLoaded(usize),
    /// It can be used.
    Here(Kernel),
    /// Another thread has it.
    InUse,
    /// The driver does not load it.
    Refused,
}

/// The hashers of a session's contexts, for as long as memory uses them.
#[derive(Default)]
pub(crate) struct BlockHashers(Mutex<rank::Leaf, Vec<Weak<BlockHasher>>>);

impl BlockHashers {
    /// The one of a context.
    pub(crate) fn of(&self, functions: &'static Functions, context: Native<Context>) -> Arc<BlockHasher> {
        let mut all = self.0.lock();
        // That of an ended context, whose handle another one may have, is gone with the context's memory.
        all.retain(|each| each.strong_count() > 0);
        let found = all.iter().filter_map(Weak::upgrade).find(|each| each.context == context);
        found.unwrap_or_else(|| {
            let made = BlockHasher { functions, context, kernel: Mutex::new(Slot::NotLoaded(0)) };
            let made = Arc::new(made);
            all.push(Arc::downgrade(&made));
            made
        })
    }

    /// Loads the kernels that are needed, if `is_quiet`: no stream has work, and none gets any before this returns.
    pub(crate) fn load_kernels_if_quiet(&self, is_quiet: impl Fn() -> bool) {
        let mut needed: Vec<Arc<BlockHasher>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        needed.retain(|each| each.is_needed());
        if !needed.is_empty() && is_quiet() {
            needed.iter().for_each(|each| each.load());
        }
    }
}

impl BlockHasher {
    /// The hashes of the blocks of `bytes` of memory, at most [`MAX_BYTES`] and a multiple of 16, from an address on; nothing
    /// where the device does not compute them, or not soon.
    ///
    /// # Safety
    /// The memory must be mapped for the context's device as long as its work lasts.
    pub(crate) unsafe fn hashes(&self, address: u64, bytes: usize) -> Option<CuResult<Vec<u128>>> {
        let mut kernel = self.take()?;
        let hashes = context::within(self.functions, self.context, || {
            // SAFETY: the caller says so.
            unsafe { kernel.hashes(address, bytes) }
        });
        *self.kernel.lock() = Slot::Here(kernel);
        hashes.transpose()
    }

    /// Takes the kernel, if it is there.
    fn take(&self) -> Option<Kernel> {
        let mut slot = self.kernel.lock();
        match core::mem::replace(&mut *slot, Slot::InUse) {
            Slot::Here(kernel) => return Some(kernel),
            other => *slot = other,
        }
        None
    }

    /// So many bytes have been copied to the host, perhaps only to hash them there.
    pub(crate) fn note_copied(&self, bytes: usize) {
        if let Slot::NotLoaded(copied) = &mut *self.kernel.lock() {
            *copied = copied.saturating_add(bytes);
        }
    }

    fn is_needed(&self) -> bool {
        matches!(*self.kernel.lock(), Slot::NotLoaded(copied) if copied >= MIN_COPIED)
    }

    /// Loads the kernel, with no lock held.
    fn load(&self) {
        let loaded =
            context::within(self.functions, self.context, || Kernel::load(self.functions, self.context));
        *self.kernel.lock() = loaded.map_or_else(
            |status| {
                tracing::info!(status = status.0, "the driver does not load the kernel for block hashes");
                Slot::Refused
            },
            Slot::Here,
        );
    }
}

/// The loaded kernel and what it needs. What has been made of it so far goes with it.
struct Kernel {
    functions: &'static Functions,
    context: Native<Context>,
    module: CUmodule,
    function: CUfunction,
    stream: CUstream,
    /// Where it writes hashes, and their address on the device.
    results: Pages,
    results_on_device: u64,
    multiprocessors: u32,
    /// Whether it may be computing hashes that are too late.
    is_late: bool,
}

// SAFETY: the handles are the driver's, which any thread may use with their context current.
unsafe impl Send for Kernel {}

impl Kernel {
    /// Loads the kernel into `context`, which is the current one.
    fn load(functions: &'static Functions, context: Native<Context>) -> CuResult<Self> {
        let text = CString::new(kernel()).expect("PTX is text");
        let bytes = MAX_BYTES / BLOCK * size_of::<u128>();
        let mut made = Self {
            functions,
            context,
            module: core::ptr::null_mut(),
            function: core::ptr::null_mut(),
            stream: core::ptr::null_mut(),
            results: Pages::new(bytes)?,
            results_on_device: 0,
            multiprocessors: 0,
            is_late: false,
        };
        made.fill(&text)?;
        Ok(made)
    }

    fn fill(&mut self, text: &CString) -> CuResult<()> {
        let functions = self.functions;
        let (mut device, mut multiprocessors) = (0, 0);
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: results are locals and this value's own; the image is text with an end, which the driver copies.
        unsafe {
            functions.cuCtxGetDevice(&mut device)?;
            functions.cuDeviceGetAttribute(&mut multiprocessors, attribute, device)?;
            functions.cuModuleLoadDataEx(
                &mut self.module,
                text.as_ptr().cast_mut().cast(),
                0,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            )?;
            functions.cuModuleGetFunction(&mut self.function, self.module, KERNEL_NAME.as_ptr())?;
            let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
            functions.cuStreamCreateWithPriority(&mut self.stream, flags, HIGHEST_PRIORITY)?;
        }
        self.multiprocessors = u32::try_from(multiprocessors).unwrap_or(1).max(1);
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        self.results.register(functions, self.context, flags)?;
        // SAFETY: the pages have just been registered; the result is this value's own. The launch reads no memory.
        unsafe {
            functions.cuMemHostGetDevicePointer_v2(
                &mut self.results_on_device,
                self.results.address().cast(),
                0,
            )?;
            // The driver prepares a kernel's first launch; that waits, too.
            self.launch(0, 0)?;
            functions.cuStreamSynchronize(self.stream)
        }
    }

    /// Launches the kernel for memory, or for none.
    ///
    /// # Safety
    /// As for [`BlockHasher::hashes`].
    unsafe fn launch(&self, address: u64, bytes: usize) -> CuResult<()> {
        let blocks = bytes.div_ceil(BLOCK).max(1) as u32;
        let grid = blocks.min(self.multiprocessors * BLOCKS_PER_MULTIPROCESSOR);
        let mut parameters = [address, bytes as u64, self.results_on_device];
        let mut list = parameters.each_mut().map(|parameter| core::ptr::from_mut(parameter).cast());
        let (parameters, extra) = (list.as_mut_ptr(), core::ptr::null_mut());
        // SAFETY: the kernel reads memory that the caller has mapped and writes a hash for each of at most as many
        // blocks as there is room for; its parameters are copied during the call.
        unsafe {
            self.functions.cuLaunchKernel(
                self.function,
                grid,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                self.stream,
                parameters,
                extra,
            )
        }
    }

    /// # Safety
    /// As for [`BlockHasher::hashes`].
    unsafe fn hashes(&mut self, address: u64, bytes: usize) -> CuResult<Option<Vec<u128>>> {
        debug_assert!(bytes <= MAX_BYTES && bytes.is_multiple_of(16), "there is room for these hashes");
        if self.is_late && !self.is_done()? {
            return Ok(None);
        }
        self.is_late = false;
        // SAFETY: the caller says so.
        unsafe { self.launch(address, bytes)? };
        let timeout = MIN_TIMEOUT.max(Duration::from_micros((bytes / COPIED_PER_MICROSECOND) as u64));
        let start = Instant::now();
        while !self.is_done()? {
            let waited = start.elapsed();
            if waited > timeout {
                self.is_late = true;
                return Ok(None);
            }
            match poll_interval(true, waited) {
                None => core::hint::spin_loop(),
                Some(pause) => std::thread::sleep(pause),
            }
        }
        // SAFETY: the pages have room for the hashes of the most blocks, and the kernel that wrote these has ended.
        let hashes = unsafe {
            core::slice::from_raw_parts(self.results.address().cast::<u128>(), bytes.div_ceil(BLOCK))
        };
        Ok(Some(hashes.to_vec()))
    }

    /// Whether the stream has nothing to do.
    fn is_done(&self) -> CuResult<bool> {
        // SAFETY: the stream is this value's own.
        match unsafe { self.functions.cuStreamQuery(self.stream) } {
            Ok(()) => Ok(true),
            Err(CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
            Err(status) => Err(status),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let (functions, results) = (self.functions, &mut self.results);
        let (module, stream) = (self.module, self.stream);
        let released = context::within(functions, self.context, || {
            // SAFETY: made by `fill`, each part is undone once; when the stream is idle the kernel writes no results any more.
            unsafe {
                if !stream.is_null() {
                    functions.cuStreamSynchronize(stream)?;
                    functions.cuStreamDestroy_v2(stream)?;
                }
                results.unregister(functions);
                if !module.is_null() {
                    functions.cuModuleUnload(module)?;
                }
                Ok(())
            }
        });
        if let Err(status) = released {
            tracing::warn!(status = status.0, "the kernel for block hashes could not be unloaded");
        }
    }
}
