//! Exported functions whose body is a result.

use crate::log;
use crate::status::{Done, Status};

/// The number of a result in cuSOLVER and cuSPARSE, whose statuses begin alike (`cusolverStatus_t`,
/// `cusparseStatus_t`). What is refused is logged by its name and gives `not_supported`.
pub fn number(function: &'static str, done: Done, not_supported: u32, reason: &'static str) -> u32 {
    match done {
        Ok(()) | Err(Status::Success) => 0,
        Err(Status::NotInitialized) => 1,
        Err(Status::AllocFailed) => 2,
        Err(Status::InvalidValue) => 3,
        Err(Status::ExecutionFailed) => 6,
        Err(Status::ZeroPivot) => 9,
        Err(Status::NotSupported) => {
            let _ = log::refused(function, reason);
            not_supported
        }
    }
}

/// Exports functions whose body is a result.
macro_rules! functions {
    ($($(#[$comment:meta])* fn $name:ident($($argument:ident: $ty:ty),*) $body:block)*) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> Status {
                // SAFETY: the program passes what cuBLAS documents: handles and descriptors that are valid or
                // null, pointers to values, and buffers of the sizes given.
                let body = || -> Done { unsafe { $body } };
                body().into()
            }
        )*
    };
}

/// Exports a function of several element types, each with sizes (`Int`) of 32 and of 64 bits: what it does, its
/// arguments, the name of the element type in its body, its body, and a table of names and types.
macro_rules! typed_functions {
    (
        $comment:literal $arguments:tt |$elements:ident| $body:block
        $($name:ident $name_64:ident $kind:expr;)*
    ) => {
        $(
            typed_functions! { one $comment $name, i32, $arguments, $elements = $kind, $body }
            typed_functions! { one $comment $name_64, i64, $arguments, $elements = $kind, $body }
        )*
    };
    (
        one $comment:literal $name:ident, $int:ty, ($($argument:ident: $ty:ty),* $(,)?),
        $elements:ident = $kind:expr, $body:block
    ) => {
        const _: () = {
            #[allow(dead_code)]
            type Int = $int;

            #[doc = $comment]
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe, clippy::too_many_arguments, clippy::useless_conversion)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> Status {
                let $elements = $kind;
                // SAFETY: the program passes what NVIDIA documents: handles that are valid or null, pointers
                // to values, and buffers of the sizes given.
                let body = || -> Done { unsafe { $body } };
                crate::log::named(stringify!($name), body()).into()
            }
        };
    };
}

/// Exports functions whose body is a result, of a library that has statuses of its own: what makes them from it.
macro_rules! functions_with {
    (
        $status:path,
        $($(#[$comment:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) $body:block)*
    ) => {
        $(
            $(#[$comment])*
            ///
            /// # Safety
            /// As NVIDIA's documentation requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_unsafe, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: $ty),*) -> u32 {
                // SAFETY: the program passes what NVIDIA documents: handles that are valid or null, pointers
                // to values, and buffers of the sizes given.
                let body = || -> crate::status::Done { unsafe { $body } };
                $status(stringify!($name), body())
            }
        )*
    };
}

pub(crate) use functions;
pub(crate) use functions_with;
pub(crate) use typed_functions;
