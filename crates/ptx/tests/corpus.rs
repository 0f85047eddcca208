//! Runs the fuzz targets for PTX over the inputs that are kept for them, and over beginnings of each.

#[path = "../../../fuzz/src/ptx/mod.rs"]
mod ptx;

use std::path::Path;

/// Runs `target` over the files of a folder of the corpus.
fn replay(folder: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(folder);
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        target(&bytes);
        for part in 1..8 {
            target(&bytes[..bytes.len() * part / 8]);
        }
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn any_text_is_refused_or_can_be_translated() {
    replay("ptx_verify", ptx::verify);
}

#[test]
fn kernels_stay_in_their_memory() {
    replay("ptx_run", ptx::run);
}
