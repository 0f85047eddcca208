//! Configuration files.
//!
//! | Module       | Question it answers                                                      |
//! |--------------|--------------------------------------------------------------------------|
//! | `add_server` | How does a server get a name in a file that a user has written?         |
//! | [`error`]  | What is wrong in a file, and where?                                      |
//! | [`text`]     | Which keys and values stand at which lines of a text? TOML.              |
//! | [`keys`]     | Which keys are there, and what may be in them?                           |
//! | [`candidates`]   | Which files are read, which of them counts first, and whose are they?    |
//! | [`permissions`] | Can others read a file with secrets?                                    |
//! | [`settings`] | What do all files together say?                                          |
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
