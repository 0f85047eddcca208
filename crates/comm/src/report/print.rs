//! Printing of reports without mixed lines.

use std::io::Write as _;

/// Prints lines on standard error, each by one call of the system: parts of lines would be mixed
/// with those of other ranks.
pub(crate) fn print(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        // Where it cannot be written nobody reads it.
        let _ = std::io::stderr().write_all(format!("causeway: {line}\n").as_bytes());
    }
}

/// Prints that a rank shares its GPU with others without MPS, and what that means for kernels, or graphs.
pub(crate) fn warn_of_time_slicing(rank: u32, same: &[u32], what: &str) {
    print([format!(
        "rank {rank} shares its GPU with the processes of ranks {same:?}, without NVIDIA's MPS: they take turns by \
         time slice, {what} that wait for each other use theirs up, and no latency counts"
    )]);
}
