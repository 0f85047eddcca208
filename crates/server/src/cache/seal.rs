//! Seals: which state of a file its content has been checked in, and when it was last used.
//!
//! A seal is a small file beside the image. It names what the system changes with every write, so an image
//! that nobody has touched since it was checked need not be read to be trusted. It holds until the machine is
//! started again: what had not reached the disk by then may be missing, and waiting for the disk at every
//! write would cost more than one check. Its own time of change is the time of the image's last use, which
//! could not be kept at the image without breaking the seal.

use std::fs::{self, File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

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
