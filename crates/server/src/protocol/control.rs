//! Messages with descriptors between the broker and a worker, over a pair of Unix sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest message in bytes. The longest one carries a client's hello, which may have 64 KiB.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// How long the broker waits for a process that takes no more messages. A hundred and more wait in the socket
/// before.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of a control connection; messages keep their boundaries.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// Two connected ends: the broker's and that of a process that it starts. The broker never waits longer
    /// than [`SEND_TIMEOUT`] for the process to receive a message.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (broker, process) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&broker, Timeout::Send, Some(SEND_TIMEOUT))?;
        Ok((Self { socket: broker }, Self { socket: process }))
    }

    /// An end whose owner never waits longer than [`SEND_TIMEOUT`] for the other one to receive a message.
    pub fn of_broker(socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Send, Some(SEND_TIMEOUT))?;
        Ok(Self { socket })
    }

    /// The end that whoever started this process left at its standard input, which is closed for all else from now on.
    pub fn from_stdin() -> io::Result<OwnedFd> {
        let control = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok(control)
    }

    /// The end that a worker got from its broker.
    pub fn from_descriptor(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message and, with it, a copy of a descriptor.
    pub fn send(&self, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_with(message, descriptor, SendFlags::empty())
    }

    /// Sends a message unless that has to wait; whether it was sent.
    pub fn try_send(&self, message: &[u8]) -> io::Result<bool> {
        match self.send_with(message, None, SendFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn send_with(
        &self,
        message: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> io::Result<()> {
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a control message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(|descriptor| [descriptor]);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL | flags)?;
        Ok(())
    }

    /// Whether a message, or the end, waits to be received; waits for it if `wait`.
    pub fn has_message(&self, wait: bool) -> bool {
        let mut waited = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut waited, if wait { None } else { Some(&at_once) }) {
                Err(rustix::io::Errno::INTR) => {}
                // What is wrong with the socket says whoever receives from it.
                outcome => return outcome.is_err() || !waited[0].revents().is_empty(),
            }
        }
    }

    /// Receives a message; `None` when the other end is closed.
    pub fn receive(&self) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_MESSAGE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a control message was cut off"));
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        bytes.truncate(received.bytes);
        Ok(Some((bytes, descriptor)))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Control> for OwnedFd {
    fn from(control: Control) -> Self {
        control.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_or_the_end_is_known_before_it_is_received() {
        let (one, other) = Control::pair().unwrap();
        assert!(!other.has_message(false));
        one.send(b"told", None).unwrap();
        assert!(other.has_message(true) && other.has_message(false));
        assert_eq!(other.receive().unwrap().unwrap().0, b"told");
        assert!(!other.has_message(false));
        drop(one);
        assert!(other.has_message(true) && other.receive().unwrap().is_none());
    }

    #[test]
    fn a_process_that_takes_nothing_holds_the_broker_up_for_a_while_only() {
        let (broker, _process) = Control::pair().unwrap();
        let error = loop {
            if let Err(error) = broker.send(&[7; 1024], None) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!broker.try_send(&[7; 1024]).unwrap());
    }
}
