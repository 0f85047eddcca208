//! SIGBUS handling: a mapped file of the client was truncated.
//!
//! Whoever uses the pages that are gone gets SIGBUS, which would end this process. They are replaced by zeros
//! instead: only the process that truncated the file loses bytes.

use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Gpu};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// The addresses at which files of the client are mapped: those of the host window.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// What was done with the signal before.
struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is there.
unsafe impl Sync for Previous {}

static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::uninit()));

/// Makes the process ready for files that are cut short, in the host window of `gpu`.
pub fn prepare(gpu: &dyn Gpu) -> CuResult<()> {
    static INSTALL: Once = Once::new();
    let (start, size) = gpu.snapshot()?.host_window;
    let (start, size) = (start as usize, size as usize);
    let end = start.checked_add(size).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    END.store(end, Ordering::Relaxed);
    START.store(start, Ordering::Release);
    // SAFETY: the handler has the form for SA_SIGINFO; what was there before is kept before it is there.
    INSTALL.call_once(|| unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, core::ptr::null(), PREVIOUS.0.get().cast());
        libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut());
    });
    Ok(())
}

/// Puts a page of zeros where one is gone. Only calls that may be made in a handler are made.
unsafe extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system says which address it is about.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_ours = START.load(Ordering::Acquire) <= address && address < END.load(Ordering::Relaxed);
    if is_ours && put_zeros(address / PAGE * PAGE) {
        return;
    }
    // SAFETY: kept before this handler was there; what it names is called as the system would.
    unsafe {
        let previous = (*PREVIOUS.0.get()).assume_init();
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                // The fault comes again, and is nobody's then.
                libc::sigaction(signal, &previous, core::ptr::null_mut());
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                core::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => core::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}

/// Maps a page of zeros at an address of the window.
fn put_zeros(page: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: what is replaced has no page, and lies where nothing but the client's memory is.
    unsafe { libc::mmap(page as *mut _, PAGE, access, flags, -1, 0) != libc::MAP_FAILED }
}
