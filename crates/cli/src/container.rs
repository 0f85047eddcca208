//! Containers: variables and files of this machine with which programs in one use servers' GPUs.
//!
//! The same for all who make containers: what `causeway cdi` writes for container engines, and what the device plugin
//! tells a kubelet.

use std::path::{Path, PathBuf};

use causeway_access::{Endpoint, Target};
use serde_json::{Value, json};

/// Where a container finds the program and the libraries.
const FOLDER: &str = "/opt/causeway";

/// A file or folder of this machine in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its path here.
    pub host: PathBuf,
    /// Its path in the container.
    pub container: PathBuf,
    /// Whether the container cannot write to it.
    pub is_read_only: bool,
}

impl Mount {
    /// A file or folder that the container can read.
    pub fn read_only(host: &Path, container: impl Into<PathBuf>) -> Self {
        Self { host: host.to_owned(), container: container.into(), is_read_only: true }
    }

    /// The mount as a description for container engines has it.
    pub fn to_cdi(&self) -> Value {
        let mode = if self.is_read_only { "ro" } else { "rw" };
        json!({ "hostPath": self.host, "containerPath": self.container, "options": [mode, "nosuid", "nodev", "bind"] })
    }
}

/// The folder of the libraries in a container.
fn library_folder() -> String {
    format!("{FOLDER}/lib/causeway")
}

/// The variables by which programs find the libraries, as `causeway run` sets them.
pub fn library_variables() -> [(&'static str, String); 2] {
    [("LD_LIBRARY_PATH", library_folder()), ("TRITON_LIBCUDA_PATH", library_folder())]
}

/// The program and the libraries. `files` are these: the name that programs ask for, and where each is.
pub fn library_mounts(program: &Path, files: &[(&str, PathBuf)]) -> Vec<Mount> {
    let folder = library_folder();
    let libraries = files.iter().map(|(name, path)| Mount::read_only(path, format!("{folder}/{name}")));
    [Mount::read_only(program, format!("{FOLDER}/bin/causeway"))].into_iter().chain(libraries).collect()
}

/// The folders of servers' Unix sockets: folders, so that a server that begins again is found.
pub fn socket_mounts<'a>(servers: impl IntoIterator<Item = &'a Target>) -> Vec<Mount> {
    let folder = |server: &'a Target| match &server.endpoint {
        Endpoint::Unix(path) => Path::new(path).parent().filter(|folder| folder.is_absolute()),
        Endpoint::Tcp { .. } | Endpoint::Vsock(_) => None,
    };
    let mount =
        |folder: &Path| Mount { host: folder.to_owned(), container: folder.to_owned(), is_read_only: false };
    let mut mounts: Vec<Mount> = servers.into_iter().filter_map(folder).map(mount).collect();
    mounts.dedup();
    mounts
}
