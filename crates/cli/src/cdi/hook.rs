//! `causeway cdi hook`: where a container runs, written into it by its engine when it is made.
//!
//! A hook of the OCI runtime (`createRuntime`): it gets the container's state, and finds in that the process that the
//! container's program will be, and the processors that the container was made with. Ranks of MPI jobs read the tuple:
//! <https://github.com/opencontainers/runtime-spec/blob/main/config.md#posix-platform-hooks>.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causeway_comm::identity::{CoresError, container_placement};
use clap::Args;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use serde_json::Value;
use thiserror::Error;

/// The file in the container.
pub const PLACEMENT_FILE: &str = "/opt/causeway/container";

/// The folders that it is in, and its name.
const FOLDERS: [&str; 2] = ["opt", "causeway"];
const NAME: &str = "container";

/// What is read of a state, or a configuration.
const MAX_BYTES: u64 = 16 << 20;

/// Write a container's cores and sockets into it, as a hook of its runtime.
#[derive(Debug, Args)]
pub struct Arguments {}

/// Why a container does not get its tuple.
#[derive(Debug, Error)]
enum HookError {
    /// There is no state, or none as it should be.
    #[error("cannot use the container state from the runtime: {0}")]
    State(io::Error),
    /// The configuration.
    #[error("cannot use the container's configuration {}: {cause}", path.display())]
    Configuration {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        cause: io::Error,
    },
    /// Its processors.
    #[error("the container's configuration: {0}")]
    Cores(#[from] CoresError),
    /// The file cannot be written.
    #[error("cannot write {PLACEMENT_FILE} in the container: {0}")]
    Write(io::Error),
}

/// Does what the runtime asks for. A container starts without its tuple, too: then ranks know what the kernel says.
pub fn run(state: impl Read) -> ExitCode {
    if let Err(error) = write_placement(state) {
        // The runtime passes it on; without a standard error it cannot be said.
        let _ = writeln!(io::stderr(), "causeway: warning: {error}");
    }
    ExitCode::SUCCESS
}

fn write_placement(state: impl Read) -> Result<(), HookError> {
    let state = parse(state).map_err(HookError::State)?;
    let process = state["pid"].as_u64().and_then(|number| u32::try_from(number).ok());
    let (Some(process), Some(bundle)) = (process, state["bundle"].as_str()) else {
        return Err(HookError::State(io::Error::other("it has no pid or no bundle")));
    };
    let path = Path::new(bundle).join("config.json");
    let failed = |cause| HookError::Configuration { path: path.clone(), cause };
    let configuration = File::open(&path).and_then(parse).map_err(failed)?;
    let root = configuration["root"]["path"].as_str();
    let root = root.ok_or_else(|| failed(io::Error::other("it has no root")))?;
    let processors = configuration["linux"]["resources"]["cpu"]["cpus"].as_str();
    let processors = processors.filter(|list| !list.trim().is_empty());
    match container_placement(Path::new("/"), Some(process), processors)? {
        Some(placement) => {
            write(&Path::new(bundle).join(root), &format!("{placement}\n")).map_err(HookError::Write)
        }
        None => Ok(()),
    }
}

fn parse(file: impl Read) -> io::Result<Value> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Writes the file below a container's root. An image may have links there that lead to files of the host: none is
/// followed, and a file that is there is replaced and not written to.
fn write(root: &Path, text: &str) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder: OwnedFd = openat(CWD, root, flags, Mode::empty())?;
    for name in FOLDERS {
        match mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    match unlinkat(&folder, NAME, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&folder, NAME, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    use causeway_comm::Identity;
    use causeway_comm::identity::ContainerPlacement;
    use serde_json::json;

    /// A bundle, as engines make it for runtimes.
    fn bundle(cpus: Option<&str>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("rootfs")).unwrap();
        let cpu = cpus.map_or(json!({}), |cpus| json!({ "cpus": cpus }));
        let configuration = json!({ "root": { "path": "rootfs" }, "linux": { "resources": { "cpu": cpu } } });
        fs::write(folder.path().join("config.json"), configuration.to_string()).unwrap();
        folder
    }

    fn state(bundle: &Path) -> Vec<u8> {
        let pid = std::process::id();
        json!({ "ociVersion": "1.0.2", "id": "a", "status": "created", "pid": pid, "bundle": bundle })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn a_container_gets_the_processors_that_it_was_made_with() {
        for cpus in [Some("0"), None] {
            let bundle = bundle(cpus);
            // Of a container that was there before.
            for _ in 0..2 {
                write_placement(&*state(bundle.path())).unwrap();
            }
            let path = bundle.path().join("rootfs").join(&PLACEMENT_FILE[1..]);
            let placement = ContainerPlacement::named(path.to_str().unwrap()).unwrap().unwrap();
            // This process is in the namespaces of the one that the state names.
            let identity = Identity::of_this_process(Some(&placement)).unwrap();
            assert_eq!(identity.container, Some(placement.container));
            assert!(
                cpus.is_none_or(|cpus| placement.to_string().contains(&format!(", {cpus}, "))),
                "{placement}"
            );
        }
    }

    #[test]
    fn links_of_an_image_are_not_followed() {
        let (bundle, elsewhere) = (bundle(Some("0")), tempfile::tempdir().unwrap());
        let root = bundle.path().join("rootfs");
        let link = |to: &Path, at: &str| std::os::unix::fs::symlink(to, root.join(at)).unwrap();
        link(elsewhere.path(), "opt");
        assert!(matches!(write_placement(&*state(bundle.path())), Err(HookError::Write(_))));
        fs::remove_file(root.join("opt")).unwrap();
        fs::create_dir_all(root.join("opt/causeway")).unwrap();
        let victim = elsewhere.path().join("victim");
        fs::write(&victim, "as it was").unwrap();
        link(&victim, "opt/causeway/container");
        write_placement(&*state(bundle.path())).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
        assert!(fs::read_to_string(root.join("opt/causeway/container")).unwrap().starts_with('['));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(write_placement(&b"{"[..]), Err(HookError::State(_))));
        let missing = write_placement(&*state(empty.path())).unwrap_err();
        assert!(missing.to_string().contains("config.json"), "{missing}");
        let cores = write_placement(&*state(bundle(Some("3-0")).path())).unwrap_err();
        assert!(cores.to_string().contains("3-0"), "{cores}");
    }
}
