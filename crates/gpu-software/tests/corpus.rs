//! Runs the fuzz target for module images over the inputs that are kept for it, and over beginnings of each.

#[path = "../../../fuzz/src/fatbin.rs"]
mod target;

use std::path::Path;

#[test]
fn any_image_is_refused_or_can_be_unloaded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fatbin");
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        target::fatbin(&bytes);
        for part in 1..8 {
            target::fatbin(&bytes[..bytes.len() * part / 8]);
        }
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}
