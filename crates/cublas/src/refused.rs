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

/// The same, of cuSOLVER.
macro_rules! refused_solver {
    ($($name:ident)*) => {
        $(
            /// Refuses at once.
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                let _ = log::refused(stringify!($name), "the function is not implemented");
                crate::solver::NOT_SUPPORTED
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/refused.rs"));
