//! vsock connections: byte streams between a virtual machine and its host, without a network.
//!
//! The hypervisor carries them, so that no address has to be set up in the guest. Who is at the other end is known by a
//! number alone (CID), which counts as an address of a network does: both ends prove that they hold the key, and all
//! data is encrypted.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use causeway_access::VsockAddress;
use causeway_sync::descriptors::above_stdio;
use rustix::ioctl::{Getter, Opcode, ioctl};
use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

/// The file of which the kernel's module for vsock makes a device.
const DEVICE: &str = "/dev/vsock";

/// `IOCTL_VM_SOCKETS_GET_LOCAL_CID` of `linux/vm_sockets.h`.
const GET_LOCAL_CID: Opcode = 0x7b9;

/// Why no connection over vsock could be made.
#[derive(Debug, Error)]
pub enum VsockError {
    /// The kernel has no sockets of this kind.
    #[error(
        "{0} cannot be reached: this machine's kernel has no vsock; load it, in a guest with `modprobe \
         vmw_vsock_virtio_transport`, on a host with `modprobe vhost_vsock`"
    )]
    Unsupported(VsockAddress),
    /// This machine cannot reach itself.
    #[error(
        "{0} cannot be reached: CID 1 is this machine itself, and its kernel has no loopback for vsock; load it with \
         `modprobe vsock_loopback`"
    )]
    NoLoopback(VsockAddress),
    /// This machine is no guest, or of no hypervisor with vsock.
    #[error(
        "{0} cannot be reached: CID 2 is the host of this virtual machine, and this machine has no device that leads to it; \
         give the guest one (QEMU: -device vhost-vsock-pci,guest-cid=3) and load vmw_vsock_virtio_transport in it"
    )]
    NoHost(VsockAddress),
    /// No virtual machine has this number.
    #[error(
        "{0} cannot be reached: no virtual machine of this host has CID {cid}, or its kernel has no vsock",
        cid = .0.cid
    )]
    NoGuest(VsockAddress),
    /// Nothing listens.
    #[error(
        "nothing listens at {0}: does `causeway serve --listen vsock:PORT` run there, and is the port right?"
    )]
    Refused(VsockAddress),
    /// No answer.
    #[error("{0} did not answer within {seconds:.0} s: is the machine up?", seconds = .1.as_secs_f64())]
    TimedOut(VsockAddress, Duration),
    /// Something else.
    #[error("{0} cannot be reached: {1}")]
    Other(VsockAddress, io::Error),
}

/// Connects to a port of a virtual machine or of its host.
///
/// # Errors
/// When no program listens there, or the machine cannot be reached in `timeout`.
pub fn dial(address: VsockAddress, timeout: Duration) -> Result<TcpStream, VsockError> {
    connect(address, timeout).map_err(|cause| explain(address, timeout, cause))
}

fn connect(address: VsockAddress, timeout: Duration) -> io::Result<TcpStream> {
    let socket = new_socket()?;
    socket.connect_timeout(&SockAddr::vsock(address.cid, address.port), timeout)?;
    // The standard library's type for TCP serves for any stream socket.
    Ok(TcpStream::from(OwnedFd::from(socket)))
}

/// A socket with its final number.
fn new_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::VSOCK, Type::STREAM, None)?;
    Ok(Socket::from(above_stdio(OwnedFd::from(socket))?))
}

fn explain(address: VsockAddress, timeout: Duration, cause: io::Error) -> VsockError {
    match (cause.raw_os_error(), cause.kind()) {
        // The peer's kernel resets connections to ports without a listener.
        (Some(libc::ECONNRESET | libc::ECONNREFUSED), _) => VsockError::Refused(address),
        (Some(libc::EAFNOSUPPORT), _) => VsockError::Unsupported(address),
        (Some(libc::ENODEV | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EADDRNOTAVAIL), _) => {
            match address.cid {
                VsockAddress::LOCAL => VsockError::NoLoopback(address),
                VsockAddress::HOST => VsockError::NoHost(address),
                _ => VsockError::NoGuest(address),
            }
        }
        (Some(libc::ETIMEDOUT), _) | (_, io::ErrorKind::TimedOut) if address.cid > VsockAddress::HOST => {
            VsockError::NoGuest(address)
        }
        (Some(libc::ETIMEDOUT), _) | (_, io::ErrorKind::TimedOut) => VsockError::TimedOut(address, timeout),
        _ => VsockError::Other(address, cause),
    }
}

/// A socket at which callers over vsock are accepted.
#[derive(Debug)]
pub struct VsockListener {
    socket: Socket,
}

impl VsockListener {
    /// Listens, at any of this machine's numbers for [`VsockAddress::ANY`].
    ///
    /// # Errors
    /// What the system says; [`why_no_listener`] explains it.
    pub fn bind(address: VsockAddress) -> io::Result<Self> {
        let socket = new_socket()?;
        socket.bind(&SockAddr::vsock(address.cid, address.port))?;
        socket.listen(128)?;
        Ok(Self { socket })
    }

    /// Whether accepting returns at once where there is no caller.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    /// The next caller, and where it comes from.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept(&self) -> io::Result<(TcpStream, VsockAddress)> {
        let (socket, peer) = self.socket.accept()?;
        let socket = above_stdio(OwnedFd::from(socket))?;
        let (cid, port) =
            peer.as_vsock_address().ok_or_else(|| io::Error::other("the caller is at no vsock"))?;
        Ok((TcpStream::from(socket), VsockAddress { cid, port }))
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// What the system says.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(OwnedFd::from)
    }
}

impl AsFd for VsockListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for VsockListener {
    fn from(socket: OwnedFd) -> Self {
        Self { socket: socket.into() }
    }
}

/// Why this machine cannot listen at a vsock, and what to do.
pub fn why_no_listener(address: VsockAddress, cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => {
            "this machine's kernel has no vsock; load it, on a host with `modprobe vhost_vsock`, in a guest with `modprobe \
             vmw_vsock_virtio_transport`"
                .to_owned()
        }
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) if address.cid == VsockAddress::LOCAL => {
            "CID 1 is for programs of this machine, and its kernel has no loopback for vsock; load it with `modprobe \
             vsock_loopback`"
                .to_owned()
        }
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => format!(
            "this machine does not have CID {}; write vsock:{} for any that it has",
            address.cid, address.port
        ),
        Some(libc::EADDRINUSE) => {
            "another program listens there already; is a server running? Choose another port with --listen vsock:PORT".to_owned()
        }
        Some(libc::EACCES) => "ports below 1024 need root; choose a higher one".to_owned(),
        _ => cause.to_string(),
    }
}

/// This machine's number: 2 for a host, 3 or more for a guest. None where the kernel has no transport, or does not say.
pub fn local_cid() -> Option<u32> {
    read_local_cid().ok().filter(|cid| *cid != VsockAddress::ANY)
}

fn read_local_cid() -> io::Result<u32> {
    let device = File::open(DEVICE)?;
    // SAFETY: this request of the module's device writes one `unsigned int`, which `Getter` has room for.
    let cid = unsafe { ioctl(&device, Getter::<GET_LOCAL_CID, u32>::new()) };
    Ok(cid?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transmit::{io_vector, receive_vectored};
    use std::io::{Read as _, Write as _};

    const SECOND: Duration = Duration::from_secs(1);

    /// More than the kernel's buffer of a vsock.
    const REPLY_BYTES: usize = 4 << 20;

    fn message(cid: u32, error: i32) -> String {
        explain(VsockAddress { cid, port: 7 }, SECOND, io::Error::from_raw_os_error(error)).to_string()
    }

    #[test]
    fn errors_say_what_is_missing() {
        assert!(message(2, libc::EAFNOSUPPORT).contains("modprobe vmw_vsock_virtio_transport"));
        assert!(message(1, libc::ENODEV).contains("modprobe vsock_loopback"));
        assert!(message(2, libc::ENODEV).contains("vhost-vsock-pci"));
        assert!(message(9, libc::ENODEV).contains("no virtual machine of this host has CID 9"));
        assert!(message(9, libc::ETIMEDOUT).contains("no virtual machine of this host has CID 9"));
        assert!(message(2, libc::ETIMEDOUT).contains("did not answer"));
        assert!(message(2, libc::ECONNRESET).contains("nothing listens at vsock:2:7"));
        let why =
            |cid, error| why_no_listener(VsockAddress { cid, port: 7 }, &io::Error::from_raw_os_error(error));
        assert!(why(1, libc::EADDRNOTAVAIL).contains("vsock_loopback"));
        assert!(why(5, libc::EADDRNOTAVAIL).contains("does not have CID 5; write vsock:7"));
        assert!(why(VsockAddress::ANY, libc::EAFNOSUPPORT).contains("no vsock"));
    }

    /// Over this machine's own loopback, where its kernel has that.
    #[test]
    fn bytes_travel_between_a_listener_and_a_caller() {
        let address = VsockAddress { cid: VsockAddress::LOCAL, port: 100_000 + std::process::id() };
        let listener = match VsockListener::bind(address) {
            Ok(listener) => listener,
            Err(error) => {
                return eprintln!(
                    "SKIP: no loopback for vsock on this machine: {}",
                    why_no_listener(address, &error)
                );
            }
        };
        let nobody = VsockAddress { port: address.port + 1_000_000, ..address };
        assert!(dial(nobody, SECOND).unwrap_err().to_string().contains("nothing listens"));
        let caller = std::thread::spawn(move || {
            let mut stream = dial(address, 10 * SECOND).unwrap();
            stream.set_read_timeout(Some(10 * SECOND)).unwrap();
            stream.write_all(b"word").unwrap();
            let mut reply = vec![0; REPLY_BYTES];
            let mut parts = [io_vector(reply.as_mut_ptr(), REPLY_BYTES)];
            // SAFETY: the part is the vector's memory.
            unsafe { receive_vectored(stream.as_fd(), &mut parts) }.unwrap();
            reply
        });
        let (mut stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.cid, VsockAddress::LOCAL);
        let mut word = [0; 4];
        stream.read_exact(&mut word).unwrap();
        stream.write_all(&word.repeat(REPLY_BYTES / 4)).unwrap();
        assert!(caller.join().unwrap() == b"word".repeat(REPLY_BYTES / 4));
    }
}
