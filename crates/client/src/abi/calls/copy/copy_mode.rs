//! Stream and synchronisation mode of a copy call.

use crate::abi::outcome::Outcome;
use crate::model::context;
use crate::submit::copy::{self, Endpoint, Mode};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::CUstream;

/// What a call says about its stream and its return.
#[derive(Clone, Copy)]
pub(in crate::abi::calls) struct CopyMode {
    pub stream: CUstream,
    pub default_stream: DefaultStream,
    pub mode: Mode,
}

pub(in crate::abi::calls) fn synchronous(default_stream: DefaultStream) -> CopyMode {
    CopyMode { stream: core::ptr::null_mut(), default_stream, mode: Mode::Synchronous }
}

pub(in crate::abi::calls) fn asynchronous(stream: CUstream, default_stream: DefaultStream) -> CopyMode {
    CopyMode { stream, default_stream, mode: Mode::Asynchronous }
}

/// # Safety
/// As for [`copy::copy`].
pub(in crate::abi::calls) unsafe fn run(
    destination: Endpoint,
    source: Endpoint,
    copy_mode: CopyMode,
) -> Outcome {
    let stream = context::stream(streams::resolve(copy_mode.stream, copy_mode.default_stream)?)?;
    // SAFETY: as this function demands.
    unsafe { copy::copy(destination, source, &stream, copy_mode.mode) }
}
