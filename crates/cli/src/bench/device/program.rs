//! Measuring program of `causeway bench device`: its path, and its start.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arguments::DeviceArguments;
use super::error::DeviceError;
use crate::bench::error::TargetError;
use crate::bench::gpus::{Gpu, Gpus};
use crate::keys::HandOverError;
use crate::library;

/// The measuring program, which `make programs` builds.
const PROGRAM: &str = "causeway_device_bench";

/// What makes its teams.
const LIBRARY: &str = "libcauseway_comm.so";

/// The program, and its arguments.
pub struct Program {
    command: Vec<OsString>,
    /// The folder with our client library.
    client: Option<PathBuf>,
    /// A folder with [`LIBRARY`] alone: beside it there may be a `libcuda.so.1` of ours, which a program on
    /// this machine's own GPU must not find.
    folder: tempfile::TempDir,
}

impl Program {
    /// The program that the arguments name, or that lies beside `causeway`.
    pub fn new(arguments: &DeviceArguments, gpus: &Gpus) -> Result<Self, DeviceError> {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let named = |requested: &Option<PathBuf>, name: &str| {
            absolute(requested.clone().unwrap_or_else(|| default_program(name, &library::folders())))
        };
        let program = named(&arguments.program, PROGRAM);
        if !program.is_file() {
            return Err(DeviceError::NoProgram(program));
        }
        let library = named(&arguments.library, LIBRARY);
        if !library.is_file() {
            return Err(DeviceError::NoLibrary(library));
        }
        let folder = tempfile::tempdir().map_err(DeviceError::Folder)?;
        symlink(&library, folder.path().join(LIBRARY)).map_err(DeviceError::Folder)?;
        let mut command = vec![program.into_os_string()];
        // The software GPU is for a look at what there is: full sizes would take it hours.
        command.extend(arguments.plan(gpus.is_private()).into_iter().map(OsString::from));
        let client = gpus.has_server().then(library::folder).transpose().map_err(TargetError::from)?;
        Ok(Self { command, client, folder })
    }

    /// What starts it on a GPU.
    pub fn command(&self, gpu: &Gpu) -> Result<Command, HandOverError> {
        let mut command = gpu.command(&self.command, self.client.as_deref())?;
        let requested = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH");
        let before = requested.map_or_else(
            || std::env::var_os("LD_LIBRARY_PATH"),
            |(_, value)| value.map(std::ffi::OsStr::to_owned),
        );
        command.env("LD_LIBRARY_PATH", with(self.folder.path(), before));
        Ok(command)
    }
}

/// Where a file is: in one of these places, or in the folder `device` of one; beside this program where it is in none.
fn default_program(name: &str, folders: &[PathBuf]) -> PathBuf {
    let candidates = folders.iter().flat_map(|folder| [folder.join(name), folder.join("device").join(name)]);
    let found = candidates.into_iter().find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| folders[0].join(name))
}

/// A list of folders with one more in front.
fn with(folder: &Path, before: Option<OsString>) -> OsString {
    let mut list = folder.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::arguments::tests::parse;
    use super::*;

    #[test]
    fn the_program_is_beside_causeway_or_where_packages_have_it() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["bin", "lib/causeway"].map(|folder| root.path().join(folder));
        assert_eq!(default_program(PROGRAM, &folders), folders[0].join(PROGRAM));
        let installed = folders[1].join("device").join(PROGRAM);
        std::fs::create_dir_all(installed.parent().unwrap()).unwrap();
        std::fs::write(&installed, "").unwrap();
        assert_eq!(default_program(PROGRAM, &folders), installed);
    }

    #[test]
    fn the_program_finds_the_library_and_nothing_that_lies_beside_it() {
        let itself = std::env::current_exe().unwrap();
        let itself = itself.to_str().unwrap();
        let arguments = parse(&["--native", "--program", itself, "--library", itself]).unwrap();
        let gpus = Gpus::new(&arguments.on, true, &arguments.via).unwrap();
        let program = Program::new(&arguments, &gpus).unwrap();
        let command = program.command(&gpus.each[0]).unwrap();
        let path = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").unwrap().1.unwrap();
        let first = PathBuf::from(path.to_str().unwrap().split(':').next().unwrap());
        let names: Vec<_> =
            std::fs::read_dir(&first).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [LIBRARY]);
        assert_eq!(
            std::fs::canonicalize(first.join(LIBRARY)).unwrap(),
            std::fs::canonicalize(itself).unwrap()
        );
        let missing = parse(&["--native", "--program", "/no/such"]).unwrap();
        let error = Program::new(&missing, &gpus).err().unwrap().to_string();
        assert!(error.contains("no measuring program at /no/such"), "{error}");
    }
}
