//! Module images that the server keeps on disk, named by the hash of their content.
//!
//! A 700 MB image of cuBLAS crosses the wire once for all sessions of an identity; afterwards its file is
//! mapped into the workers. An identity has a folder of its own, so that no client gets another's code by naming
//! its hash, and a file is stored under the hash that was computed here from what came, whatever the client
//! or its worker said.
//!
//! Only the broker opens the folder. A worker asks it for an image and gets the file's descriptor, and hands
//! over what is to be kept in sealed memory (`broker::images`): so a worker that runs foreign code reads and
//! replaces no images of others. Files appear by renaming and are never changed, so that a reader needs no
//! lock, also where two servers have one folder. What is wrong with the disk costs the cache and never the
//! session.

mod seal;

use blake3::{Hash, Hasher};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use seal::trim;

/// Bytes that are read at a time.
const BLOCK: usize = 1 << 20;

/// Which images a session may have, and how much room all identities have together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStart {
    /// The folder of all identities.
    pub folder: PathBuf,
    /// The most bytes that all images may take.
    pub capacity: u64,
    /// The name of the client's identity: a folder in `folder`.
    pub identity: String,
}

/// The name of the identity of those who hold `key`; without a key all who can connect are one.
pub fn identity_of(key: Option<&[u8]>) -> String {
    match key {
        Some(key) => {
            let name = blake3::derive_key("causeway 2026 identity in the image cache", key);
            Hash::from_bytes(name).to_hex()[..32].to_owned()
        }
        None => "without-key".to_owned(),
    }
}

/// The images of one identity.
#[derive(Debug)]
pub struct ImageCache {
    root: PathBuf,
    folder: PathBuf,
    capacity: u64,
    /// Whether the user of this server has been informed that nothing can be kept.
    complained: AtomicBool,
}

impl ImageCache {
    /// Opens the cache; nothing when its folder cannot be used, which is said in the log.
    pub fn open(start: CacheStart) -> Option<Self> {
        let root = start.folder;
        let folder = root.join(&start.identity);
        match own_folder(&folder).and_then(|()| own_folder(&root)) {
            Ok(()) => {
                Some(Self { root, folder, capacity: start.capacity, complained: AtomicBool::new(false) })
            }
            Err(error) => {
                tracing::warn!("image cache disabled: cannot use the folder {}: {error}", folder.display());
                None
            }
        }
    }

    /// The file of the image with this hash and length, if it is here and undamaged.
    pub fn find(&self, hash: Hash, length: u64) -> Option<File> {
        let path = self.path(hash);
        let file = File::open(&path).ok()?;
        let checked = Self::check(&path, &file, hash).inspect_err(|error| {
            tracing::warn!("cached image {} discarded: {error}", path.display());
            seal::remove(&path);
        });
        let is_right = checked.is_ok() && file.metadata().is_ok_and(|found| found.len() == length);
        is_right.then_some(file)
    }

    /// Makes sure of a file's content: by its seal when it has not been touched since that was made, else by
    /// computing its hash again.
    fn check(path: &Path, mut file: &File, hash: Hash) -> io::Result<()> {
        let state = seal::State::of(file)?;
        if seal::holds(path, state) {
            return Ok(());
        }
        let mut hasher = Hasher::new();
        read_blocks(&mut file, |block| {
            hasher.update(block);
            Ok(())
        })?;
        if hasher.finalize() != hash {
            return Err(io::Error::other("its content is not what it was"));
        }
        // Without a seal the next session computes the hash again.
        let _ = seal::put(path, state);
        Ok(())
    }

    /// Whether there is an image with this hash, undamaged or not.
    pub fn has(&self, hash: Hash) -> bool {
        self.path(hash).exists()
    }

    /// Keeps an image of so many bytes under the hash of its content, which is returned; nothing when it is
    /// not kept.
    pub fn keep(&self, image: impl Read, bytes: u64) -> Option<Hash> {
        if bytes > self.capacity {
            return None;
        }
        match self.store(image, bytes) {
            Ok(hash) => Some(hash),
            Err(error) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    tracing::warn!("image cache disabled: cannot write {}: {error}", self.folder.display());
                }
                None
            }
        }
    }

    fn store(&self, image: impl Read, bytes: u64) -> io::Result<Hash> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        trim(&self.root, self.capacity.saturating_sub(bytes));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.folder.join(format!("{}{}-{number}", seal::UNFINISHED, std::process::id()));
        let written = File::create_new(&unfinished).and_then(|mut file| {
            let (mut hasher, mut written) = (Hasher::new(), 0);
            read_blocks(&mut image.take(bytes), |block| {
                hasher.update(block);
                written += block.len() as u64;
                if block.iter().all(|byte| *byte == 0) {
                    return file.seek_relative(block.len() as i64);
                }
                file.write_all(block)
            })?;
            if written != bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // Zeros at the end have only been passed over.
            file.set_len(bytes)?;
            let hash = hasher.finalize();
            let path = self.path(hash);
            fs::rename(&unfinished, &path)?;
            seal::put(&path, seal::State::of(&file)?)?;
            Ok(hash)
        });
        written.inspect_err(|_| {
            // Renamed or never made: then there is nothing to remove.
            let _ = fs::remove_file(&unfinished);
        })
    }

    fn path(&self, hash: Hash) -> PathBuf {
        self.folder.join(hash.to_hex().as_str())
    }
}

/// Hands over what there is to read, block by block. Nothing is mapped: whoever cut a mapped file off would
/// end this process.
fn read_blocks(source: &mut impl Read, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match source.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(bytes) => take(&block[..bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes sure that there is a folder which only this user can write to.
fn own_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = fs::metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("others can write to it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn cache(folder: &Path, identity: &str, capacity: u64) -> Option<ImageCache> {
        ImageCache::open(CacheStart { folder: folder.to_owned(), capacity, identity: identity.into() })
    }

    fn keep(cache: &ImageCache, bytes: &[u8]) -> Option<Hash> {
        cache.keep(bytes, bytes.len() as u64)
    }

    fn found(cache: &ImageCache, bytes: &[u8]) -> bool {
        let file = cache.find(blake3::hash(bytes), bytes.len() as u64);
        file.is_some_and(|file| {
            // The broker has read it to check it; a worker maps it from its beginning.
            let mut content = vec![0; bytes.len()];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
            content == bytes
        })
    }

    #[test]
    fn an_image_is_found_by_its_identity_only() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, theirs) = (identity_of(Some(b"mine")), identity_of(Some(b"theirs")));
        assert_ne!(mine, theirs);
        assert_ne!(mine, identity_of(None));
        let cache_of = |identity: &str| cache(folder.path(), identity, 1 << 20).unwrap();
        assert!(!found(&cache_of(&mine), b"image"));
        assert_eq!(keep(&cache_of(&mine), b"image"), Some(blake3::hash(b"image")));
        assert!(found(&cache_of(&mine), b"image") && !found(&cache_of(&theirs), b"image"));
        assert!(cache_of(&mine).find(blake3::hash(b"image"), 4).is_none(), "another length");
        assert!(found(&cache_of(&mine), b"image"), "a wrong length is no damage");
    }

    #[test]
    fn zeros_take_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "i", 1 << 30).unwrap();
        let mut image = vec![0; 5 * BLOCK];
        image[2 * BLOCK] = 1;
        let hash = keep(&cache, &image).unwrap();
        assert_eq!(hash, blake3::hash(&image));
        assert!(found(&cache, &image));
        let kept = fs::metadata(cache.path(hash)).unwrap();
        assert_eq!(kept.len(), image.len() as u64);
        assert!(kept.blocks() * 512 < 3 * BLOCK as u64, "{} blocks", kept.blocks());
    }

    #[test]
    fn a_damaged_file_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "i", 1 << 20).unwrap();
        for damage in [&b"imagE"[..], b"ima", b""] {
            keep(&cache, b"image");
            let path = cache.path(blake3::hash(b"image"));
            assert!(found(&cache, b"image"));
            fs::write(&path, damage).unwrap();
            assert!(!found(&cache, b"image") && !path.exists());
        }
    }

    #[test]
    fn a_file_without_seal_is_checked_and_sealed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "i", 1 << 20).unwrap();
        let path = cache.path(blake3::hash(b"image"));
        fs::write(&path, b"image").unwrap();
        assert!(!seal::holds(&path, seal::State::of(&File::open(&path).unwrap()).unwrap()));
        assert!(found(&cache, b"image"));
        assert!(seal::holds(&path, seal::State::of(&File::open(&path).unwrap()).unwrap()));
    }

    #[test]
    fn the_images_used_least_lately_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) =
            (cache(folder.path(), "a", 1000).unwrap(), cache(folder.path(), "b", 1000).unwrap());
        keep(&first, &[1; 400]);
        keep(&second, &[2; 400]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(found(&first, &[1; 400]));
        keep(&second, &[3; 400]);
        assert!(found(&first, &[1; 400]) && !found(&second, &[2; 400]) && found(&second, &[3; 400]));
        keep(&first, &[4; 1001]);
        assert!(!found(&first, &[4; 1001]) && found(&first, &[1; 400]), "too large for the cache");
    }

    #[test]
    fn what_ends_too_early_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "i", 1 << 20).unwrap();
        assert_eq!(cache.keep(&b"ima"[..], 5), None);
        assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), 0, "nothing is left of it");
        assert_eq!(cache.keep(&b"image and more"[..], 5), Some(blake3::hash(b"image")));
        assert!(cache.has(blake3::hash(b"image")) && !cache.has(blake3::hash(b"ima")));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("i")).unwrap();
        fs::set_permissions(folder.path().join("i"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(cache(folder.path(), "i", 1000).is_none());
        fs::write(folder.path().join("file"), b"").unwrap();
        assert!(cache(&folder.path().join("file"), "i", 1000).is_none());
    }
}
