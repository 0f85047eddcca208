//! Report files: what is written of a program at its end, which only its user may read.

use causeway_sync::threads;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a report. A file that is there keeps its rights.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    threads::without_sigxfsz(|| {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        file?.write_all(text.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn others_may_not_read_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        write(&path, "what a program did").unwrap();
        write(&path, "less").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "less");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
