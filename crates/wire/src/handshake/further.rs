//! What the further connections of a session are for: lanes, shared memory, verbs, copies from another
//! server.

use core::fmt;

use super::{LaneToken, SessionId};
use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::record;

/// What a further connection of a client says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneHello {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Proof of that.
    pub token: LaneToken,
    /// Which lane it is, from 0; [`COMMANDS`](Self::COMMANDS) if it is none.
    pub lane: u32,
}

impl LaneHello {
    /// Says that the connection takes the place of the one for commands
    /// ([`LaneRecord::Commands`](crate::chunk::LaneRecord::Commands)).
    pub const COMMANDS: u32 = u32::MAX;
}

record!(LaneHello { session, token, lane });

/// What the worker of another server says of a connection by which it fetches copies for the client that both
/// have.
///
/// The ticket is both proof and secret: the worker that it leads to gave it to the client, the client to the
/// other worker. Where the server demands a key, the ticket proves in its place, so that no server learns
/// another one's key; and whoever holds no more than a ticket is granted nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerHello {
    /// The session whose worker gave the ticket.
    pub session: SessionId,
    /// The ticket.
    pub ticket: LaneToken,
    /// Which connection it is: 0 carries messages, those from 1 on are lanes.
    pub connection: u32,
}

record!(PeerHello { session, ticket, connection });

/// Says in the clear which ticket a connection comes with, so that the server need not try all it has given.
/// It is made of the ticket by a one-way function, and tells nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TicketId(pub [u8; 8]);

record!(TicketId { 0 });

/// Says in the clear which client's key a connection comes with, as [`TicketId`] does of tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 8]);

record!(KeyId { 0 });

/// The key that an invited client enrols.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NewKey(pub [u8; 32]);

record!(NewKey { 0 });

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey(..)")
    }
}

/// What a client, or the worker of another server, says on a socket of the server's host, to go on in memory
/// that both share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinHello {
    /// The session.
    pub session: SessionId,
    /// Proof that it is the client's, or the ticket with which the worker has come.
    pub token: LaneToken,
}

record!(JoinHello { session, token });

/// The sizes of the memory that a worker shares with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMemory {
    /// Slots of the staging arena for transfers from the client.
    pub upload_slots: u32,
    /// Slots for transfers from the worker.
    pub download_slots: u32,
}

record!(SharedMemory { upload_slots, download_slots });

/// What a client, or the worker of another server, wants of verbs, on a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbsHello {
    /// The session.
    pub session: SessionId,
    /// Proof that it is the client's, or the ticket with which the worker has come.
    pub token: LaneToken,
    /// Whether rdma_cm is to join the queue pairs, instead of their numbers being told here.
    pub by_rdma_cm: bool,
    /// How many queue pairs the client would like.
    pub queue_pairs: u32,
    /// How many messages it would like to have under way on each.
    pub depth: u32,
}

record!(VerbsHello { session, token, by_rdma_cm, queue_pairs, depth });

/// A request to change over to another transport, on a connection of its own: one variant for each transport that is
/// asked for in this way. A server only checks whose session it is and hands it to the worker, whose link knows the
/// transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeHello {
    /// To shared memory, at a socket of the server's host.
    Join(JoinHello),
    /// To queue pairs.
    Verbs(VerbsHello),
}

// Brokers of two releases exchange these numbers among those of other requests that lead to a session, which are 1 and 4.
const JOIN: u8 = 2;
const VERBS: u8 = 3;

impl UpgradeHello {
    /// The session.
    pub fn session(&self) -> SessionId {
        match self {
            Self::Join(hello) => hello.session,
            Self::Verbs(hello) => hello.session,
        }
    }

    /// Proof that it is the client's, or the ticket with which the worker of another server has come.
    pub fn token(&self) -> LaneToken {
        match self {
            Self::Join(hello) => hello.token,
            Self::Verbs(hello) => hello.token,
        }
    }

    /// The one that begins with this number.
    ///
    /// # Errors
    /// When there is no such number, or its fields are damaged.
    pub fn decode_numbered(number: u8, input: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match number {
            JOIN => Ok(Self::Join(input.value()?)),
            VERBS => Ok(Self::Verbs(input.value()?)),
            other => Err(DecodeError::UnknownTag { what: "request to change over", value: u64::from(other) }),
        }
    }
}

impl Encode for UpgradeHello {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Join(hello) => {
                JOIN.encode(out);
                hello.encode(out);
            }
            Self::Verbs(hello) => {
                VERBS.encode(out);
                hello.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for UpgradeHello {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let number = input.value()?;
        Self::decode_numbered(number, input)
    }
}

/// One end of the queue pairs of a session, as its owner tells it to the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbsEnd {
    /// The numbers of its queue pairs; none where rdma_cm joins them.
    pub numbers: Vec<u32>,
    /// How many queue pairs there are to be.
    pub queue_pairs: u32,
    /// Where rdma_cm listens; 0 where it does not.
    pub manager_port: u16,
    /// The number of the first packet that each queue pair sends.
    pub packet: u32,
    /// The port's local identifier in an InfiniBand subnet.
    pub lid: u16,
    /// The port's GID.
    pub gid: [u8; 16],
    /// Bytes of a packet's payload, at most.
    pub mtu: u32,
    /// Messages of each kind for which each queue pair has receives posted.
    pub depth: u32,
    /// Reads that each queue pair answers at a time.
    pub reads: u8,
    /// Where the other end may write transfers to.
    pub arena: u64,
    /// The key to that memory.
    pub arena_key: u32,
    /// Slots in it.
    pub arena_slots: u32,
}

record!(VerbsEnd {
    numbers,
    queue_pairs,
    manager_port,
    packet,
    lid,
    gid,
    mtu,
    depth,
    reads,
    arena,
    arena_key,
    arena_slots,
});
