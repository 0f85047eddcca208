//! What a transport gives a link: *messages* and *memory*.
//!
//! A link joins two processes, whatever lies between them. What lies between them is the business of a
//! transport, a crate each. It gives two things, which are the channel and the memory semantics of
//! InfiniBand:
//!
//! - **Messages**: an ordered stream of bytes each way, in which the link's frames travel. Its sending half
//!   is used under the link's writer lock, its receiving half by one thread at a time.
//! - **Memory**: how the bytes of a transfer get from the memory of one process into the destination that the
//!   other one names, with as few copies as the transport can.
//!
//! A link holds the halves as trait objects: one indirect call for each frame and each transfer, none for a
//! message.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use causeway_connection::channel::{Connection, shut_down};
use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_memory::SealedMemory;
use causeway_pipeline::TransportKind;

use crate::error::LinkError;
use crate::events::Awaited;
use crate::one_sided::OneSided;
use crate::sending::{OutgoingTransfer, Sending};
use crate::shared::Shared;
use crate::staging::{Piece, Region};

/// The direction to the peer of an ordered stream of bytes.
pub trait SendMessages: Send {
    /// Sends all of `bytes`, which are one frame. Blocks while the peer takes nothing; what is kept on the
    /// way is bounded.
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError>;

    /// Whether a short frame can be sent without waiting.
    fn has_capacity(&mut self) -> bool {
        true
    }

    /// Whether the peer is so far away that frames are worth compressing. Asked for long frames only.
    fn is_remote(&mut self) -> bool {
        false
    }
}

/// The direction from the peer.
pub trait ReceiveMessages: Send {
    /// Receives some bytes into `into` and returns how many. With `wait` it sleeps until there are any;
    /// otherwise it is one look that costs as little as the transport can make it. 0 says that nothing is
    /// there; with `wait`, that somebody has called ([`Memory::wake_receiver`]). The peer's end
    /// is an error, [`LinkError::PeerDisconnected`] as a rule. A transport whose transfers are announced in order
    /// with its frames deals with the announcements here.
    fn receive(&mut self, link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError>;

    /// The peer has dealt with all frames up to the one of this number, counted from 1 in the order in which they were
    /// sent. A transport that would send them again on another connection need not keep them any more.
    fn acknowledged(&mut self, frame: u64) {
        let _ = frame;
    }

    /// Bytes of frames that have come since the session began, of a link that is resumable.
    fn received_bytes(&self) -> u64 {
        0
    }

    /// Reads nothing more of the connection, waits for its end, and for the peer's return on another one. How many
    /// bytes of frames the peer had received by then.
    ///
    /// # Errors
    /// When the link has ended, since the peer has not come back.
    fn await_return(&mut self, link: &Arc<Shared>) -> Result<u64, LinkError> {
        let _ = link;
        Err(LinkError::Closed)
    }
}

/// Memory of the peer, and what both halves share: for any thread at any time.
pub trait Memory: Send + Sync {
    /// Which transport this is.
    fn kind(&self) -> TransportKind;

    /// The link's owner can be asked from now on where transfers go. Called once.
    fn start(&self, link: &Arc<Shared>);

    /// From here on the peer is shown every second that this end is there, and where the peer does the same the
    /// link, or a connection of it, is given up when nothing has come for so long. Called once. A transport whose
    /// peer cannot fall silent without ending the connection has nothing to do.
    fn keep_alive(&self, link: &Arc<Shared>, timeouts: KeepaliveTimeouts) {
        let _ = (link, timeouts);
    }

    /// Begins to move the bytes of `order` into the peer's destination for the transfer. Blocks while the
    /// peer takes nothing, unless the order has a guard: such an order is only queued where the
    /// transport has threads that send. The receiving side claims each part of the transfer from
    /// [`Shared::transfers`] before it writes to the destination.
    ///
    /// # Safety
    /// The memory must be readable until the guard, or without one the [`Sending`], has been dropped. Other
    /// threads may write to it; then either value is sent.
    unsafe fn send(&self, link: &Arc<Shared>, order: OutgoingTransfer) -> Result<Sending, LinkError>;

    /// Somebody waits for what the peer will say or send: wakes the thread that receives it, if it sleeps, so
    /// that it polls.
    fn wake_receiver(&self, awaited: Awaited);

    /// Takes in one more connection that the peer has opened for this session. A transport that has no use
    /// for it ends it.
    fn attach(&self, link: &Arc<Shared>, connection: Connection) {
        let _ = link;
        shut_down(connection.socket());
    }

    /// Memory of `length` bytes that the peer reads in place, once it has been filled and sent. `None`
    /// when the transport has no such memory, or none is free now.
    fn piece(&self, link: &Arc<Shared>, length: usize) -> Option<Piece> {
        let _ = (link, length);
        None
    }

    /// Sends a piece of this link as a whole transfer.
    fn send_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece) -> Result<(), LinkError> {
        let _ = (link, transfer, piece);
        Err(LinkError::NotWithThisTransport(self.kind()))
    }

    /// The memory in which pieces lie, for whoever registers it with a device: those of this side, and those
    /// of the peer.
    fn regions(&self) -> Option<[Region; 2]> {
        None
    }

    /// What it can do besides where network cards reach memory by themselves; nothing where they do not.
    fn one_sided(&self) -> Option<&dyn OneSided> {
        None
    }

    /// Whether the transport hands descriptors to the peer, as one within a host can.
    fn passes_descriptors(&self) -> bool {
        false
    }

    /// Hands memory to the peer, which gets it under `number`.
    fn send_descriptor(
        &self,
        link: &Arc<Shared>,
        number: u64,
        memory: &SealedMemory,
    ) -> Result<(), LinkError> {
        let _ = (link, number, memory);
        Err(LinkError::NotWithThisTransport(self.kind()))
    }

    /// Hands a descriptor of device memory or of a file to the peer, which gets it under `number`.
    fn send_allocation(
        &self,
        link: &Arc<Shared>,
        number: u64,
        allocation: BorrowedFd<'_>,
    ) -> Result<(), LinkError> {
        let _ = (link, number, allocation);
        Err(LinkError::NotWithThisTransport(self.kind()))
    }

    /// Sleeps until a link that is resumable has a connection again, at most for so long.
    fn wait_for_connection(&self, timeout: Duration) {
        let _ = timeout;
    }

    /// Sleeps until a link that is resumable has ended, at most for so long.
    fn wait_for_end(&self, timeout: Duration) {
        let _ = timeout;
    }

    /// Whether the link goes on when its connections are lost, on others. The peer must be notified then when it
    /// is to end, and how far its frames have been dealt with.
    fn is_resumable(&self) -> bool {
        false
    }

    /// Has a resumable link go on with other connections, which the end that connects dials anew.
    fn reconnect(&self) {}

    /// The frames of a resumable link that the peer may not have: how many came before them, how many bytes those
    /// were, and themselves.
    fn unacknowledged_frames(&self) -> Option<(u64, u64, Vec<Vec<u8>>)> {
        None
    }

    /// Ends everything that joins the two processes, messages too: whoever waits in any part of the transport
    /// returns with an error, here and at the peer. May be called more than once and from any thread.
    fn end(&self);
}

/// The parts of a transport, for one link.
pub struct Parts {
    /// The direction to the peer.
    pub sender: Box<dyn SendMessages>,
    /// The direction from the peer.
    pub receiver: Box<dyn ReceiveMessages>,
    /// Memory of the peer.
    pub memory: Box<dyn Memory>,
    /// Sleeps until the peer has dealt with enough of what was sent, where that is kept; to be called before a frame
    /// is sent, with no lock that the receiver may want.
    pub wait_for_capacity: Option<Box<dyn Fn() + Send + Sync>>,
    /// What it holds open by now, for a forked child that closes its copies. They stay open as long as the
    /// link.
    pub descriptors: Vec<RawFd>,
}

impl core::fmt::Debug for Parts {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Parts").field("kind", &self.memory.kind()).finish_non_exhaustive()
    }
}
