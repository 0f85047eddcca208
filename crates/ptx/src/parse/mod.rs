//! From PTX text to a syntax tree: [`lexer`] makes words, which [`parser`] hands out one after the other;
//! [`module`], [`variable`], [`function`] and [`body`] make of them the parts of a [`syntax::Module`].
//!
//! The text may come from anyone: nothing here recurses on its nesting, and sizes are bounded before memory
//! is taken.

mod body;
mod function;
pub(crate) mod lexer;
mod module;
mod parser;
pub(crate) mod syntax;
mod variable;

pub(crate) use lexer::SyntaxError;
pub(crate) use module::parse;
