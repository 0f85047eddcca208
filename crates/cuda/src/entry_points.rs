//! Loader of the CUDA driver, and tables of its functions, whose calls return a [`Result`].
//!
//! Each table names the functions that one library needs, since a driver may lack others. `gpu-driver` has its table from
//! `crates/api`, with all functions that are forwarded, and only loads the driver here. Structures are those of `cuda.h` in
//! [`causeway_api::sys`].

use core::ffi::{CStr, c_int, c_void};
use core::ptr::NonNull;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use causeway_api::errors;
use causeway_api::sys::CUresult;
use thiserror::Error;

/// Why a library cannot be used, in the words of the system's loader.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LibraryError(String);

/// A library of NVIDIA's driver, or Causeway's in its place. It stays loaded: such libraries keep threads and exit handlers.
#[derive(Debug, Clone, Copy)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle of the system's loader, which any thread may use, of a library that stays loaded.
unsafe impl Send for Library {}
// SAFETY: a handle of the system's loader, which any thread may use, of a library that stays loaded.
unsafe impl Sync for Library {}

impl Library {
    /// The driver that the program has loaded, if it has. Nothing is loaded.
    pub fn loaded_driver() -> Option<Self> {
        // SAFETY: the name ends with a zero, and a library that is not there is not loaded.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        NonNull::new(library).map(Self)
    }

    /// Loads a library: a path, or a name that the system's loader looks for.
    ///
    /// # Safety
    /// The library's initialisers may run in this process, as those of NVIDIA's libraries may in any.
    ///
    /// # Errors
    /// What the system's loader says.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, LibraryError> {
        let path = CString::new(path.as_ref().as_os_str().as_bytes())
            .map_err(|_| LibraryError("the path contains a zero byte".to_owned()))?;
        // SAFETY: the path ends with a zero, and the caller lets the initialisers run.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        NonNull::new(library).map(Self).ok_or_else(|| {
            // SAFETY: the text is this thread's until its next call of the loader.
            let text =
                NonNull::new(unsafe { libc::dlerror() }).map(|text| unsafe { CStr::from_ptr(text.as_ptr()) });
            LibraryError(
                text.map_or_else(|| "unknown".to_owned(), |text| text.to_string_lossy().into_owned()),
            )
        })
    }

    /// The address of a function, if the library has it.
    pub fn function(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library stays open, and the name ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// The address of a function that must be there.
    ///
    /// # Errors
    /// That the library has none of that name.
    pub fn required_function(self, name: &CStr) -> Result<NonNull<c_void>, LibraryError> {
        let missing = || LibraryError(format!("it has no function {}", name.to_string_lossy()));
        self.function(name).ok_or_else(missing)
    }

    /// Whether it is Causeway's client library, which stands in for NVIDIA's driver.
    pub fn is_client(self) -> bool {
        self.function(c"causeway_client_marker").is_some()
    }
}

/// A call of the driver that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{call} ended with CUDA error {code}")]
pub struct CudaError {
    /// The call.
    pub call: &'static str,
    /// `CUresult`.
    pub code: c_int,
}

impl CudaError {
    /// The driver does not know an address that was memory on a GPU: it has been freed.
    pub const UNKNOWN_MEMORY: Self = Self { call: "cuPointerGetAttribute", code: 1 };

    /// The status of a function as a result.
    ///
    /// # Errors
    /// Every status but 0.
    pub fn check(function: &'static CStr, code: c_int) -> Result<(), Self> {
        if code == 0 {
            return Ok(());
        }
        let name = function.to_str().unwrap_or_default();
        // The manual's name: programs write it without the version, which `cuda.h` adds.
        Err(Self { call: name.strip_suffix("_v2").unwrap_or(name), code })
    }

    /// The name of the code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn name(self) -> &'static str {
        let name = errors::name(CUresult(self.code.cast_unsigned()));
        name.and_then(|name| name.to_str().ok()).unwrap_or("an unknown error")
    }
}

/// `CUDA_ERROR_NOT_SUPPORTED`: what functions answer that a driver lacks.
pub const NOT_SUPPORTED: c_int = 801;

/// A table of functions of the driver: `table { method: c"symbol" (argument: type, ...); ... }`. Its `load` fails
/// where one of the functions is missing. Those after `} optional {` may be missing: they then answer
/// [`NOT_SUPPORTED`] and do nothing, as they do in a driver that has them for other devices. Who writes a line promises
/// that the function of that name takes these arguments and returns a status in every driver that has it.
#[macro_export]
macro_rules! entry_points {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $table:ident {
            $($name:ident: $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*
        } $(optional {
            $($other:ident: $other_symbol:literal ($($other_argument:ident: $other_type:ty),* $(,)?);)*
        })?
    ) => {
        $(#[$attribute])*
        #[derive(Debug)]
        $visible struct $table {
            $($name: unsafe extern "C" fn($($type),*) -> core::ffi::c_int,)*
            $($($other: unsafe extern "C" fn($($other_type),*) -> core::ffi::c_int,)*)?
        }

        #[allow(non_snake_case, reason = "a table may have the names of the manual of CUDA")]
        impl $table {
            fn load(driver: $crate::Library) -> Result<Self, $crate::LibraryError> {
                Ok(Self {
                    // SAFETY: a function of this name in a library of the driver's name is the driver's, and has the
                    // type that the table says.
                    $($name: unsafe {
                        core::mem::transmute::<
                            core::ptr::NonNull<core::ffi::c_void>,
                            unsafe extern "C" fn($($type),*) -> core::ffi::c_int,
                        >(driver.required_function($symbol)?)
                    },)*
                    $($($other: {
                        unsafe extern "C" fn absent($(_: $other_type),*) -> core::ffi::c_int {
                            $crate::NOT_SUPPORTED
                        }
                        let absent: unsafe extern "C" fn($($other_type),*) -> core::ffi::c_int = absent;
                        // SAFETY: a function of this name in a library of the driver's name is the driver's, and has
                        // the type that the table says.
                        driver.function($other_symbol).map_or(absent, |found| unsafe {
                            core::mem::transmute::<
                                core::ptr::NonNull<core::ffi::c_void>,
                                unsafe extern "C" fn($($other_type),*) -> core::ffi::c_int,
                            >(found)
                        })
                    },)*)?
                })
            }

            $($crate::entry_points!(@method $visible $name $symbol ($($argument: $type),*));)*
            $($($crate::entry_points!(@method $visible $other $other_symbol ($($other_argument: $other_type),*));)*)?
        }
    };
    (@method $visible:vis $name:ident $symbol:literal ($($argument:ident: $type:ty),*)) => {
        #[doc = concat!("Calls `", stringify!($symbol), "`.")]
        ///
        /// # Safety
        /// As the manual of CUDA has it: addresses are valid for what the call reads and writes until it is done with
        /// them.
        ///
        /// # Errors
        /// What the driver says.
        #[allow(clippy::too_many_arguments, reason = "those of the driver's function")]
        $visible unsafe fn $name(&self, $($argument: $type),*) -> Result<(), $crate::CudaError> {
            // SAFETY: the caller passes what the manual has this function take, with memory that stays until the call is
            // done with it.
            $crate::CudaError::check($symbol, unsafe { (self.$name)($($argument),*) })
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    entry_points! {
        struct Mathematics {
            absolute: c"abs" (value: c_int);
        } optional {
            negative: c"causeway_has_no_such_function" (value: c_int);
        }
    }

    fn libc() -> Library {
        // SAFETY: the library is loaded already.
        unsafe { Library::open("libc.so.6") }.expect("every program has it")
    }

    #[test]
    fn statuses_become_results_with_the_manuals_name() {
        let table = Mathematics::load(libc()).expect("what is missing is optional");
        // SAFETY: the function takes a number, and the other does nothing.
        let results = unsafe { [table.absolute(0), table.absolute(-2), table.negative(0)] };
        let missing = CudaError { call: "causeway_has_no_such_function", code: NOT_SUPPORTED };
        assert_eq!(results, [Ok(()), Err(CudaError { call: "abs", code: 2 }), Err(missing)]);
        assert_eq!(CudaError::check(c"cuMemAlloc_v2", 2), Err(CudaError { call: "cuMemAlloc", code: 2 }));
        assert_eq!(
            [2, 12345].map(|code| CudaError { call: "", code }.name()),
            ["CUDA_ERROR_OUT_OF_MEMORY", "an unknown error"]
        );
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let missing = libc().required_function(c"causeway_has_no_such_function").map(drop);
        assert_eq!(missing, Err(LibraryError("it has no function causeway_has_no_such_function".to_owned())));
        // SAFETY: there is no such library, so that nothing runs.
        let error = unsafe { Library::open("libcauseway-none.so.1") }.expect_err("there is none").to_string();
        assert!(error.contains("libcauseway-none.so.1"), "{error}");
        assert!(!libc().is_client());
    }
}
