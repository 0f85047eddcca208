//! Unix sockets of a process: files in folders that containers may share, and an abstract name, which those of its
//! network namespace reach.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use causeway_sync::descriptors::above_stdio;

/// What names of files begin with.
const PREFIX: &str = "causeway-nccl-";

/// Files of ended processes that are taken away at a time.
const MAX_SWEPT: usize = 64;

fn name(process: u64) -> String {
    format!("{PREFIX}{process:016x}")
}

/// Sockets at which a process listens. Their files go with this.
pub(super) struct UnixSockets {
    pub(super) listeners: Vec<UnixListener>,
    files: Vec<PathBuf>,
}

impl UnixSockets {
    /// In each folder where one can be made, and in the network namespace.
    pub(super) fn listen(folders: &[PathBuf], process: u64) -> Self {
        let (mut listeners, mut files) = (Vec::new(), Vec::new());
        for folder in folders {
            sweep(folder);
            let path = folder.join(name(process));
            if let Ok(listener) = UnixListener::bind(&path).and_then(above_stdio) {
                listeners.push(listener);
                files.push(path);
            }
        }
        let address = SocketAddr::from_abstract_name(name(process));
        if let Ok(listener) =
            address.and_then(|address| UnixListener::bind_addr(&address)).and_then(above_stdio)
        {
            listeners.push(listener);
        }
        Self { listeners, files }
    }
}

impl Drop for UnixSockets {
    fn drop(&mut self) {
        for file in &self.files {
            // It may be gone with its folder.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Connects to each socket of a process that can be reached from here, one after the other.
pub(super) fn connect_each(folders: &[PathBuf], process: u64) -> impl Iterator<Item = UnixStream> {
    let paths = folders.iter().map(move |folder| folder.join(name(process)));
    let in_folders = paths.filter_map(|path| UnixStream::connect(path).and_then(above_stdio).ok());
    let in_namespace = core::iter::once_with(move || {
        let address = SocketAddr::from_abstract_name(name(process)).ok()?;
        UnixStream::connect_addr(&address).and_then(above_stdio).ok()
    });
    in_folders.chain(in_namespace.flatten())
}

/// Takes away what processes of this user have left that did not end by themselves.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let user = rustix::process::geteuid().as_raw();
    let ours = entries.flatten().filter(|entry| {
        entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|metadata| metadata.uid() == user)
    });
    for entry in ours.take(MAX_SWEPT) {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if UnixStream::connect(entry.path()).and_then(above_stdio).is_err_and(refused) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
