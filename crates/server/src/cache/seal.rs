//! Files of cached images: eviction, and seals: in which state of a file its content has been checked, and
//! when it was last used.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

/// What changes when a file is replaced or written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl State {
    /// The state that an open file is in.
    pub fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { inode: found.ino(), bytes: found.len(), changed: (found.ctime(), found.ctime_nsec()) })
    }

    fn text(self) -> String {
        let Self { inode, bytes, changed: (seconds, nanoseconds) } = self;
        format!("{inode} {bytes} {seconds}.{nanoseconds:09} {}\n", boot())
    }
}

/// What the system calls its present run.
fn boot() -> &'static str {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        // Where the system does not say, seals hold in the process that made them.
        if name.trim().is_empty() {
            format!("process-{}", std::process::id())
        } else {
            name.trim().to_owned()
        }
    });
    &BOOT
}

/// The seal of an image.
pub fn path_of(image: &Path) -> PathBuf {
    image.with_extension("seal")
}

/// Whether an image is sealed in this state; if it is, this counts as a use.
pub fn holds(image: &Path, state: State) -> bool {
    let path = path_of(image);
    let sealed = fs::read(&path).is_ok_and(|text| text == state.text().as_bytes());
    if sealed && let Ok(file) = File::options().write(true).open(&path) {
        // On a disk that cannot be written to nothing is removed either, so that nobody needs the time.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
    }
    sealed
}

/// Seals an image in a state. The content must have been checked in it.
pub fn put(image: &Path, state: State) -> io::Result<()> {
    let path = path_of(image);
    let unfinished = image.with_extension(format!("seal-{}", std::process::id()));
    fs::write(&unfinished, state.text())?;
    fs::rename(unfinished, path)
}

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
    let _ = fs::remove_file(path_of(path));
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
    let used = fs::metadata(path_of(path)).and_then(|seal| seal.modified()).unwrap_or(written);
    // What the disk has of it: zeros take no room.
    let bytes = found.len().min(found.blocks() * 512);
    Some(Image { path: path.to_owned(), bytes, used })
}
