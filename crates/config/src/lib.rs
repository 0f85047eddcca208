//! Environment variables and configuration keys: names, allowed values, and the values that are set.
//!
//! | module | contents |
//! | --- | --- |
//! | `size` | Sizes in bytes, written as `64K` or `16M` |
//! | `duration` | Durations, written as `500ms`, `90s`, `30m`, `8h` or `2d`; digits alone are seconds |
//! | `rules` | Rules by size, which several variables hold |
//! | `variable` | Environment variable: its values, its default, and the component that reads it |
//! | `table` | Table of all environment variables |
//! | `transport_kind` | Transport names: the one list of them, from which the choices of variables are made |
//! | `read` | Values of environment variables and configuration files, checked |
//! | `unknown` | Unknown variables: `CAUSEWAY_...` that are set and that no component reads, such as one that is misspelt |
//! | `document` | Documentation of the variables: in the book, in `--help`, and as an example of a configuration file |
//! | `file` | Configuration files |
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
pub mod transport_kind;
pub mod unknown;
pub mod variable;

pub use duration::TimeSpan;
pub use read::{ConfigError, Environment, Role, ValueError, act_as, check};
pub use size::Size;
pub use transport_kind::TransportKind;
pub use variable::{Component, Fallback, Values, Variable};
