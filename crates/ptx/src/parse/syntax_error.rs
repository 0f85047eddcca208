//! Why a text is not PTX.

use thiserror::Error;

/// Text that is not PTX, with the line where that became clear (the first line is 1).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) message: String,
}
