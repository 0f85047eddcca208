//! Messages of transfers over a connection. Over the socket that joins them, with errors that name
//! the peer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::error::TransferError;
use super::message::Message;
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::verbs::{END_BYTES, EndpointAddress, RdmaError};

/// Messages that may lie in a connection that its peer has ended.
const MAX_LEFT_OVER: usize = 1000;

impl Connection {
    /// Sends a message.
    pub(crate) fn send_message(&self, message: Message) -> Result<(), TransferError> {
        self.send_with_descriptor(message, None)
    }

    /// Tells the peer that this rank moves to another container, and ends the connection.
    pub(crate) fn send_moving(&self) {
        // It may have gone.
        let _ = self.send_message(Message::Moving);
        self.shut();
    }

    /// Sends a message, and a descriptor with it.
    pub(crate) fn send_with_descriptor(
        &self,
        message: Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), TransferError> {
        self.send_message_bytes(&message.encode(), descriptor)
    }

    /// Sends as many bytes as a message has.
    pub(crate) fn send_message_bytes(
        &self,
        bytes: &[u8; MESSAGE_BYTES],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), TransferError> {
        self.send(bytes, descriptor).map_err(|cause| self.failed(cause))
    }

    /// Receives a message, and the descriptor that came with it.
    pub(crate) fn receive_message(&self) -> Result<(Message, Option<OwnedFd>), TransferError> {
        let (bytes, descriptor) = self.receive_message_bytes()?;
        let message = Message::decode(&bytes).ok_or_else(|| self.wrong("bytes that are no message"))?;
        if message == Message::Moving {
            return Err(TransferError::Moved(self.peer));
        }
        Ok((message, descriptor))
    }

    /// What the error of a transfer is. Where it ends the connection that is shut; the peer may have said before that it
    /// moves.
    pub(crate) fn ended_by(&self, error: TransferError) -> TransferError {
        if !error.ends_connection() {
            return error;
        }
        let is_silent = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        let may_move = matches!(&error, TransferError::Connection { cause, .. } if !is_silent(cause.kind()));
        let moves = |error: &TransferError| matches!(error, TransferError::Moved(_));
        let farewell =
            || core::iter::repeat_with(|| self.receive_message().err()).take(MAX_LEFT_OVER).flatten().next();
        let error = may_move.then(farewell).flatten().filter(moves).unwrap_or(error);
        self.shut();
        error
    }

    /// Receives as many bytes as a message has.
    pub(crate) fn receive_message_bytes(
        &self,
    ) -> Result<([u8; MESSAGE_BYTES], Option<OwnedFd>), TransferError> {
        let received = self.receive().map_err(|cause| self.failed(cause))?;
        received.ok_or_else(|| self.failed(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Sends an end of a path between cards, which the message before it has announced.
    pub(crate) fn send_endpoint(&self, end: &EndpointAddress) -> Result<(), TransferError> {
        for part in end.encode().as_chunks::<MESSAGE_BYTES>().0 {
            self.send_message_bytes(part, None)?;
        }
        Ok(())
    }

    /// Receives such an end.
    pub(crate) fn receive_endpoint(&self) -> Result<EndpointAddress, TransferError> {
        let mut bytes = [0; END_BYTES];
        for part in bytes.as_chunks_mut::<MESSAGE_BYTES>().0 {
            *part = self.receive_message_bytes()?.0;
        }
        EndpointAddress::decode(&bytes)
            .ok_or_else(|| self.wrong("an end of a path between RDMA devices that cannot be"))
    }

    /// Sends bytes of a payload, which the message before them has announced.
    pub(crate) fn send_payload(&self, bytes: &[u8]) -> Result<(), TransferError> {
        self.send_bytes(bytes).map_err(|cause| self.failed(cause))
    }

    /// Receives bytes of a payload that was announced.
    pub(crate) fn receive_payload(&self, bytes: &mut [u8]) -> Result<(), TransferError> {
        self.receive_bytes(bytes).map_err(|cause| self.failed(cause))
    }

    /// The error for a peer that says what makes no sense here.
    pub(crate) fn wrong(&self, what: &'static str) -> TransferError {
        TransferError::Protocol { peer: self.peer, what }
    }

    /// The error for a card that fails.
    pub(crate) fn rdma_failed(&self, cause: RdmaError) -> TransferError {
        TransferError::Rdma { peer: self.peer, cause }
    }

    fn failed(&self, cause: io::Error) -> TransferError {
        TransferError::Connection { peer: self.peer, cause }
    }
}
