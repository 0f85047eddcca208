//! Which environment variables and keys of configuration files mean something to Causeway, what may be in
//! them, and what is in them now?
//!
//! | Module       | Question it answers                                                     |
//! |--------------|-------------------------------------------------------------------------|
//! | [`size`]     | How is a number of bytes written and read?                              |
//! | [`duration`] | How is a duration written and read?                                     |
//! | [`rules`]    | How are rules by sizes written, of which a variable has several?        |
//! | [`variable`] | What is said of a variable: its values, its default, who acts on it?     |
//! | [`table`]    | Which variables are there?                                              |
//! | [`mod@file`] | What do configuration files say?                                        |
//! | [`read`]     | What do environment and files say together, and can it be used?         |
//! | [`unknown`]  | Which variables are set that nobody reads?                              |
//! | [`document`] | How do people read the table: book, `--help`, example of a file?        |
//!
//! The table is the only place that knows a name, and what is not in it is not read; a key in a file is the
//! name of a variable in another form. `docs/src/reference/environment.md` and the end of `causeway --help` are
//! made from it.

pub mod document;
pub mod duration;
pub mod file;
pub mod read;
pub mod rules;
pub mod size;
pub mod table;
pub mod unknown;
pub mod variable;

pub use duration::TimeSpan;
pub use read::{ConfigError, Environment, Role, ValueError, act_as, check};
pub use size::Size;
pub use variable::{Component, Default, Values, Variable};
