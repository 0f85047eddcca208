//! Threads that live in other people's processes.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

/// The calling thread's number, counted from 1: no other thread of the process has or had it. Unlike
/// `std::thread::current` it can be asked for in the last destructors of a thread.
pub fn number() -> u64 {
    static NEWEST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        // Has no destructor, and so is there as long as the thread is.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEWEST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

/// Starts a thread named `causeway-{name}` that no signal is ever delivered to, so that the program's
/// handlers run on the program's own threads, as they would without us.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    start(Builder::new(), name, body)
}

/// Like [`spawn`], for a thread that calls the program's own functions: it has as much stack as they are used to from
/// the C library's threads, four times of what Rust's have.
pub fn spawn_for_program(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    start(Builder::new().stack_size(8 << 20), name, body)
}

fn start(builder: Builder, name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The new thread inherits the mask, so it is blocked from its first instruction on.
    let before = block_all_signals();
    let started = builder.name(format!("causeway-{name}")).spawn(body);
    restore_signals(&before);
    started
}

/// Calls `body`, which may write to a connection that has ended, so that the program hears nothing of it.
pub fn without_sigpipe<T>(body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    without(libc::SIGPIPE, io::ErrorKind::BrokenPipe, body)
}

/// Calls `body`, which may make a file longer than the limit of the process, so that this is an error and not the
/// program's end. Memory that is shared (`memfd_create`) counts as a file.
pub fn without_sigxfsz<T>(body: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    without(libc::SIGXFSZ, io::ErrorKind::FileTooLarge, body)
}

/// Calls `body`, whose failure of this kind comes with a signal to the calling thread.
fn without<T>(
    signal: libc::c_int,
    kind: io::ErrorKind,
    body: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: sigset_t is plain data that sigemptyset fills; the other calls read or write such sets.
    unsafe {
        let mut blocked: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        libc::sigaddset(&mut blocked, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before);
        let result = body();
        if result.as_ref().is_err_and(|error| error.kind() == kind) {
            // It waits for this thread by now, and must not be there when it is let in again.
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&blocked, core::ptr::null_mut(), &at_once);
        }
        restore_signals(&before);
        result
    }
}

fn block_all_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain data that sigfillset fills; pthread_sigmask reads one set and writes the
    // other.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set was filled by pthread_sigmask; no previous mask is asked for.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before, core::ptr::null_mut());
    }
}
