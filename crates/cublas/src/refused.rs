//! Functions that are not implemented: each is refused by its name.

use crate::log;
use crate::status::Status;

/// Exports functions that refuse. The caller clears up its own arguments, so that these need not name theirs.
macro_rules! refused {
    ($($name:ident)*) => {
        $(
            /// Refuses at once.
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Status {
                log::refused(stringify!($name), "the function is not implemented")
            }
        )*
    };
}

/// The same, of libraries whose statuses are numbers here.
macro_rules! refused_with {
    ($status:expr; $($name:ident)*) => {
        $(
            /// Refuses at once.
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                let _ = log::refused(stringify!($name), "the function is not implemented");
                $status
            }
        )*
    };
}

/// The same, of cuSOLVER.
macro_rules! refused_solver {
    ($($name:ident)*) => { refused_with! { crate::solver::NOT_SUPPORTED; $($name)* } };
}

/// The same, of cuSPARSE.
macro_rules! refused_sparse {
    ($($name:ident)*) => { refused_with! { crate::sparse::NOT_SUPPORTED; $($name)* } };
}

/// The same, of cuRAND.
macro_rules! refused_random {
    ($($name:ident)*) => { refused_with! { crate::random::TYPE_ERROR; $($name)* } };
}

include!(concat!(env!("OUT_DIR"), "/refused.rs"));
