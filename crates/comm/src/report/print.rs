//! How does a report come out where ranks share a standard error?

use std::io::Write as _;

/// Prints lines of a report on standard error, each by one call of the system: parts of lines would be mixed
/// with those of other ranks.
pub(crate) fn print(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        // Where it cannot be written nobody reads it.
        let _ = std::io::stderr().write_all(format!("causeway: {line}\n").as_bytes());
    }
}
