//! Peer memory that is opened here in place: the trait of the channels that do so, and the exchange
//! before the first copy out of a buffer.

use std::sync::Arc;

use super::channel::Channel;
use super::protocol::{Message, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::Payload;
use crate::bootstrap::Connection;
use crate::cuda::{CudaError, DeviceMemory, Mapping, Opened, Scope};
use crate::matching::Source;

/// How a channel opens the peer's memory.
pub(crate) trait PeerMemoryOps: Sync {
    /// Which channel it is.
    fn channel(&self) -> Channel;

    /// Whether it opens memory that a peer describes so.
    fn opens(&self, source: &Source) -> bool;

    /// Whether peers may open memory of this rank by it.
    fn exports(&self, memory: &DeviceMemory) -> bool;

    /// A buffer of the peer's, if it is open for the GPU that copies.
    fn find(&self, receiver: &mut Receiver, buffer: u64, destination: &Destination) -> Option<OpenMemory>;

    /// Opens a buffer that the peer hands over, and that stays open. Says where it begins here.
    fn open(
        &self,
        receiver: &mut Receiver,
        buffer: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError>;

    /// Closes a buffer that is of no use as it is open.
    fn forget(&self, receiver: &mut Receiver, buffer: u64);
}

/// A buffer of a peer's that is open here, for as long as this lives.
#[derive(Debug, Clone)]
pub(crate) enum OpenMemory {
    Opened(Arc<Opened>),
    Mapped(Arc<Mapping>),
}

impl OpenMemory {
    /// Whether kernels of a context on a device reach it.
    pub(crate) fn is_for(&self, context: u64, device: i32) -> bool {
        match self {
            Self::Opened(opened) => opened.context == context,
            Self::Mapped(mapping) => mapping.let_use(device).is_ok(),
        }
    }

    /// Where so many bytes lie from an offset on; none where they do not all lie in it. A peer names the
    /// offset, and a kernel that leaves memory ends its context.
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> Option<u64> {
        let all = match self {
            Self::Opened(opened) => opened.bytes,
            Self::Mapped(mapping) => mapping.bytes as u64,
        };
        is_within(offset, bytes, all).then(|| self.start().saturating_add(offset))
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> u64 {
        match self {
            Self::Opened(opened) => opened.address,
            Self::Mapped(mapping) => mapping.address,
        }
    }
}

/// Whether so many bytes from an offset on are among so many.
fn is_within(offset: u64, bytes: u64, all: u64) -> bool {
    offset <= all && bytes <= all - offset
}

/// The sender: says where the payload lies, and hears whether the peer has that open.
pub(super) fn is_needed(connection: &Connection, payload: &Payload<'_>) -> Result<bool, TransferError> {
    let memory = payload.memory;
    connection.send_message(Message::Region { buffer: memory.buffer })?;
    connection.send_message(Message::Offset { offset: payload.address - memory.start })?;
    match connection.receive_message()?.0 {
        Message::Need { needed } => Ok(needed),
        _ => Err(connection.wrong("an answer to a region")),
    }
}

/// The receiver: opens the peer's buffer, unless it is open. Says where it begins here.
fn open_region(
    ops: &dyn PeerMemoryOps,
    receiver: &mut Receiver,
    buffer: u64,
    destination: &Destination,
) -> Result<u64, TransferError> {
    let known = ops.find(receiver, buffer, destination).map(|memory| memory.start());
    receiver.connection.send_message(Message::Need { needed: known.is_none() })?;
    if let Some(start) = known {
        return Ok(start);
    }
    receiver.has_opened = true;
    ops.open(receiver, buffer, destination)
}

/// The receiver: copies a payload out of the buffer that the peer has named.
pub(super) fn copy_from_region(
    ops: &dyn PeerMemoryOps,
    receiver: &mut Receiver,
    buffer: u64,
    request: &FetchRequest,
    destination: &Destination,
    scope: Result<Option<Scope<'static>>, CudaError>,
) -> Result<(), TransferError> {
    let Message::Offset { offset } = receiver.receive_message(ops.channel())?.0 else {
        return Err(receiver.connection.wrong("a region without an offset"));
    };
    let start = open_region(ops, receiver, buffer, destination)?;
    let Some(scope) = scope? else {
        return Err(receiver.connection.wrong("a region for a rank without a GPU"));
    };
    let from = start.saturating_add(offset);
    // SAFETY: the receive's memory is this function's until the receive ends, and the sender's stays as it is
    // until it hears of the end.
    Ok(unsafe { scope.copy(request.to, from, request.bytes as usize) }?)
}

impl Receiver {
    /// Asks the peer for a buffer that it has offered, so that it is open here, and copies nothing.
    pub(crate) fn open_offered(
        &mut self,
        ops: &dyn PeerMemoryOps,
        operation: u64,
        buffer: u64,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        let channel = ops.channel();
        self.connection.send_message(Message::Fetch { channel, operation })?;
        let (message, _) = self.receive_message(channel)?;
        if message != (Message::Region { buffer }) {
            return Err(self.connection.wrong("another buffer than it has offered"));
        }
        let Message::Offset { .. } = self.receive_message(channel)?.0 else {
            return Err(self.connection.wrong("a region without an offset"));
        };
        open_region(ops, self, buffer, destination).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_a_peer_names_lies_in_its_memory_or_not() {
        for (offset, bytes, inside) in [
            (0, 4096, true),
            (4096, 0, true),
            (1, 4096, false),
            (4097, 0, false),
            (u64::MAX, 2, false),
            (2, u64::MAX, false),
        ] {
            assert_eq!(is_within(offset, bytes, 4096), inside, "{offset} {bytes}");
        }
    }
}
