//! Eviction of cached images.

use super::seal;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How the name of a file begins that is being written.
pub const UNFINISHED: &str = ".unfinished-";
/// A file that has been unfinished for so long has lost its writer.
const MAX_UNFINISHED_AGE: Duration = Duration::from_secs(3600);

struct Image {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Removes images of all identities, those used least lately first, until they take no more than `capacity`
/// bytes.
pub fn trim(root: &Path, capacity: u64) {
    // One worker at a time: two would remove twice as much. Who finds another at it leaves it to that one.
    let Ok(lock) = File::create(root.join(".lock")) else { return };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let mut images = images(root);
    let mut bytes: u64 = images.iter().map(|image| image.bytes).sum();
    if bytes <= capacity {
        return;
    }
    images.sort_by_key(|image| image.used);
    for image in images {
        if bytes <= capacity {
            return;
        }
        remove(&image.path);
        bytes -= image.bytes;
    }
}

/// Removes an image and its seal. Who has it mapped keeps it.
pub fn remove(path: &Path) {
    // Another worker may have been faster, and on a disk that cannot be written to nothing grows.
    let _ = fs::remove_file(path);
    let _ = fs::remove_file(seal::path_of(path));
}

/// All images of all identities.
fn images(root: &Path) -> Vec<Image> {
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    files.filter_map(|file| image(&file.path())).collect()
}

fn image(path: &Path) -> Option<Image> {
    let name = path.file_name()?.to_str()?;
    let found = fs::metadata(path).ok()?;
    let written = found.modified().ok()?;
    if name.starts_with(UNFINISHED) && written.elapsed().is_ok_and(|age| age > MAX_UNFINISHED_AGE) {
        remove(path);
    }
    if blake3::Hash::from_hex(name).is_err() {
        return None;
    }
    let used = fs::metadata(seal::path_of(path)).and_then(|seal| seal.modified()).unwrap_or(written);
    // What the disk has of it: zeros take no room.
    let bytes = found.len().min(found.blocks() * 512);
    Some(Image { path: path.to_owned(), bytes, used })
}
