//! `mmap` of this process: with a hint where NVIDIA's driver reserves addresses without one.
//!
//! The driver calls the C library's function by its name, for which the dynamic linker finds this one, since a program
//! comes before its libraries. Linkers export the name, since a library that the program is linked with has it, too.

use causeway_server::back_end::reservations;
use libc::{c_int, c_long, c_void, off_t, size_t};

/// As `mmap(2)`, with the address of [`reservations::hint`].
///
/// # Safety
/// As for `mmap` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let address = reservations::hint(address as usize, bytes, protection, flags);
    // SAFETY: the system call has the arguments of the function, for which the caller has answered; a hint maps nothing
    // over what is there.
    let mapped: c_long = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            address,
            bytes,
            c_long::from(protection),
            c_long::from(flags),
            c_long::from(file),
            offset,
        )
    };
    mapped as *mut c_void
}

/// As [`mmap`], of which it is another name where files' offsets have 64 bits anyway.
///
/// # Safety
/// As for `mmap` of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: `mmap` takes the same arguments, for which the caller vouches as to the C library's.
    unsafe { mmap(address, bytes, protection, flags, file, offset) }
}

/// Keeps the functions, which nothing in this program calls by their names.
#[used]
static EXPORTED: [unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void; 2] =
    [mmap, mmap64];
