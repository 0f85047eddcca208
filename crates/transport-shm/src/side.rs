//! Side channel (Unix socket): descriptor passing, and detection of disconnects.
//!
//! The Unix socket over which the memory came stays open. What still goes over it are messages of a few
//! bytes, each with a descriptor as a rule; and when it ends, the peer has gone, however it ended.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::violation::Violation;
use causeway_sync::descriptors::above_stdio;
use causeway_transport::LinkError;

/// The first four bytes of every message.
const MAGIC: u32 = u32::from_le_bytes(*b"CwSd");

/// Bytes of a message: magic, kind, number, size.
const MESSAGE: usize = 24;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Here is the memory of the session.
    Memory,
    /// The memory is mapped, and the session goes on there.
    Joined,
    /// Here is the descriptor with this number.
    Descriptor,
    /// Here is memory of a device, which only a device's driver can make something of, or a file.
    Allocation,
}

/// A message beside the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: MessageKind,
    /// The number by which both ends know a descriptor.
    pub(crate) number: u64,
    /// The size of what the descriptor stands for, in bytes.
    pub(crate) bytes: u64,
}

impl Message {
    pub(super) fn encode(&self) -> [u8; MESSAGE] {
        let kind: u32 = match self.kind {
            MessageKind::Memory => 1,
            MessageKind::Joined => 2,
            MessageKind::Descriptor => 3,
            MessageKind::Allocation => 4,
        };
        let mut bytes = [0; MESSAGE];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; MESSAGE]) -> Result<Self, Violation> {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let kind = match (half(0), half(4)) {
            (MAGIC, 1) => MessageKind::Memory,
            (MAGIC, 2) => MessageKind::Joined,
            (MAGIC, 3) => MessageKind::Descriptor,
            (MAGIC, 4) => MessageKind::Allocation,
            _ => return Err(Violation::Side),
        };
        Ok(Self { kind, number: word(8), bytes: word(16) })
    }
}

/// The connection beside the rings.
#[derive(Debug)]
pub(crate) struct Peer {
    /// A stream socket of the Unix family; the standard library's type for TCP serves for any stream.
    socket: TcpStream,
    /// Messages are not mixed.
    sending: Mutex<()>,
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: TcpStream::from(socket), sending: Mutex::new(()) }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// For how long [`receive`](Self::receive) waits at most; for ever with `None`.
    pub(crate) fn set_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(timeout)
    }

    /// Ends the connection for both sides.
    pub(crate) fn end(&self) {
        // An error means that it has ended already, which is what is wanted.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends a message, and a copy of a descriptor with it.
    pub(crate) fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let _whole = self.sending.lock();
        let mut sent = loop {
            match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => break sent?,
            }
        };
        while sent < MESSAGE {
            match rustix::net::send(&self.socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                more => sent += more?,
            }
        }
        Ok(())
    }

    /// Receives a message and the descriptor that came with it, if one did and this process had room for it;
    /// `None` when the peer has gone.
    pub(crate) fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>, LinkError> {
        let mut bytes = [0; MESSAGE];
        let (mut filled, mut descriptor) = (0, None);
        while filled < MESSAGE {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes[filled..])];
            let received =
                match recvmsg(self.socket.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(rustix::io::Errno::CONNRESET | rustix::io::Errno::PIPE) => return Ok(None),
                    received => received.map_err(|error| LinkError::from_io(error.into()))?,
                };
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                    descriptor = descriptors.next().or(descriptor);
                }
            }
            if received.bytes == 0 {
                return Ok(None);
            }
            filled += received.bytes;
        }
        let descriptor = descriptor.map(above_stdio).transpose().map_err(LinkError::from_io)?;
        Ok(Some((Message::decode(&bytes)?, descriptor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Peer, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Peer::new(one.into()), other)
    }

    #[test]
    fn messages_arrive_with_their_descriptors_and_in_order() {
        let (one, other) = pair();
        let other = Peer::new(other.into());
        let file = std::fs::File::open("/dev/null").unwrap();
        let first = Message { kind: MessageKind::Descriptor, number: 7, bytes: u64::MAX };
        let second = Message { kind: MessageKind::Joined, number: 0, bytes: 0 };
        one.send(&first, Some(file.as_fd())).unwrap();
        one.send(&second, None).unwrap();
        let (message, descriptor) = other.receive().unwrap().unwrap();
        assert!(message == first && descriptor.is_some());
        let (message, descriptor) = other.receive().unwrap().unwrap();
        assert!(message == second && descriptor.is_none());
        drop(one);
        assert!(other.receive().unwrap().is_none());
    }

    #[test]
    fn nonsense_is_refused_and_half_a_message_is_an_end() {
        let (peer, mut hostile) = pair();
        hostile.write_all(&[b'x'; MESSAGE]).unwrap();
        let Err(LinkError::Transport(refused)) = peer.receive() else { panic!("nonsense was taken") };
        assert_eq!(refused.downcast_ref(), Some(&Violation::Side));
        assert_eq!(
            refused.to_string(),
            "the other end broke the protocol: malformed message on the socket beside the shared memory"
        );
        hostile.write_all(&[0; 5]).unwrap();
        drop(hostile);
        assert!(peer.receive().unwrap().is_none());
    }
}
