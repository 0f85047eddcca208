//! `/dev/nvidiactl`, as programs see it that look for device files before they load the driver.
//!
//! JAX computes on the processor, without an error, where it finds none of `/dev/nvidia0`, `/dev/nvidiactl`
//! and `/dev/dxg`. The stand-ins are loaded before the program, so that its calls of `stat` come here. Nothing
//! else about the file is pretended: it cannot be opened.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

/// The file that is found although it is not there.
const FILE: &CStr = c"/dev/nvidiactl";
/// What it is like: another device file, which is always there.
const LIKE: &CStr = c"/dev/null";

/// The system call behind `stat`.
///
/// # Safety
/// The path ends with a zero, and there is room for the result.
unsafe fn system_call(path: *const c_char, to: *mut c_void) -> c_int {
    let none: c_long = 0;
    // SAFETY: the caller's path ends with a zero and its structure has room; bad pointers are errors of the
    // call.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, to, none) as c_int }
}

/// # Safety
/// As for [`system_call`].
unsafe fn find(path: *const c_char, to: *mut c_void) -> c_int {
    // SAFETY: the caller's path ends with a zero and its structure has room. Nothing here is unfit for a
    // signal handler.
    unsafe {
        let result = system_call(path, to);
        if result == 0 || *libc::__errno_location() != libc::ENOENT || CStr::from_ptr(path) != FILE {
            return result;
        }
        system_call(LIKE.as_ptr(), to)
    }
}

/// Exports the names under which programs call `stat`: those of today, and those of glibc before 2.33.
macro_rules! stat {
    ($($name:ident($($version:ident)?))*) => {
        $(
            /// As the C library's, but for one file.
            ///
            /// # Safety
            /// The path ends with a zero, and there is room for the result.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                $($version: c_int,)? path: *const c_char, to: *mut c_void
            ) -> c_int {
                $(let _ = $version;)?
                // SAFETY: the program's path ends with a zero and its structure has room.
                unsafe { find(path, to) }
            }
        )*
    };
}

stat! { stat() stat64() __xstat(_version) __xstat64(_version) }
