//! Runs the bodies of the fuzz targets over the checked-in inputs, over every beginning of each, and over
//! damaged copies.

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

/// Runs `target` over the files of a folder of the corpus.
fn replay(folder: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(folder);
    let mut files = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        target(&bytes);
        for end in 0..bytes.len().min(400) {
            target(&bytes[..end]);
        }
        for position in 0..bytes.len().min(400) {
            for damage in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[position] ^= damage;
                target(&damaged);
            }
        }
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

#[test]
fn frames() {
    replay("frames", targets::frames);
}

#[test]
fn messages() {
    replay("messages", targets::messages);
}

#[test]
fn handshake() {
    replay("handshake", targets::handshake);
}

#[test]
fn status() {
    replay("status", targets::status);
}

#[test]
fn chunks() {
    replay("chunks", targets::chunks);
}
