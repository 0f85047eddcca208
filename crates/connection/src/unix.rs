//! Unix sockets whose path is longer than `sockaddr_un` allows.
//!
//! Through its folder, which this process has open (`/proc/self/fd/N/NAME`). Home folders and job folders of clusters
//! are longer than the 107 bytes of an address.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use causeway_sync::descriptors::above_stdio;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Bytes of a path that an address has room for, with the zero at its end.
const MAX_PATH_LEN: usize = 108;

/// Connects to a socket at a path.
///
/// # Errors
/// What the system says.
pub fn connect_at(path: &Path) -> io::Result<UnixStream> {
    let (short, _folder) = shortened(path)?;
    connect(&SocketAddrUnix::new(&short)?)
}

/// Connects to a socket with an abstract name.
///
/// # Errors
/// What the system says.
pub fn connect_to_name(name: &str) -> io::Result<UnixStream> {
    connect(&SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

fn connect(address: &SocketAddrUnix) -> io::Result<UnixStream> {
    // It gets its final number before it is connected: until then nothing that is written to it goes anywhere.
    let socket =
        above_stdio(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)?;
    loop {
        match rustix::net::connect(&socket, address) {
            Err(rustix::io::Errno::INTR) => {}
            connected => return Ok(connected.map(|()| socket.into())?),
        }
    }
}

/// Listens at a socket at a path.
///
/// # Errors
/// What the system says.
pub fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let (short, _folder) = shortened(path)?;
    UnixListener::bind(short).and_then(above_stdio)
}

/// A name of the same file that is short enough, which is good for as long as the folder is open.
fn shortened(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().len() < MAX_PATH_LEN {
        return Ok((path.to_owned(), None));
    }
    // A folder that may be searched need not be readable.
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let folder = File::options().read(true).custom_flags(flags).open(folder)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name), Some(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn sockets_at_long_paths_are_made_and_reached() {
        let folder = tempfile::tempdir().unwrap();
        // The socket's own name has to fit behind that of its folder's descriptor.
        for length in [1, 40, 80] {
            let path = folder.path().join("long".repeat(50)).join("x".repeat(length));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let listener = listen_at(&path).unwrap();
            connect_at(&path).unwrap().write_all(&[length as u8]).unwrap();
            let mut byte = [0];
            listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), length);
        }
        let nowhere = folder.path().join("no".repeat(100)).join("socket");
        assert_eq!(connect_at(&nowhere).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
