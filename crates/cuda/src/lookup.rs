//! Lookup of what a library has that the program may load at any time.
//!
//! Set-up calls: those of the driver that a thread must not make while a kernel waits for it.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

/// A value that is found once, and looked for again only where the process has loaded another library since.
#[derive(Debug)]
pub(super) struct Lookup<T> {
    found: OnceLock<T>,
    /// How many libraries had been loaded when it was looked for in vain.
    missed_at: AtomicU64,
}

impl<T> Lookup<T> {
    pub(super) const fn new() -> Self {
        Self { found: OnceLock::new(), missed_at: AtomicU64::new(0) }
    }

    /// The value, if it is there; `find` looks for it. Several threads may look at once.
    pub(super) fn get(&self, find: impl FnOnce() -> Option<T>) -> Option<&T> {
        self.get_after(libraries_loaded, find)
    }

    fn get_after(&self, libraries: impl FnOnce() -> u64, find: impl FnOnce() -> Option<T>) -> Option<&T> {
        if let Some(found) = self.found.get() {
            return Some(found);
        }
        let loaded = libraries();
        if self.missed_at.load(Ordering::Relaxed) == loaded {
            return None;
        }
        let Some(value) = find() else {
            self.missed_at.store(loaded, Ordering::Relaxed);
            return None;
        };
        // The count is not kept here: a thread that read it before the value is there would find nothing.
        Some(self.found.get_or_init(|| value))
    }
}

/// How many libraries this process has ever loaded. It takes a tenth of what the question for one library
/// takes.
fn libraries_loaded() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        count: *mut c_void,
    ) -> core::ffi::c_int {
        // SAFETY: `dl_iterate_phdr` passes the description of a loaded object and the counter that it was
        // given.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0_u64;
    // SAFETY: the function looks at one entry and writes the counter that is passed.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

thread_local! {
    static SERVES_KERNELS: Cell<bool> = const { Cell::new(false) };
}

/// From now on kernels may wait for the calling thread: set-up calls of this crate on it are errors of the program that
/// uses it, which debug builds stop at.
pub fn forbid_setup_calls() {
    SERVES_KERNELS.set(true);
}

/// Panics in debug builds where the calling thread must not make this call.
pub(super) fn check_setup_call(call: &str) {
    debug_assert!(
        !SERVES_KERNELS.get(),
        "{call} on a thread that kernels wait for: it stands still while another thread waits for one of them"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_miss_is_kept_until_another_library_is_loaded() {
        let lookup = Lookup::new();
        assert_eq!(lookup.get_after(|| 7, || None::<u8>), None);
        assert_eq!(lookup.get_after(|| 7, || unreachable!("nothing was loaded since")), None);
        assert_eq!(lookup.get_after(|| 8, || Some(1)), Some(&1));
        assert_eq!(lookup.get_after(|| 8, || unreachable!("it was found")), Some(&1));
    }

    #[test]
    fn all_threads_that_look_at_once_find_it() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 5000;
        let lookups: Vec<Lookup<usize>> = (0..ROUNDS).map(|_| Lookup::new()).collect();
        let start = Barrier::new(THREADS);
        let missed = thread::scope(|scope| {
            let look = || {
                start.wait();
                lookups.iter().filter(|lookup| lookup.get_after(|| 1, || Some(1)).is_none()).count()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(look)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<usize>()
        });
        assert_eq!(missed, 0, "threads found nothing while another one was about to keep it");
    }

    #[test]
    fn set_up_calls_are_refused_on_the_thread_that_serves() {
        check_setup_call("cuMemMap");
        let served = thread::spawn(|| {
            forbid_setup_calls();
            check_setup_call("cuMemMap");
        });
        assert_eq!(served.join().is_err(), cfg!(debug_assertions));
        check_setup_call("cuMemMap");
    }
}
