//! Copies: every form is turned into two places and one call of [`copy::copy`].

mod boxes;
mod linear;

pub use boxes::*;
pub use linear::*;

use super::Outcome;
use crate::model::context;
use crate::submit::copy::{self, Mode, Place};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::CUstream;

/// What a call says about its stream and its return.
#[derive(Clone, Copy)]
pub(super) struct When {
    pub stream: CUstream,
    pub default_stream: DefaultStream,
    pub mode: Mode,
}

pub(super) fn now(default_stream: DefaultStream) -> When {
    When { stream: core::ptr::null_mut(), default_stream, mode: Mode::Synchronous }
}

pub(super) fn later(stream: CUstream, default_stream: DefaultStream) -> When {
    When { stream, default_stream, mode: Mode::Asynchronous }
}

/// # Safety
/// As for [`copy::copy`].
pub(super) unsafe fn run(destination: Place, source: Place, when: When) -> Outcome {
    let stream = context::stream(streams::given(when.stream, when.default_stream)?)?;
    // SAFETY: as this function demands.
    unsafe { copy::copy(destination, source, &stream, when.mode) }
}
