//! Runs the fuzz target for configuration files over the texts that are kept for it, and over beginnings of each.

#[path = "../../../fuzz/src/configuration.rs"]
mod target;

use std::path::Path;

#[test]
fn any_text_is_refused_or_means_the_same_when_written_anew() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/configuration");
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for end in 0..=bytes.len() {
            target::configuration(&bytes[..end]);
        }
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}
