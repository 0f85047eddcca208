//! Stand-ins for NVIDIA's libraries of kernels, put in front of them where all servers are software GPUs.
//!
//! They lie in a folder apart, so that programs on real GPUs never find them. A program finds libraries by
//! folders of its own before those of `LD_LIBRARY_PATH` (`DT_RPATH`, as PyTorch and CuPy have it), but none
//! that is loaded already under the name: so the loader loads the stand-ins first.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The folder, within that of the client libraries.
pub const FOLDER: &str = "software";

/// What is in it: the names that programs ask for, and what cargo calls the library.
pub const NAMES: [(&str, &str); 8] = [
    ("libcublas.so.12", CUBLAS),
    ("libcublas.so.13", CUBLAS),
    ("libcublasLt.so.12", CUBLAS),
    ("libcublasLt.so.13", CUBLAS),
    ("libcusolver.so.11", CUBLAS),
    ("libcusolver.so.12", CUBLAS),
    ("libcurand.so.10", CUBLAS),
    ("libcusparse.so.12", CUBLAS),
];

/// The library that stands in for cuBLAS, cuBLASLt, cuSOLVER, cuRAND and cuSPARSE.
const CUBLAS: &str = "libcauseway_cublas.so";

/// The variable that names libraries to be loaded first.
const PRELOAD: &str = "LD_PRELOAD";

/// Whether there is a stand-in of this name.
pub fn has(name: &str) -> bool {
    NAMES.iter().any(|(stand_in, _)| *stand_in == name)
}

/// Puts the stand-ins of a folder of client libraries in front, if they are there.
pub fn hand_over(command: &mut Command, libraries: &Path) {
    let folder = libraries.join(FOLDER);
    let names: Vec<&str> =
        NAMES.iter().map(|(name, _)| *name).filter(|name| folder.join(name).exists()).collect();
    if names.is_empty() {
        return;
    }
    let set = command.get_envs().find(|(name, _)| *name == "LD_LIBRARY_PATH").and_then(|(_, value)| value);
    let search_path = joined(folder.as_os_str(), set.map(OsStr::to_owned));
    command.env("LD_LIBRARY_PATH", search_path);
    // Names without a folder: all lead to one file, which then is found under each of them.
    command.env(PRELOAD, joined(OsStr::new(&names.join(":")), std::env::var_os(PRELOAD)));
}

/// A list with another one behind it.
fn joined(first: &OsStr, rest: Option<OsString>) -> OsString {
    let mut list = first.to_owned();
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_come_first_only_where_they_are_there() {
        let libraries = tempfile::tempdir().unwrap();
        let value = |command: &Command, wanted: &str| {
            let found = command.get_envs().find(|(name, _)| *name == wanted);
            found.and_then(|(_, value)| value).map(|value| value.to_string_lossy().into_owned())
        };
        let mut command = Command::new("program");
        command.env("LD_LIBRARY_PATH", "/client");
        hand_over(&mut command, libraries.path());
        assert_eq!(value(&command, PRELOAD), None);
        let folder = libraries.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("libcublas.so.13"), "").unwrap();
        hand_over(&mut command, libraries.path());
        assert!(value(&command, PRELOAD).is_some_and(|names| names.starts_with("libcublas.so.13")));
        let path = format!("{}:/client", folder.display());
        assert_eq!(value(&command, "LD_LIBRARY_PATH"), Some(path));
    }
}
