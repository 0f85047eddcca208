//! Where does a caller come from, as far as the kernel tells?

use core::fmt;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

/// Where a caller comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From a network address.
    Network(SocketAddr),
    /// From this host, at a Unix socket.
    Host {
        /// The process that connected; 0 where it is of another namespace.
        process: i32,
        /// Its user.
        user: u32,
        /// Its first group.
        group: u32,
    },
}

impl Origin {
    /// That of whoever is at the other end of a Unix socket. One of whom the kernel says nothing is nobody.
    pub fn of_local(stream: &UnixStream) -> Self {
        match credentials(stream) {
            Some(peer) => Self::Host { process: peer.pid, user: peer.uid, group: peer.gid },
            None => Self::Host { process: 0, user: u32::MAX, group: u32::MAX },
        }
    }
}

/// What the kernel says of the process at the other end. Not by rustix, for which a process has a number other
/// than 0: it takes one of another namespace of processes, a container's, for an error.
fn credentials(stream: &UnixStream) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes into the structure, which has them.
    let status = unsafe {
        let peer = core::ptr::from_mut(&mut peer).cast();
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &mut bytes)
    };
    (status == 0 && bytes as usize == size_of_val(&peer)).then_some(peer)
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::Host { process, user, .. } => write!(f, "process {process} of user {user} on this host"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_this_host_is_known_by_its_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        let origin = Origin::of_local(&one);
        let (process, user) = (std::process::id() as i32, rustix::process::geteuid().as_raw());
        assert!(
            matches!(origin, Origin::Host { process: told, user: owner, .. } if told == process && owner == user)
        );
        assert_eq!(origin.to_string(), format!("process {process} of user {user} on this host"));
    }
}
