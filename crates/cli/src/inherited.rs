//! Inherited process state: signals, limits and timers that `causeway` changes, and their restoration before
//! `exec`.
//!
//! `exec` hands on ignored signals, the signal mask, limits and running timers. What `causeway` relies on is set
//! before `main`; a program is started with what `causeway` was started with, as if it had been started directly.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;

/// Signals that are set here, and with what: ends of children are waited for, which an ignored SIGCHLD prevents; a
/// write beyond the limit of file sizes is an error instead of the end; Rust's runtime ignores SIGPIPE.
const SET: [(i32, Option<libc::sighandler_t>); 3] =
    [(libc::SIGCHLD, Some(libc::SIG_DFL)), (libc::SIGXFSZ, Some(libc::SIG_IGN)), (libc::SIGPIPE, None)];

/// Which of [`SET`] were ignored.
static IGNORED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// How many descriptors the process might have, and how many at most: a server raises that.
static DESCRIPTORS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Timers that `exec` hands on, and a fork does not.
const TIMERS: [libc::c_int; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];

// What an executable lists here the C library calls before `main`, and so before Rust's runtime, which forgets what
// SIGPIPE was.
#[used]
// SAFETY: the section holds pointers to functions that need no argument; the C library is ready by then.
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = take_over;

extern "C" fn take_over() {
    for ((signal, action), ignored) in SET.iter().zip(&IGNORED) {
        ignored.store(is_ignored(*signal), Ordering::Relaxed);
        if let Some(action) = action {
            // SAFETY: no handler of anybody's is replaced: there is none directly after `exec`.
            unsafe { libc::signal(*signal, *action) };
        }
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills plain data that lives here.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    for (saved, found) in DESCRIPTORS.iter().zip([limit.rlim_cur, limit.rlim_max]) {
        saved.store(found, Ordering::Relaxed);
    }
}

/// Whether a signal is ignored by this process.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a value of this plain type; the call fills it and sets nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, core::ptr::null(), &mut action);
        action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes this process, which is about to become a program, what it was when it started; async-signal-safe.
pub fn restore() -> io::Result<()> {
    for ((signal, _), ignored) in SET.iter().zip(&IGNORED) {
        let action = if ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: a fork's copy of this process, or this process at its end; none of the signals has a handler.
        unsafe { libc::signal(*signal, action) };
    }
    let [current, maximum] = DESCRIPTORS.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    let limit = libc::rlimit { rlim_cur: current, rlim_max: maximum };
    // SAFETY: the call reads plain data that lives here.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Timers that ran when this process started, which are meant for the program.
#[derive(Clone, Copy)]
pub struct Timers([libc::itimerval; 3]);

impl Timers {
    /// Stops those of this process. `exec` hands them on; a fork has none.
    pub fn take() -> Self {
        // SAFETY: zeros are a value of this plain type, which stands for a timer that does not run.
        let stopped: libc::itimerval = unsafe { core::mem::zeroed() };
        Self(TIMERS.map(|timer| {
            let mut found = stopped;
            // SAFETY: the call reads and fills plain data that lives here.
            unsafe { libc::setitimer(timer, &stopped, &mut found) };
            found
        }))
    }

    /// Starts them in this process; async-signal-safe.
    pub fn start(&self) {
        for (timer, value) in TIMERS.iter().zip(&self.0) {
            // SAFETY: the call reads plain data that lives here.
            unsafe { libc::setitimer(*timer, value, core::ptr::null_mut()) };
        }
    }
}
