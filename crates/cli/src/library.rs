//! Client libraries: their folders.
//!
//! A program finds the CUDA driver by the name `libcuda.so.1` in the folders of `LD_LIBRARY_PATH`, and a few
//! libraries ask for `libcuda.so`; likewise NVML. So there must be a folder in which our libraries have both
//! names, and nothing else that could come before a library of the program.

use causeway_config::read::PROCESS;
use causeway_config::table::LIB_DIR;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::stand_ins;

/// The name that programs ask for.
const NAME: &str = "libcuda.so.1";

/// The name that cargo gives it, and that a few libraries ask for.
const PLAIN_NAME: &str = "libcuda.so";

/// What cargo calls the library that stands in for those whose work is not forwarded.
const STUBS: &str = "libcauseway_stubs.so";

/// The folder with all names that is made beside the libraries that cargo has built.
const LINKS: &str = "causeway-lib";

/// What is in that folder: the names, and what cargo calls the library.
const NAMES: [(&str, &str); 12] = [
    (NAME, PLAIN_NAME),
    (PLAIN_NAME, PLAIN_NAME),
    ("libnvidia-ml.so.1", "libcauseway_nvml.so"),
    ("libnvidia-ml.so", "libcauseway_nvml.so"),
    ("libnvcuvid.so.1", STUBS),
    ("libnvcuvid.so", STUBS),
    ("libnvidia-encode.so.1", STUBS),
    ("libnvidia-encode.so", STUBS),
    ("libnvidia-opticalflow.so.1", STUBS),
    ("libnvidia-opticalflow.so", STUBS),
    ("libnvoptix.so.1", STUBS),
    ("libnvoptix.so", STUBS),
];

/// Why there is no client library.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// The folder that was named does not hold it.
    #[error("CAUSEWAY_LIB_DIR is {0}, but there is no {NAME} in it")]
    NotInNamedFolder(PathBuf),
    /// It is in none of the usual places.
    #[error(
        "the client library {NAME} is neither beside {executable} nor in {LINKS} there nor in ../lib/causeway: copy the \
         folder {LINKS} of the build or the package to one of these places (`cp -rL`), or name its folder in \
         CAUSEWAY_LIB_DIR"
    )]
    NotFound {
        /// This program.
        executable: PathBuf,
    },
    /// The folder of links cannot be made.
    #[error(
        "the folder {folder} with links to the client library cannot be created ({cause}): create a folder \
         with links named {NAME} and {PLAIN_NAME} to {library}, and name it in CAUSEWAY_LIB_DIR"
    )]
    Links {
        /// The folder.
        folder: PathBuf,
        /// The library.
        library: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The loader would take the folder for two.
    #[error(
        "the client library is in {}, and LD_LIBRARY_PATH, by which programs find it, separates folders by \
         `:` and `;`: move it to a folder without them, or name a link to it in CAUSEWAY_LIB_DIR", .0.display()
    )]
    Separator(PathBuf),
    /// The system does not say where this program is.
    #[error("the path of the program causeway cannot be determined: {0}")]
    Executable(io::Error),
}

/// The folder to put in front of `LD_LIBRARY_PATH`: the one named by `CAUSEWAY_LIB_DIR`, the one of this
/// program, `../lib/causeway` seen from there, or `causeway-lib` beside the program. Where cargo built both,
/// this folder is made, with links.
pub fn folder() -> Result<PathBuf, LibraryError> {
    can_be_searched(find()?)
}

/// The folder, if it can be passed to a loader.
fn can_be_searched(folder: PathBuf) -> Result<PathBuf, LibraryError> {
    let is_split = folder.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b';'));
    if is_split { Err(LibraryError::Separator(folder)) } else { Ok(folder) }
}

fn find() -> Result<PathBuf, LibraryError> {
    if let Some(named) = PROCESS.path(&LIB_DIR) {
        return match std::path::absolute(&named) {
            Ok(folder) if folder.join(NAME).exists() => Ok(folder),
            _ => Err(LibraryError::NotInNamedFolder(named)),
        };
    }
    let executable = std::env::current_exe().map_err(LibraryError::Executable)?;
    find_installed(&executable)
}

/// The libraries of a folder that [`folder`] gave: the names that programs ask for, and the files behind them.
pub fn files(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let there = |(name, _): &(&'static str, _)| Some((*name, folder.join(name).canonicalize().ok()?));
    NAMES.iter().filter_map(there).collect()
}

/// Where packages install files that do not belong in `PATH`.
const OF_PACKAGES: &str = "/usr/lib/causeway";

/// The folders where programs and libraries that belong to this program may lie, in the order in which they are
/// looked at: its own (a build, or copies of one), `../lib/causeway` seen from there (packages, archive, wheel), and
/// that of packages, for a program that came alone.
pub fn folders() -> Vec<PathBuf> {
    folders_of(&std::env::current_exe().unwrap_or_default())
}

fn folders_of(executable: &Path) -> Vec<PathBuf> {
    let own_folder = executable.parent().unwrap_or(Path::new("."));
    let mut folders = vec![own_folder.to_owned()];
    folders.extend(own_folder.parent().map(|prefix| prefix.join("lib/causeway")));
    if !folders.iter().any(|folder| folder == Path::new(OF_PACKAGES)) {
        folders.push(OF_PACKAGES.into());
    }
    folders
}

fn find_installed(executable: &Path) -> Result<PathBuf, LibraryError> {
    let own_folder = executable.parent().unwrap_or(Path::new("/"));
    let installed = own_folder.parent().unwrap_or(Path::new("/")).join("lib").join("causeway");
    for folder in [own_folder, &installed] {
        if folder.join(NAME).exists() {
            return Ok(folder.to_owned());
        }
    }
    let library = own_folder.join(PLAIN_NAME);
    if !library.exists() {
        // What was copied from a build, without the libraries under cargo's names.
        let copied = own_folder.join(LINKS);
        if copied.join(NAME).exists() {
            return Ok(copied);
        }
        return Err(LibraryError::NotFound { executable: executable.to_owned() });
    }
    let folder = own_folder.join(LINKS);
    match make_links(own_folder, &folder) {
        Ok(()) => Ok(folder),
        Err(cause) => Err(LibraryError::Links { folder, library, cause }),
    }
}

fn make_links(built: &Path, folder: &Path) -> io::Result<()> {
    // Several programs may be starting at once; what another one has made is as good.
    let or_there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    or_there(std::fs::create_dir(folder))?;
    // Most programs ask for the driver library alone, and run without the others.
    for (name, library) in NAMES.iter().filter(|(_, library)| built.join(library).exists()) {
        or_there(symlink(Path::new("..").join(library), folder.join(name)))?;
    }
    let software = folder.join(stand_ins::FOLDER);
    or_there(std::fs::create_dir(&software))?;
    for (name, library) in stand_ins::NAMES.iter().filter(|(_, library)| built.join(library).exists()) {
        or_there(symlink(Path::new("../..").join(library), software.join(name)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_the_loader_would_split_is_refused() {
        assert!(can_be_searched("/opt/causeway".into()).is_ok());
        let error = can_be_searched("/opt/c:1".into()).unwrap_err().to_string();
        assert!(error.contains("/opt/c:1") && error.contains("LD_LIBRARY_PATH"), "{error}");
    }

    #[test]
    fn what_belongs_to_the_program_lies_beside_it_or_where_it_was_installed() {
        let of = |executable: &str| {
            let folders = folders_of(Path::new(executable));
            folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("/usr/bin/causeway"), ["/usr/bin", "/usr/lib/causeway"]);
        assert_eq!(of("/opt/c/bin/causeway"), ["/opt/c/bin", "/opt/c/lib/causeway", "/usr/lib/causeway"]);
    }

    #[test]
    fn the_library_is_found_where_it_is_installed_or_built() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        let installed = root.path().join("lib").join("causeway");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(&installed).unwrap();
        let executable = bin.join("causeway");
        let error = find_installed(&executable).unwrap_err();
        assert!(error.to_string().contains("copy the folder causeway-lib"), "{error}");

        let copied = bin.join(LINKS);
        std::fs::create_dir(&copied).unwrap();
        assert!(find_installed(&executable).is_err(), "a folder without the library is none");
        std::fs::write(copied.join(NAME), "copied").unwrap();
        assert_eq!(find_installed(&executable).unwrap(), copied);
        std::fs::remove_dir_all(&copied).unwrap();

        std::fs::write(bin.join(PLAIN_NAME), "built").unwrap();
        let names = |library: &'static str| NAMES.into_iter().filter(move |(_, built)| *built == library);
        for nvml in [None, Some("built, too")] {
            if let Some(nvml) = nvml {
                std::fs::write(bin.join("libcauseway_nvml.so"), nvml).unwrap();
            }
            let folder = find_installed(&executable).unwrap();
            assert_eq!(folder, bin.join(LINKS));
            assert_eq!(files(&folder)[0], (NAME, bin.join(PLAIN_NAME).canonicalize().unwrap()));
            for (name, _) in names(PLAIN_NAME) {
                assert_eq!(std::fs::read(folder.join(name)).unwrap(), b"built");
            }
            for (name, _) in names("libcauseway_nvml.so") {
                assert_eq!(std::fs::read_to_string(folder.join(name)).ok().as_deref(), nvml);
            }
        }
        std::fs::write(installed.join(NAME), "installed").unwrap();
        assert_eq!(find_installed(&executable).unwrap(), installed);
        std::fs::write(bin.join(NAME), "beside").unwrap();
        assert_eq!(find_installed(&executable).unwrap(), bin);
    }
}
