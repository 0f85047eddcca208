//! Which environment variables mean something to Causeway, what may be in them, and what is in them now?
//!
//! | Module       | Question it answers                                                     |
//! |--------------|-------------------------------------------------------------------------|
//! | [`size`]     | How is a number of bytes written and read?                              |
//! | [`variable`] | What is said of a variable: its values, its default, who acts on it?     |
//! | [`table`]    | Which variables are there?                                              |
//! | [`read`]     | What does an environment say, and is it something that can be used?     |
//! | [`document`] | How do people read the table, in the book and in `--help`?              |
//!
//! The table is the only place that knows a name, and what is not in it is not read.
//! `docs/src/reference/environment.md`
//! and the end of `causeway --help` are made from it.

pub mod document;
pub mod read;
pub mod size;
pub mod table;
pub mod variable;

pub use read::{Environment, ValueError, check};
pub use size::Size;
pub use variable::{Default, Values, Variable, Who};
