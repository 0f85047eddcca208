//! The bodies of the fuzz targets of this crate.

pub use crate::protocol::messages::fuzzing::control;
pub use crate::state_file::fuzz as state;
pub use crate::worker::fuzzing::commands;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Runs `target` over the inputs that are kept for it, and over beginnings of each.
    fn replay(folder: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(folder);
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            for part in 1..=4 {
                target(&bytes[..bytes.len() * part / 4]);
            }
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        replay("control", control);
    }

    #[test]
    fn states_are_read_as_they_were_written() {
        replay("state", state);
    }

    #[test]
    fn commands_of_any_kind_end_with_their_session() {
        replay("commands", commands);
    }
}
