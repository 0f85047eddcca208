//! Files of the library: the cache folder, from which old files are evicted, and reports, which only the
//! program's user may read.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use causeway_config::table::CACHE_DIR;
use causeway_sync::threads;

use crate::environment;

/// The folder for files of a kind, if any are kept. It may not be there yet.
pub fn folder(kind: &str) -> Option<PathBuf> {
    if let Some(folder) = environment::read(&CACHE_DIR) {
        return (!folder.is_empty()).then(|| Path::new(&folder).join(kind));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let folder = folder.or_else(|| variable("HOME").map(|home| home.join(".cache")));
    folder.map(|folder| folder.join("causeway").join(kind))
}

/// Makes the folder, for this user alone, if it is not there.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Removes the oldest files when there are `max_files`, or when they have `max_bytes` together, until at
/// most half of both is left.
pub fn evict(folder: &Path, max_files: usize, max_bytes: u64) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = files
        .filter_map(|file| {
            let found = file.metadata().ok()?;
            Some((found.modified().ok()?, file.path(), found.len()))
        })
        .collect();
    let mut bytes: u64 = files.iter().map(|(_, _, bytes)| bytes).sum();
    let mut count = files.len();
    if count < max_files && bytes < max_bytes {
        return;
    }
    files.sort();
    for (_, path, size) in &files {
        if count <= max_files / 2 && bytes <= max_bytes / 2 {
            break;
        }
        // Another process may have been faster.
        let _ = fs::remove_file(path);
        (count, bytes) = (count - 1, bytes - size);
    }
}

/// Writes a report. A file that is there keeps its rights.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    threads::without_sigxfsz(|| {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        file?.write_all(text.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn oldest_files_are_evicted_above_either_limit() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..6_u64 {
            let path = folder.path().join(number.to_string());
            fs::write(&path, [0; 100]).unwrap();
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        evict(folder.path(), 7, 601);
        assert_eq!(names(folder.path()).len(), 6);
        evict(folder.path(), 7, 600);
        assert_eq!(names(folder.path()), ["3", "4", "5"]);
        evict(folder.path(), 3, 600);
        assert_eq!(names(folder.path()), ["5"]);
    }

    #[test]
    fn others_may_not_read_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        write(&path, "what a program did").unwrap();
        write(&path, "less").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "less");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
