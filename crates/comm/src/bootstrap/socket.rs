//! A connection between two ranks.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_sync::descriptors::above_stdio;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;

use super::address::SocketAddress;
use super::stream::Stream;
use crate::board::open_folder;
use causeway_sync::fork::CloseOnFork;

/// The longest path of a socket, without the zero at its end.
const MAX_SOCKET_PATH: usize = 107;

/// How long a receiver looks again and again before it sleeps. The answer to a question about a transfer is
/// there within some microseconds, and to be woken takes as long as several answers, so that a sleep for each
/// would cost more than a copy of a MiB. The processor is offered to others meanwhile.
const EAGER: Duration = Duration::from_micros(50);

/// Bytes that go with a descriptor.
pub const MESSAGE_BYTES: usize = 16;

/// A connection to another rank, both ends of which know who the other is.
#[derive(Debug)]
pub struct Connection {
    /// In front of the stream, so that it goes first.
    pub(super) _close_on_fork: CloseOnFork,
    pub(super) stream: Stream,
    /// Where it was made.
    pub address: SocketAddress,
    /// The rank at the other end.
    pub peer: u32,
    /// The peer's process number.
    pub process: u64,
    /// The process id by which the peer is seen from here, if it is.
    pub seen: Option<u32>,
    /// The process id by which this process is seen from there, if it is.
    pub sees: Option<u32>,
}

impl Connection {
    /// Sends a message of [`MESSAGE_BYTES`], and a copy of a descriptor with it.
    ///
    /// # Errors
    /// When the peer has gone, or does not read.
    pub fn send(&self, message: &[u8; MESSAGE_BYTES], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let sent = loop {
            match sendmsg(&self.stream, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => break sent?,
            }
        };
        (&self.stream).write_all(&message[sent..])
    }

    /// Receives a message and the descriptor that came with it, if one did; `None` when the peer has gone.
    /// Descriptors beyond one message's are closed.
    ///
    /// # Errors
    /// When nothing comes in time (see [`set_timeout`](Self::set_timeout)), or the peer ends in the middle
    /// of a message.
    pub fn receive(&self) -> io::Result<Option<([u8; MESSAGE_BYTES], Option<OwnedFd>)>> {
        let mut message = [0; MESSAGE_BYTES];
        let (mut filled, mut descriptor) = (0, None);
        let start = Instant::now();
        let mut waiting = RecvFlags::DONTWAIT;
        while filled < MESSAGE_BYTES {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut message[filled..])];
            let flags = RecvFlags::CMSG_CLOEXEC | waiting;
            let received = match recvmsg(self.stream.as_fd(), &mut parts, &mut ancillary, flags) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) if waiting == RecvFlags::DONTWAIT => {
                    if start.elapsed() < EAGER {
                        std::thread::yield_now();
                    } else {
                        waiting = RecvFlags::empty();
                    }
                    continue;
                }
                Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE) => return Ok(None),
                received => received?,
            };
            for part in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = part {
                    descriptor = descriptors.next().or(descriptor);
                }
            }
            match received.bytes {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(Some((message, descriptor.map(above_stdio).transpose()?)))
    }

    /// For how long [`receive`](Self::receive) waits at most; for ever with `None`.
    ///
    /// # Errors
    /// When the time is zero.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(timeout)?;
        // A Unix socket's peer is here, and reads what it is to read.
        if self.is_network() { self.stream.set_write_timeout(timeout) } else { Ok(()) }
    }

    /// Whether the connection goes over a network, which carries no descriptors.
    pub fn is_network(&self) -> bool {
        self.stream.is_network()
    }

    /// The address of this end, where the connection goes over a network.
    pub(crate) fn local_address(&self) -> Option<IpAddr> {
        self.stream.addresses().map(|[local, _]| local)
    }

    /// The address of the peer, where the connection goes over a network.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.stream.addresses().map(|[_, peer]| peer)
    }

    /// The socket, to be waited for together with something else.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Sends bytes that belong to the message before them.
    ///
    /// # Errors
    /// When the peer has gone, or does not read in time.
    pub fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)
    }

    /// Receives bytes that belong to the message before them.
    ///
    /// # Errors
    /// When they do not come in time, or the peer ends before.
    pub fn receive_bytes(&self, bytes: &mut [u8]) -> io::Result<()> {
        (&self.stream).read_exact(bytes)
    }

    /// Ends the connection in both directions, for whoever waits at either end.
    pub fn shut(&self) {
        self.stream.shut();
    }

    /// Whether the peer has ended, or closed the connection. Does not wait.
    pub fn has_ended(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut byte = [0_u8; 1];
        match rustix::net::recv(&self.stream, &mut byte[..], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }

    /// Whether this process may take descriptors out of the peer's by itself (`pidfd_getfd`), which also says
    /// whether it may read its memory (`process_vm_readv`): the kernel asks the same of both.
    ///
    /// # Errors
    /// Why not, as the system says it.
    pub fn check_process_access(&self) -> io::Result<()> {
        let no_process = || io::Error::from_raw_os_error(libc::ESRCH);
        let pid = self.seen.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        let process =
            rustix::process::pidfd_open(pid.ok_or_else(no_process)?, rustix::process::PidfdFlags::empty())?;
        // SAFETY: numbers alone. A descriptor of this number is open nowhere, so that there is nothing to
        // close.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), libc::c_int::MAX, 0) };
        debug_assert!(taken < 0, "no process has that many descriptors");
        match io::Error::last_os_error() {
            // What was missing is the descriptor alone.
            error if error.raw_os_error() == Some(libc::EBADF) => Ok(()),
            error => Err(error),
        }
    }
}

/// Who is at the other end of a socket, as the kernel says it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials {
    user: u32,
    /// The process, where this PID namespace has a number for it.
    pub(super) process: Option<u32>,
}

impl Credentials {
    /// Over a network the proof alone counts.
    pub(super) fn of(stream: &Stream) -> io::Result<Self> {
        let Stream::Unix(stream) = stream else {
            return Ok(Self { user: geteuid().as_raw(), process: None });
        };
        // rustix has a type for this that cannot say that the process is not seen.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes of the structure, all of whose values are numbers.
        let status = unsafe {
            let value = (&raw mut found).cast();
            libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, &raw mut length)
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { user: found.uid, process: u32::try_from(found.pid).ok().filter(|pid| *pid != 0) })
    }

    /// The same, if it is a process of this user.
    ///
    /// # Errors
    /// The other user's number.
    pub(super) fn of_this_user(self) -> Result<Self, u32> {
        if self.user == geteuid().as_raw() { Ok(self) } else { Err(self.user) }
    }
}

/// The path by which a socket in a folder is named: through the open folder where the name would be too long.
fn path(folder: &Path, name: &str) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let path = folder.join(name);
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok((path, None));
    }
    let opened = open_folder(folder).map_err(io::Error::other)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(name), Some(opened)))
}

/// Connects to a socket.
pub(super) fn connect(address: &SocketAddress, name: &str) -> io::Result<UnixStream> {
    match address {
        SocketAddress::Folder(folder) => {
            let (path, _open) = path(folder, name)?;
            UnixStream::connect(path).and_then(above_stdio)
        }
        SocketAddress::Abstract => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).and_then(above_stdio)
        }
        SocketAddress::Network(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Listens at a socket; one of the same name that nobody listens at any more is taken away.
pub(super) fn listen(address: &SocketAddress, name: &str) -> io::Result<UnixListener> {
    let listener = match address {
        SocketAddress::Folder(folder) => {
            let (path, _open) = path(folder, name)?;
            let bind = || UnixListener::bind(&path).and_then(above_stdio);
            match bind() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && connect(address, name).is_err() => {
                    std::fs::remove_file(&path)?;
                    bind()?
                }
                bound => bound?,
            }
        }
        SocketAddress::Abstract => {
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?).and_then(above_stdio)?
        }
        SocketAddress::Network(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes a socket's name away.
pub(super) fn forget(address: &SocketAddress, name: &str) {
    if let SocketAddress::Folder(folder) = address
        && let Ok((path, _open)) = path(folder, name)
    {
        // It may be gone with its folder.
        let _ = std::fs::remove_file(path);
    }
}

/// Reads what there is, without waiting.
pub(super) fn read_some(mut stream: &Stream, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match stream.read(bytes) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}
