//! Kubelet: what a device plugin and a DRA driver have in common as its plugins, their sockets and their run.

use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::UnixListener;

/// Why a plugin does not serve the kubelet.
#[derive(Debug, Error)]
pub enum KubeletError {
    /// There is no kubelet, or its folder is another one.
    #[error("there is no folder {}: if the kubelet has another --root-dir, name its folder with \
        --kubelet-folder", .0.display())]
    NoFolder(PathBuf),
    /// The system gives no way to wait for sockets.
    #[error("cannot wait for connections: {0}")]
    Runtime(io::Error),
    /// A socket cannot be made.
    #[error("cannot create the socket {}: {cause}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

impl KubeletError {
    /// A socket at `path` cannot be made.
    pub(crate) fn socket(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Socket { path: path.to_owned(), cause }
    }
}

/// Runs `plugin` until `end`, which is called in a thread of its own, returns, or the plugin fails.
pub(crate) fn run_until(
    plugin: impl Future<Output = Result<(), KubeletError>> + Send + 'static,
    end: impl FnOnce() + Send + 'static,
) -> Result<(), KubeletError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(KubeletError::Runtime)?;
    let running = runtime.spawn(plugin);
    let handle = running.abort_handle();
    std::thread::spawn(move || {
        end();
        handle.abort();
    });
    match runtime.block_on(running) {
        Ok(outcome) => outcome,
        // It was ended.
        Err(_) => Ok(()),
    }
}

/// Listens at a path, where an earlier process may have left a socket.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, KubeletError> {
    let listener = match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    };
    listener.map_err(KubeletError::socket(path))
}
