//! Causeway's `libnvidia-ml.so.1`: what monitoring programs, PyTorch and NCCL ask about GPUs, answered by a
//! server.
//!
//! Every name of `nvml.h` is exported. Nearly all calls are one question to the server's monitor and one
//! answer; no worker is started, no GPU is touched on behalf of the asker, and nothing that a client asks
//! changes a GPU. The list in `causeway_api::nvml` says what the arguments of a call mean; the exported
//! symbols are made from it.
//!
//! | module | contents |
//! | --- | --- |
//! | `call` | Forwarded calls: the request made from a call's arguments, and the response written to the program's memory |
//! | `servers` | Routing of NVML calls to several servers, and device numbering across them |
//! | `session` | Connections to the servers' monitors, one to each |
//! | `local_calls` | Calls answered locally: start and shutdown, status texts, process names, event sets, older and private entry points |
//! | `log` | Lines on the program's standard error, each beginning with `causeway:`, as `CAUSEWAY_LOG` says |

mod call;
mod local_calls;
mod log;
mod servers;
mod session;

/// The exported symbols, made from the list.
mod stubs {
    use crate::{call, session};
    use causeway_api::nvml::status::{self, Status};

    macro_rules! stubs {
        (
            forwarded { $($name:ident($($argument:ident: $mode:expr),*);)* }
            local { $($local:ident,)* }
            refused { $($refused:ident,)* }
            absent { $($absent:ident,)* }
        ) => {
            $(
                /// # Safety
                /// As `nvml.h` demands of the caller.
                #[allow(non_snake_case)]
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($argument: u64),*) -> Status {
                    const INDEX: usize = causeway_api::nvml::index_of(stringify!($name));
                    // SAFETY: the caller passes what `nvml.h` has this function take. The calling conventions
                    // of x86-64 and AArch64 have every argument of these functions, an integer or a pointer,
                    // in one 64-bit register; the bits above a narrower integer are not looked at.
                    unsafe { call::forward(INDEX, &[$($argument),*]) }
                }
            )*
            // The caller clears up its own arguments, so that these need not name theirs.
            $(
                #[allow(non_snake_case)]
                #[unsafe(no_mangle)]
                pub extern "C" fn $refused() -> Status {
                    session::refuse(stringify!($refused), status::NO_PERMISSION)
                }
            )*
            $(
                #[allow(non_snake_case)]
                #[unsafe(no_mangle)]
                pub extern "C" fn $absent() -> Status {
                    session::refuse(stringify!($absent), status::NOT_SUPPORTED)
                }
            )*
        };
    }

    causeway_api::nvml_functions!(stubs);
}
