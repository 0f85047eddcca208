//! The life of this library in its process: before `cuInit`, in use, in a forked child, after exit.

use causeway_api::sys::CUresult;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

const FRESH: u8 = 0;
const READY: u8 = 1;
const FORKED: u8 = 2;
const ENDED: u8 = 3;
const FORKING: u8 = 4;

/// What belongs to the process as a whole.
struct Process {
    state: AtomicU8,
    handlers: OnceLock<Handlers>,
}

static PROCESS: Process = Process { state: AtomicU8::new(FRESH), handlers: OnceLock::new() };

/// Entry points that answer before `cuInit`.
const BEFORE_INIT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetExportTable",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
];

/// Whether a session is open and usable.
#[inline]
pub fn is_ready() -> bool {
    matches!(PROCESS.state.load(Ordering::Acquire), READY | FORKING)
}

/// Whether calls of the program need no [admission](admit): a session is open, and does not fork.
#[inline]
pub fn accepts_calls() -> bool {
    PROCESS.state.load(Ordering::Acquire) == READY
}

/// Refuses calls of the thread that forks, or accepts them again: their replies would come when it has
/// forked. Other threads wait before they get here.
pub fn set_forking(is_forking: bool) {
    let (from, to) = if is_forking { (READY, FORKING) } else { (FORKING, READY) };
    // Where the process ends meanwhile that counts.
    let _ = PROCESS.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
}

/// Decides about a call of `symbol` while no session is usable.
#[cold]
pub fn admit(symbol: &str) -> Result<(), CUresult> {
    let needs_session = !BEFORE_INIT.contains(&symbol);
    match PROCESS.state.load(Ordering::Acquire) {
        FORKED if needs_session || symbol == "cuInit" => Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        ENDED if needs_session || symbol == "cuInit" => Err(CUresult::CUDA_ERROR_DEINITIALIZED),
        FRESH if needs_session => Err(CUresult::CUDA_ERROR_NOT_INITIALIZED),
        FORKING if needs_session => Err(CUresult::CUDA_ERROR_NOT_PERMITTED),
        _ => Ok(()),
    }
}

/// Whether `cuInit` has not succeeded yet, and still can.
pub fn is_fresh() -> bool {
    PROCESS.state.load(Ordering::Acquire) == FRESH
}

/// What is done for those who have connections.
#[derive(Debug)]
pub struct Handlers {
    /// In a forked child of a process whose sessions are open.
    pub forked: fn(),
    /// In a forked child of a process that may hold sessions for its own `cuInit`.
    pub forked_before_init: fn(),
    /// When the process ends with open sessions.
    pub at_exit: fn(),
}

/// Whether this is the forked child of a process with a session.
pub fn is_forked() -> bool {
    PROCESS.state.load(Ordering::Acquire) == FORKED
}

/// Says that the session is open.
pub fn opened() {
    PROCESS.state.store(READY, Ordering::Release);
}

/// Watches fork and exit from here on.
pub fn watch(handlers: Handlers) {
    PROCESS.handlers.get_or_init(|| {
        // SAFETY: both functions stay mapped, because the library is linked with `-z nodelete`. Should the
        // system have no memory for the registration, fork and exit go unwatched; nothing else depends on it.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_forked_child));
            libc::atexit(at_exit);
        }
        handlers
    });
}

/// A child has none of our threads, and its parent goes on using the connections: it must let go of them.
extern "C" fn in_forked_child() {
    // Nothing while another thread of the parent was about to begin watching.
    let Some(handlers) = PROCESS.handlers.get() else { return };
    match PROCESS.state.load(Ordering::Acquire) {
        READY | FORKING => {
            PROCESS.state.store(FORKED, Ordering::Release);
            (handlers.forked)();
        }
        FRESH => (handlers.forked_before_init)(),
        _ => {}
    }
}

/// Runs before the destructors of the program and of the runtime, whose calls then get "deinitialised".
extern "C" fn at_exit() {
    let Some(handlers) = PROCESS.handlers.get() else { return };
    let end = |state| matches!(state, READY | FORKING).then_some(ENDED);
    if PROCESS.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).is_ok() {
        (handlers.at_exit)();
    }
}
