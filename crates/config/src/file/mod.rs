//! Configuration files.
//!
//! | Module       | Question it answers                                                      |
//! |--------------|--------------------------------------------------------------------------|
//! | [`error`]  | What is wrong in a file, and where?                                      |
//! | [`text`]     | Which keys and values stand at which lines of a text? TOML.              |
//! | [`keys`]     | Which keys are there, and what may be in them?                           |
//! | [`candidates`]   | Which files are read, which of them counts first, and whose are they?    |
//! | [`permissions`] | Can others read a file with secrets?                                    |
//! | [`settings`] | What do all files together say?                                          |
//!
//! A section concerns those who act on it alone: a server is not held up by an error about clients.

pub mod candidates;
pub mod error;
pub mod keys;
pub mod permissions;
mod section;
pub mod settings;
pub mod text;

pub use error::{ConfigFileError, FilesError, SourceLocation};
pub use section::Section;
pub use settings::{Named, Settings};
pub use text::Entry;
