//! Files that are checked: the libraries beneath a folder, and images that are files of their own.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use causeway_api::image::{FATBIN_MAGIC, Form};

/// Files and folders that are looked at, and how deep.
const MAX_FILES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;

/// The largest file that is read as an image.
const MAX_IMAGE_BYTES: u64 = 512 << 20;

/// The libraries beneath a folder: every regular file whose name is a library's, sorted. Links are not followed: what they
/// lead to is beneath the folder as well, or is not part of it.
pub fn libraries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut seen = 0;
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            seen += 1;
            if seen > MAX_FILES {
                let text = format!("it contains more than {MAX_FILES} files");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            let kind = entry.file_type()?;
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && is_library(entry.file_name().as_bytes()) {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Whether a file is called like a library: `x.so`, `libx.so.1.2`.
fn is_library(name: &[u8]) -> bool {
    let is_of_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let end = name.iter().rposition(|byte| !is_of_version(byte)).map_or(0, |last| last + 1);
    name[..end].ends_with(b".so")
}

/// A file that is a fat binary or PTX text; nothing when it is another.
pub fn image(path: &Path) -> io::Result<Option<(Form, Vec<u8>)>> {
    let mut content = Vec::new();
    let mut file = File::open(path)?.take(MAX_IMAGE_BYTES + 1);
    // Enough to see what it is, before a large file is read for nothing.
    file.by_ref().take(64 << 10).read_to_end(&mut content)?;
    let is_fatbin = content.starts_with(&FATBIN_MAGIC.to_le_bytes());
    let mut lines = content.split(|byte| *byte == b'\n');
    if !is_fatbin && !lines.any(|line| line.trim_ascii_start().starts_with(b".version")) {
        return Ok(None);
    }
    file.read_to_end(&mut content)?;
    if content.len() as u64 > MAX_IMAGE_BYTES {
        let text = format!("it is longer than {MAX_IMAGE_BYTES} bytes, the maximum that is examined");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Some((Form::Single, content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        for name in ["x.so", "libx.so.1", "m.cpython-311-x86_64-linux-gnu.so"] {
            assert!(is_library(name.as_bytes()), "{name}");
        }
        for name in ["x.py", "so", "x.sox", "x.a", "x.so.c", "1.2", ""] {
            assert!(!is_library(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn folders_are_read_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("x.so"), "").unwrap();
        fs::write(inner.join("x.py"), "").unwrap();
        std::os::unix::fs::symlink(folder.path(), inner.join("round")).unwrap();
        std::os::unix::fs::symlink(inner.join("x.so"), inner.join("y.so")).unwrap();
        assert_eq!(libraries(folder.path()).unwrap(), [inner.join("x.so")]);
        assert!(libraries(&folder.path().join("none")).is_err());
    }
}
