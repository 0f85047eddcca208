//! Configuration errors, with file and line.

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::section::Section;

/// Where something stands: a file, and a line of it where it has one. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The line; none for the file as a whole.
    pub line: Option<usize>,
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// Something in a file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{location}: {text}")]
pub struct ConfigFileError {
    /// Where.
    pub location: SourceLocation,
    /// The section that it concerns; none where the whole file cannot be used.
    pub section: Option<Section>,
    /// What is wrong, and what to do.
    pub text: String,
}

/// Configuration files that cannot be used: at least one error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{}", first(errors), others(errors.len().saturating_sub(1)))]
pub struct FilesError {
    /// What is wrong, in the order of the files.
    pub errors: Vec<ConfigFileError>,
}

fn first(errors: &[ConfigFileError]) -> String {
    errors.first().map(ConfigFileError::to_string).unwrap_or_default()
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => " (and one more error: `causeway config check` lists them)".to_owned(),
        _ => format!(" (and {count} more errors: `causeway config check` lists them)"),
    }
}
