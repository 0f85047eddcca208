//! Panic boundary of the C functions.

use crate::log::error;
use core::ffi::c_int;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLED: c_int = 1;

/// While this lives, a `pthread_cancel` of the calling thread waits. The calls of the C library that read, write and
/// sleep are points at which a cancelled thread ends, by an exception that no code of Rust lets through.
struct NotCancelled(c_int);

impl NotCancelled {
    fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the call changes this thread alone, and writes to a local.
        unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
        Self(before)
    }
}

impl Drop for NotCancelled {
    fn drop(&mut self) {
        // SAFETY: the state that the call gave; nobody asks for the one before.
        unsafe { pthread_setcancelstate(self.0, core::ptr::null_mut()) };
    }
}

/// Runs what the program calls; nothing where that has panicked, which has been said.
///
/// The only state that a panic can leave half done is behind locks that do not poison, and the caller reports it.
#[inline]
pub fn run<R>(body: impl FnOnce() -> R) -> Option<R> {
    static HOOK: Once = Once::new();
    HOOK.call_once(install_panic_hook);
    let _until_then = NotCancelled::begin();
    catch_unwind(AssertUnwindSafe(body)).ok()
}

/// From here on a panic of the library is a line in the program's standard error, and more for who asks for it by
/// `RUST_BACKTRACE`. The library has a standard library of its own, so this changes nothing for others.
fn install_panic_hook() {
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        error!("{}", sentence(info));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            default_hook(info);
        }
    }));
}

fn sentence(info: &PanicHookInfo<'_>) -> String {
    let position = info.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
    let reason = info.payload_as_str().unwrap_or("no reason is given");
    format!(
        "a fault inside the library, version {}, at {position}: {reason}. Please report this line; with \
         RUST_BACKTRACE=1, it includes a backtrace",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> c_int {
        let guard = NotCancelled::begin();
        guard.0
    }

    #[test]
    fn a_panic_is_caught_and_cancelling_is_as_before() {
        let before = state();
        assert_eq!(run(state), Some(DISABLED));
        assert_eq!(run(|| panic!("of a test")), None::<()>);
        assert_eq!(state(), before);
    }
}
