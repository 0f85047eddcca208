//! Configuration files.
//!
//! | module | contents |
//! | --- | --- |
//! | `add_server` | Addition of a named server to the text of a configuration file, which stays as it is otherwise |
//! | `error` | Configuration errors, with file and line |
//! | `text` | TOML parser: keys and values with the lines where they stand |
//! | `keys` | Keys of configuration files, and the values that they take |
//! | `candidates` | Paths of configuration files, their order, and who may own them |
//! | `permissions` | Permissions of files with secrets: whether another user can read one |
//! | `settings` | Settings of all configuration files together |
//! | `section` | Sections (tables) of a configuration file |
//!
//! A section concerns those who act on it alone: a server is not held up by an error about clients.

mod add_server;
pub mod candidates;
pub mod error;
pub mod keys;
pub mod permissions;
mod section;
pub mod settings;
pub mod text;

pub use add_server::with_server;
pub use error::{ConfigFileError, FilesError, SourceLocation};
pub use section::Section;
pub use settings::{Named, Settings};
pub use text::Entry;
