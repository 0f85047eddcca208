//! From PTX text to a syntax tree: [`lexer`] makes words, which [`parser`] hands out one after the other;
//! [`module`], [`variable`], [`function`] and [`body`] make of them the parts of a [`syntax::Module`].
//!
//! The text may come from anyone: nothing here recurses on its nesting without a bound, and sizes are bounded
//! before memory is taken.

mod body;
mod expression;
mod function;
pub(crate) mod lexer;
mod module;
mod parser;
pub(crate) mod syntax;
mod variable;

pub(crate) use lexer::SyntaxError;
pub(crate) use module::parse;
