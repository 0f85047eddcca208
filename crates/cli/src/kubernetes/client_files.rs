//! Client files of a node: program and libraries, at paths from which a kubelet mounts them into containers.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::library::{self, LibraryError};

/// Program and libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The program.
    pub program: PathBuf,
    /// The libraries: the name that programs ask for, and where each is.
    pub libraries: Vec<(&'static str, PathBuf)>,
}

/// Why a file is not where containers get it from.
#[derive(Debug, Error)]
#[error("cannot copy {from} to {to}, from where containers would load it: {cause}", from = from.display(), to = to.display())]
pub struct CopyError {
    from: PathBuf,
    to: PathBuf,
    cause: io::Error,
}

/// Why there are no client files for containers.
#[derive(Debug, Error)]
pub enum ClientFilesError {
    /// There are no libraries.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// They cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
}

impl ClientFiles {
    /// This program and its libraries: where they are, or in a folder to which they are copied.
    pub fn new(folder: Option<&Path>) -> Result<Self, ClientFilesError> {
        let program = std::env::current_exe().map_err(ClientFilesError::Executable)?;
        let files = Self { program, libraries: library::files(&library::folder()?) };
        Ok(match folder {
            Some(folder) => files.copy_to(folder)?,
            None => files,
        })
    }

    /// Copies them to a folder, and says where they are then. A container that has an older file keeps it: each is
    /// replaced as a whole.
    fn copy_to(&self, folder: &Path) -> Result<Self, CopyError> {
        let copied = |from: &Path| {
            let to = folder.join(from.file_name().unwrap_or_default());
            let failed = |cause| CopyError { from: from.to_owned(), to: to.clone(), cause };
            copy(from, &to).map_err(failed)?;
            Ok(to)
        };
        let program = copied(&self.program)?;
        let mut done: Vec<(&Path, PathBuf)> = Vec::new();
        let mut libraries = Vec::new();
        for (name, from) in &self.libraries {
            // Several names may mean one file.
            let to = match done.iter().find(|(known, _)| known == from) {
                Some((_, to)) => to.clone(),
                None => {
                    let to = copied(from)?;
                    done.push((from, to.clone()));
                    to
                }
            };
            libraries.push((*name, to));
        }
        Ok(Self { program, libraries })
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = to.with_extension("new");
    let copied = fs::copy(from, &draft)
        .and_then(|_| fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&draft, to));
    if copied.is_err() {
        // What is left of it is replaced at the next try.
        let _ = fs::remove_file(&draft);
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_copied_once_and_replaced_as_a_whole() {
        let (here, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = |name: &str, text: &str| {
            let path = here.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let library = made("libcuda.so.1", "old");
        let files = ClientFiles {
            program: made("causeway", "program"),
            libraries: vec![("libcuda.so.1", library.clone()), ("libcuda.so", library.clone())],
        };
        let folder = node.path().join("client");
        let copied = files.copy_to(&folder).unwrap();
        assert_eq!(copied.program, folder.join("causeway"));
        assert_eq!(
            copied.libraries,
            [("libcuda.so.1", folder.join("libcuda.so.1")), ("libcuda.so", folder.join("libcuda.so.1"))]
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no draft is left");
        assert_eq!(fs::metadata(&copied.program).unwrap().permissions().mode() & 0o777, 0o755);

        let held = fs::File::open(&copied.libraries[0].1).unwrap();
        fs::write(&library, "new").unwrap();
        files.copy_to(&folder).unwrap();
        assert_eq!(fs::read_to_string(&copied.libraries[0].1).unwrap(), "new");
        assert_eq!(io::read_to_string(held).unwrap(), "old");

        fs::remove_file(&library).unwrap();
        let error = files.copy_to(&folder).unwrap_err().to_string();
        assert!(error.contains("libcuda.so.1 to"), "{error}");
    }
}
