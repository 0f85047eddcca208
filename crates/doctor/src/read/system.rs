//! Files below a root that need not be the real one.

use crate::facts::Node;
use rustix::fs::{Access, access};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The most bytes of a file that are read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The file systems of a machine, below a root that need not be the real one.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// Below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path as it is from here.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The beginning of a file's bytes; nothing when it cannot be read.
    pub(super) fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.at(path)).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without the blanks around it; empty when it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> String {
        let bytes = self.bytes(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// What a file says, if it is that.
    pub(super) fn parse<T: core::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path).parse().ok()
    }

    /// The names in a folder, sorted; none when it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        names
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// The name of what a link leads to.
    pub(super) fn target_name(&self, link: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_link(self.at(link)).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// Where links lead to, as a path below the root.
    pub(super) fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let (real, root) = (self.at(path).canonicalize().ok()?, self.root.canonicalize().ok()?);
        Some(real.strip_prefix(root).ok()?.to_owned())
    }

    /// A device file, if it is there.
    pub(super) fn node(&self, path: &str) -> Option<Node> {
        let at = self.at(path);
        let mode = fs::metadata(&at).ok()?.permissions().mode() & 0o7777;
        let is_usable = access(&at, Access::READ_OK | Access::WRITE_OK).is_ok();
        Some(Node { path: path.to_owned(), mode, is_usable })
    }
}
