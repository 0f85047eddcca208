//! Tables that NVIDIA's runtime and libraries ask the driver for and that `cuda.h` does not have.
//!
//! **This speaks an undocumented interface of NVIDIA's driver, for programs that end up on NVIDIA's GPUs and
//! driver.** `cuGetExportTable` gives out arrays of functions under identifiers; the CUDA runtime
//! (`libcudart`, also where it is linked statically), cuBLAS and cuFFT do not start without eight of them.
//! What the entries mean is published by ZLUDA (<https://github.com/vosen/ZLUDA>, Apache-2.0 or MIT, module
//! `dark_api`); that they behave like this was checked with NVIDIA's runtimes 11.8 to 13.5 and against a real
//! driver (580.159). Every entry is bookkeeping of the client or one of the documented calls; nothing is
//! passed on to the server under a private name. One more keeps what NVRTC compiles ([`compile_cache`]); its
//! entries were read from the calls of NVRTC 13.0 and tried with 12.9, 13.0 and 13.1.
//!
//! The cargo feature `private-tables` (on by default) builds them in. Without it every table is refused, and
//! programs that use the driver API alone work as before. Nothing outside this module depends on it.

#[cfg(feature = "private-tables")]
mod compile_cache;
#[cfg(feature = "private-tables")]
mod context_storage;
#[cfg(feature = "private-tables")]
mod integrity;
#[cfg(feature = "private-tables")]
mod table;
#[cfg(feature = "private-tables")]
mod tables;

use causeway_api::handle::{Context, Handle};
use core::ffi::c_void;

/// The table with this identifier, if it is one of those that are given out.
pub fn table(identifier: &[u8; 16]) -> Option<*const c_void> {
    #[cfg(feature = "private-tables")]
    {
        tables::find(identifier)
    }
    #[cfg(not(feature = "private-tables"))]
    {
        let _ = identifier;
        None
    }
}

/// A context ends: what the runtime stores for it is released.
pub fn context_ends(context: Handle<Context>) {
    #[cfg(feature = "private-tables")]
    context_storage::context_ends(context);
    #[cfg(not(feature = "private-tables"))]
    let _ = context;
}
