//! Abstract Unix sockets of this host: connecting by name, and proof of the listener's identity.
//!
//! A process that connects lends its rights to the process that chose the name: a link could lead to any socket that
//! this process may connect to, and the server that is meant may have another key.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use causeway_access::Key;
use causeway_access::target::{is_socket_proof, key_id, random_bytes};
use causeway_sync::descriptors::above_stdio;
use causeway_wire::handshake::{FOR_A_CLIENT, FOR_A_NAMED_CLIENT, PREFACE_SIZE, PROOF_SIZE, PrefaceResponse};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects to a socket by the name that a peer has told: a path on which no link is followed, or `@` and an
/// abstract name.
///
/// # Errors
/// When there is no such socket, when the path leads over a link, when nobody listens, or when nobody has taken
/// the connection after `timeout`.
pub fn connect_named(name: &str, timeout: Duration) -> io::Result<UnixStream> {
    if let Some(name) = name.strip_prefix('@') {
        return connect_within(&SocketAddrUnix::new_abstract_name(name.as_bytes())?, timeout);
    }
    let file = open_without_links(name)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no socket, or a link to one"));
    }
    // By the descriptor, so that what has been looked at is what is connected to.
    connect_within(&SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?, timeout)
}

/// Connects, where the standard library would wait for ever in front of a full queue.
fn connect_within(address: &SocketAddrUnix, timeout: Duration) -> io::Result<UnixStream> {
    let socket =
        above_stdio(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    connect(&socket, address)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

fn open_without_links(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and where a filter of system calls does not know it: the last part counts most.
        Err(Errno::NOSYS | Errno::PERM) => Ok(openat(CWD, path, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// What the kernel says of the process at the other end of a Unix socket: of the one that listened, for whoever
/// has connected. Not by rustix, for which a process has a number other than 0: it takes one of another
/// namespace of processes, a container's, for an error.
pub fn peer_credentials(stream: &UnixStream) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into the structure, which has them.
    let status = unsafe {
        let peer = core::ptr::from_mut(&mut peer).cast();
        libc::getsockopt(stream.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &mut bytes)
    };
    (status == 0 && bytes as usize == size_of_val(&peer)).then_some(peer)
}

/// Has a server that listens at the other end prove that it holds this key, or none if there is none here. From
/// then on it takes the connection for one of a stranger, whoever has made it.
///
/// # Errors
/// When it is no server, or one with another key, or takes longer than `timeout`.
pub fn request_proof(stream: &UnixStream, key: Option<&Key>, timeout: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let nonce = random_bytes::<PROOF_SIZE>();
    let mut end = stream;
    let first = match key.filter(|key| key.client().is_some()) {
        Some(own) => [FOR_A_NAMED_CLIENT.as_slice(), &nonce, &key_id(own).0].concat(),
        None => [FOR_A_CLIENT.as_slice(), &nonce].concat(),
    };
    end.write_all(&first)?;
    let (mut response, mut proof) = ([0; PREFACE_SIZE], [0; PROOF_SIZE]);
    end.read_exact(&mut response)?;
    let continues = matches!(PrefaceResponse::parse(&response), Ok(PrefaceResponse::Continue));
    if continues {
        end.read_exact(&mut proof)?;
    }
    if !continues || !is_socket_proof(key, &nonce, &proof) {
        let text = "who listens there does not prove that it holds the same key";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_access::target::socket_proof;
    use std::os::unix::net::UnixListener;

    #[test]
    fn links_and_files_are_not_taken_for_sockets() {
        let second = Duration::from_secs(1);
        let folder = std::env::temp_dir().canonicalize().unwrap();
        let folder = folder.join(format!("causeway-host-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink(path("socket"), path("link")).unwrap();
        std::os::unix::fs::symlink(path(""), path("folder")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        let stream = connect_named(&path("socket"), second).unwrap();
        assert_eq!(peer_credentials(&stream).unwrap().uid, rustix::process::geteuid().as_raw());
        for name in ["link", "folder/socket", "file", "nothing"] {
            assert!(connect_named(&path(name), second).is_err(), "{name}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn only_a_server_with_the_same_key_is_taken_for_one() {
        let (key, second) = (Key::generate(), Duration::from_secs(20));
        let asked_of = |theirs: Option<Key>, ours: Option<&Key>| {
            let (near, mut far) = UnixStream::pair().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let (mut preface, mut nonce) = ([0; PREFACE_SIZE], [0; PROOF_SIZE]);
                    far.read_exact(&mut preface).unwrap();
                    far.read_exact(&mut nonce).unwrap();
                    assert_eq!(preface, FOR_A_CLIENT);
                    let proof = socket_proof(theirs.as_ref(), &nonce);
                    far.write_all(&[PrefaceResponse::Continue.to_bytes().as_slice(), &proof].concat())
                        .unwrap();
                });
                request_proof(&near, ours, second)
            })
        };
        assert!(asked_of(Some(key.clone()), Some(&key)).is_ok() && asked_of(None, None).is_ok());
        assert!(asked_of(Some(Key::generate()), Some(&key)).is_err());
        assert!(asked_of(None, Some(&key)).is_err() && asked_of(Some(key), None).is_err());
    }
}
