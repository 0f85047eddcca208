//! From PTX text to a syntax tree: [`lexer`] makes words, [`parser`] makes a [`syntax::Module`].
//!
//! The text may come from anyone: nothing here recurses on its nesting, and sizes are bounded before memory is taken.

pub(crate) mod body;
pub(crate) mod lexer;
pub(crate) mod parser;
pub(crate) mod syntax;

use thiserror::Error;

/// Text that is not PTX, with the line where that became clear (the first line is 1).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub(crate) struct SyntaxError {
    pub(crate) line: u32,
    pub(crate) message: String,
}
