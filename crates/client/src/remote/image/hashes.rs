//! The hash of an image's content, without reading a large one twice on a machine.
//!
//! The hash of an image that lies in a file is kept on disk under what changes when the file does, so that
//! naming an image of 700 MB costs a look into a small file. One such file is for one image file and holds a
//! line for each image of it that was ever loaded. Processes append whole lines; a line that makes no sense
//! is skipped.

use super::origin::{self, FileState, Origin};
use crate::disk_cache;
use crate::locks::{Mutex, rank};
use blake3::Hash;
use causeway_sync::threads;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

/// Smaller images are hashed as fast as their hash is found.
const MIN_CACHED_BYTES: usize = 64 << 10;
/// A file of hashes that is larger is begun anew: no library has so many images.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Files of hashes that are kept; the oldest go when there are more.
const MAX_FILES: usize = 512;

/// Hashes by offset and length in a file.
type Known = HashMap<(u64, u64), Hash>;

/// What has been read from disk, by the name of the file of hashes.
static READ: LazyLock<Mutex<rank::FileHashes, HashMap<String, Known>>> = LazyLock::new(Mutex::default);

/// The hash of an image.
pub fn of(image: &[u8]) -> Hash {
    if image.len() < MIN_CACHED_BYTES {
        return blake3::hash(image);
    }
    let Some((folder, origin)) =
        disk_cache::folder("image-hashes").zip(origin::of(image.as_ptr(), image.len()))
    else {
        return blake3::hash(image);
    };
    cached_or(&folder, origin, image.len() as u64, || blake3::hash(image))
}

/// The hash that is kept for a part of a file; else the one that `compute` gives, which is kept from now on.
fn cached_or(folder: &Path, origin: Origin, length: u64, compute: impl FnOnce() -> Hash) -> Hash {
    let name = name_of(&origin.file);
    let key = (origin.offset, length);
    let mut read = READ.lock();
    let known = read.entry(name.clone()).or_insert_with(|| load(&folder.join(&name)));
    if let Some(hash) = known.get(&key) {
        return *hash;
    }
    drop(read);
    let hash = compute();
    READ.lock().entry(name.clone()).or_default().insert(key, hash);
    // On a disk that takes nothing more the hash is computed again next time.
    let _ = append(folder, &name, key, hash);
    hash
}

/// The name of the file with the hashes of a file's images.
fn name_of(file: &FileState) -> String {
    let FileState { inode, bytes, modified, changed } = file;
    blake3::hash(format!("{inode:?} {bytes} {modified:?} {changed:?}").as_bytes()).to_hex()[..32].to_owned()
}

fn load(path: &Path) -> Known {
    match fs::metadata(path) {
        Ok(found) if found.len() <= MAX_FILE_BYTES => {}
        Ok(_) => {
            // Appending begins a new one; should it stay, it is not read next time either.
            let _ = fs::remove_file(path);
            return Known::default();
        }
        Err(_) => return Known::default(),
    }
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// A line is `offset length hash`.
fn parse(line: &str) -> Option<((u64, u64), Hash)> {
    let mut fields = line.split(' ');
    let key = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let hash = Hash::from_hex(fields.next()?).ok()?;
    fields.next().is_none().then_some((key, hash))
}

fn append(folder: &Path, name: &str, (offset, length): (u64, u64), hash: Hash) -> io::Result<()> {
    disk_cache::make(folder)?;
    let path = folder.join(name);
    if !path.exists() {
        disk_cache::evict(folder, MAX_FILES, u64::MAX);
    }
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // In one write, so that lines of other processes stay whole.
    let line = format!("{offset} {length} {}\n", hash.to_hex());
    threads::without_sigxfsz(|| file.write_all(line.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(inode: u64, offset: u64) -> Origin {
        let file = FileState { inode: (1, inode), bytes: 9, modified: (5, 6), changed: (7, 8) };
        Origin { file, offset }
    }

    fn forget() {
        READ.lock().clear();
    }

    #[test]
    fn a_hash_is_computed_once_for_a_state_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("deep").join("hashes");
        let first = blake3::hash(b"first");
        let never = || -> Hash { panic!("the hash is kept") };
        assert_eq!(cached_or(&folder, origin(1, 0), 100, || first), first);
        assert_eq!(cached_or(&folder, origin(1, 0), 100, never), first);
        forget();
        assert_eq!(cached_or(&folder, origin(1, 0), 100, never), first, "from disk");
        let other = blake3::hash(b"other");
        assert_eq!(cached_or(&folder, origin(1, 50), 100, || other), other);
        assert_eq!(cached_or(&folder, origin(1, 0), 101, || other), other);
        let mut changed = origin(1, 0);
        changed.file.changed.1 += 1;
        assert_eq!(cached_or(&folder, changed, 100, || other), other);
    }

    #[test]
    fn damaged_lines_and_unwritable_folders_are_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let hash = blake3::hash(b"x");
        let name = name_of(&origin(2, 0).file);
        let text = format!("nonsense\n0 100\n7 8 {}\n0 100 abc\n", hash.to_hex());
        fs::write(folder.path().join(&name), text).unwrap();
        assert_eq!(cached_or(folder.path(), origin(2, 7), 8, || panic!("the hash is kept")), hash);
        let other = blake3::hash(b"other");
        assert_eq!(cached_or(folder.path(), origin(2, 0), 100, || other), other);
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        assert_eq!(cached_or(&file, origin(3, 0), 100, || other), other);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let hash = blake3::hash(b"x");
        for number in 0..MAX_FILES as u64 + 10 {
            append(folder.path(), &number.to_string(), (0, number), hash).unwrap();
        }
        assert!(fs::read_dir(folder.path()).unwrap().count() <= MAX_FILES);
    }
}
