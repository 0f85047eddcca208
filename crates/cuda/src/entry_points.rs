//! Entry points of the CUDA driver.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

/// The `libcuda.so.1` that the program has loaded.
#[derive(Debug, Clone, Copy)]
pub struct LoadedDriver(NonNull<c_void>);

impl LoadedDriver {
    /// The library, if the program has it. Nothing is loaded; the reference that this takes is kept for good,
    /// since the functions are.
    pub fn find() -> Option<Self> {
        // SAFETY: the name ends with a zero, and a library that is not there is not loaded.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        NonNull::new(library).map(Self)
    }

    /// The address of a function, if the library has it.
    pub fn function(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library stays open, and the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// `CUDA_ERROR_NOT_SUPPORTED`: what functions answer that a driver lacks.
pub const NOT_SUPPORTED: core::ffi::c_int = 801;

/// A table of functions of the driver: `table { field: c"symbol" (arguments); ... }`. Its `load` gives none
/// where the library or one of the functions is missing. Those after `} optional {` may be missing: they then answer
/// [`NOT_SUPPORTED`] and do nothing, as they do in a driver that has them for other devices. Who writes a line promises
/// that the function of that name takes these arguments and returns a status in every driver that has it.
#[macro_export]
macro_rules! entry_points {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $table:ident {
            $($name:ident: $symbol:literal ($($argument:ty),*);)*
        } $(optional {
            $($other:ident: $other_symbol:literal ($($other_argument:ty),*);)*
        })?
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visible struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> core::ffi::c_int,)*
            $($(pub(super) $other: unsafe extern "C" fn($($other_argument),*) -> core::ffi::c_int,)*)?
        }

        impl $table {
            fn load() -> Option<Self> {
                let driver = $crate::LoadedDriver::find()?;
                $(
                    let found = driver.function($symbol)?;
                    // SAFETY: a function of this name in a library of the driver's name is the driver's, and has the
                    // type that the table says.
                    let $name = unsafe {
                        core::mem::transmute::<
                            core::ptr::NonNull<core::ffi::c_void>,
                            unsafe extern "C" fn($($argument),*) -> core::ffi::c_int,
                        >(found)
                    };
                )*
                $($(
                    unsafe extern "C" fn $other($(_: $other_argument),*) -> core::ffi::c_int {
                        $crate::NOT_SUPPORTED
                    }
                    let absent: unsafe extern "C" fn($($other_argument),*) -> core::ffi::c_int = $other;
                    // SAFETY: a function of this name in a library of the driver's name is the driver's, and
                    // has the type that the table says.
                    let $other = driver.function($other_symbol).map_or(absent, |found| unsafe {
                        core::mem::transmute::<
                            core::ptr::NonNull<core::ffi::c_void>,
                            unsafe extern "C" fn($($other_argument),*) -> core::ffi::c_int,
                        >(found)
                    });
                )*)?
                Some(Self { $($name,)* $($($other,)*)? })
            }
        }
    };
}
