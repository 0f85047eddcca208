//! Causeway's `libnvidia-ml.so.1`: what monitoring programs, PyTorch and NCCL ask about GPUs, answered by a
//! server.
//!
//! Every name of `nvml.h` is exported. Nearly all calls are one question to the server's monitor and one
//! answer; no worker is started, no GPU is touched on behalf of the asker, and nothing that a client asks
//! changes a GPU. The list in `causeway_api::nvml` says what the arguments of a call mean; the exported
//! symbols are made from it.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `stubs` | Which symbols are exported? |
//! | `call` | How does a call become a question, and how is the answer written to the program's memory? |
//! | `servers` | Which of several servers is asked, and what do its numbers mean among those of the others? |
//! | `session` | How are the servers reached; what happens at fork, and when one is lost? |
//! | `here` | What is answered without the server? |
//! | `older` | What do older forms of calls answer that programs still make? |
//! | `private` | What do NVIDIA's own tools ask for that `nvml.h` does not have? |
//! | `log` | What is said on standard error? |

mod call;
mod here;
mod log;
mod older;
mod private;
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
                    // SAFETY: passed on to the caller. The calling conventions of x86-64 and AArch64 have
                    // every argument of these functions, an integer or a pointer, in one 64-bit register;
                    // the bits above a narrower integer are not looked at.
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
