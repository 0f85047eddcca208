//! Where the built things are, and that they are built.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program `causeway`: the one that `CAUSEWAY_BIN` names, else the one that is built next to the running
/// executable.
pub fn causeway() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("CAUSEWAY_BIN") {
        Some(path) => path.into(),
        None => profile_folder().join("causeway"),
    })
}

/// The client library, `libcuda.so`, next to [`causeway`].
pub fn client_library() -> PathBuf {
    causeway().with_file_name("libcuda.so")
}

/// The program `fabric-perf`, next to [`causeway`].
pub fn fabric_perf() -> PathBuf {
    causeway().with_file_name("fabric-perf")
}

/// The library that stands in for NVML, next to [`causeway`].
pub fn nvml_library() -> PathBuf {
    causeway().with_file_name("libcauseway_nvml.so")
}

/// The library of stubs, next to [`causeway`].
pub fn stubs_library() -> PathBuf {
    causeway().with_file_name("libcauseway_stubs.so")
}

/// The network plugin for NCCL, next to [`causeway`].
pub fn nccl_plugin() -> PathBuf {
    causeway().with_file_name("libcauseway_nccl_net.so")
}

/// A folder in which the client libraries have the names that programs look for.
pub fn client_library_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            for (library, name) in [
                (client_library(), "libcuda.so.1"),
                (nvml_library(), "libnvidia-ml.so.1"),
                (stubs_library(), "libnvcuvid.so.1"),
                (stubs_library(), "libnvidia-encode.so.1"),
                (stubs_library(), "libnvidia-opticalflow.so.1"),
                (stubs_library(), "libnvoptix.so.1"),
            ] {
                std::os::unix::fs::symlink(library, folder.path().join(name))
                    .expect("a link can be made in a new folder");
            }
            folder
        })
        .path()
}

/// The root of the source tree.
pub fn source_tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is in a folder of the workspace")
}

/// The folder with the compiled CUDA programs: `CAUSEWAY_PROGRAMS`, else `build/cuda` of the source tree.
pub fn programs_folder() -> PathBuf {
    match std::env::var_os("CAUSEWAY_PROGRAMS") {
        Some(folder) => folder.into(),
        None => source_tree().join("build/cuda"),
    }
}

/// A compiled CUDA program, by its file's name.
///
/// # Panics
/// When it has not been compiled.
pub fn cuda_program(name: &str) -> PathBuf {
    let path = programs_folder().join(name);
    assert!(path.is_file(), "{} has not been compiled: run `make programs`", path.display());
    path
}

/// The folder that the running executable's profile is built into, with `causeway`, the client library, the
/// model test and `fabric-perf` built.
///
/// `cargo test` builds neither for a package that only starts them, so they are built here; that costs a
/// fraction of a second when they are up to date.
fn profile_folder() -> PathBuf {
    let executable = std::env::current_exe().expect("the system knows the running executable");
    let mut folder = executable.parent().expect("an executable is in a folder");
    if folder.ends_with("deps") {
        folder = folder.parent().expect("cargo's folder `deps` is in the profile's folder");
    }
    let target = folder.parent().expect("a profile's folder is in the target folder");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // What cargo tells a test of its package would be news to build scripts that ask for it (ring's does),
    // and half of the workspace would be built anew, here and after the test again.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            build.env_remove(name);
        }
    }
    let status = build
        .args([
            "build",
            "--quiet",
            "-p",
            "causeway-cli",
            "-p",
            "causeway-client",
            "-p",
            "causeway-comm",
            "-p",
            "causeway-cublas",
            "-p",
            "causeway-nccl-net",
            "-p",
            "causeway-nvml",
            "-p",
            "causeway-stubs",
            "-p",
            "causeway-model",
            "-p",
            "causeway-fabric-perf",
            "--profile",
            profile,
        ])
        .current_dir(source_tree())
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("cargo can be started; without it, set CAUSEWAY_BIN");
    assert!(
        status.success(),
        "`causeway`, its client libraries, the model test or `fabric-perf` could not be built"
    );
    folder.to_owned()
}
