//! The handshake: how a client and a server agree to talk.
//!
//! A connection begins with a [`Preface`] of the client and a [`PrefaceAnswer`] of the server, both in the
//! clear: they say whether the connection is encrypted, so that a missing or needless key gets a sentence
//! instead of a hang. On an encrypted connection the Noise messages follow. Then each end sends one message
//! of this module, in a frame of kind [`FrameKind::Handshake`](crate::frame::FrameKind::Handshake): an
//! [`Opening`] and an [`Answer`].
//!
//! The fields of [`Offer`] stay where they are in every version of the protocol, so that two ends that have
//! nothing else in common can still name each other's version.

use core::fmt;

use thiserror::Error;

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::record;

/// The protocol versions that this build speaks, oldest and newest.
pub const VERSIONS: VersionRange = VersionRange { oldest: 2, newest: 2 };

/// The first four bytes that either end sends.
pub const PREFACE_MAGIC: [u8; 4] = *b"CSWY";

/// Size of an encoded [`Preface`] and of the fixed part of a [`PrefaceAnswer`], in bytes.
pub const PREFACE_SIZE: usize = 8;

/// The longest refusal in a [`PrefaceAnswer`], in bytes.
pub const MAX_REFUSAL: usize = 1024;

/// A client's first words: who it is and whether it has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preface {
    /// Whether a Noise handshake follows.
    pub encrypted: bool,
}

/// The first bytes were not those of a peer that speaks this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the first bytes {found:02x?} are not those of Causeway's protocol")]
pub struct NotCauseway {
    /// The bytes found.
    pub found: [u8; PREFACE_SIZE],
}

impl Preface {
    /// The preface as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        [a, b, c, d, u8::from(self.encrypted), 0, 0, 0]
    }

    /// Reads a preface.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        match bytes {
            [a, b, c, d, encrypted @ 0..=1, 0, 0, 0] if [*a, *b, *c, *d] == PREFACE_MAGIC => {
                Ok(Self { encrypted: *encrypted == 1 })
            }
            _ => Err(NotCauseway { found: *bytes }),
        }
    }
}

/// A server's answer to a [`Preface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefaceAnswer {
    /// The client goes on.
    GoOn,
    /// The server ends the connection; a text of this many bytes, at most [`MAX_REFUSAL`], follows.
    Refused {
        /// Bytes in the text.
        length: u16,
    },
}

impl PrefaceAnswer {
    /// The fixed part of the answer as it travels.
    pub fn to_bytes(&self) -> [u8; PREFACE_SIZE] {
        let [a, b, c, d] = PREFACE_MAGIC;
        match self {
            Self::GoOn => [a, b, c, d, 0, 0, 0, 0],
            Self::Refused { length } => {
                let [low, high] = length.to_le_bytes();
                [a, b, c, d, 1, 0, low, high]
            }
        }
    }

    /// Reads the fixed part of an answer.
    pub fn parse(bytes: &[u8; PREFACE_SIZE]) -> Result<Self, NotCauseway> {
        let foreign = NotCauseway { found: *bytes };
        match bytes {
            [a, b, c, d, ..] if [*a, *b, *c, *d] != PREFACE_MAGIC => Err(foreign),
            [.., 0, 0, 0, 0] => Ok(Self::GoOn),
            [.., 1, 0, low, high] => {
                let length = u16::from_le_bytes([*low, *high]);
                if usize::from(length) <= MAX_REFUSAL { Ok(Self::Refused { length }) } else { Err(foreign) }
            }
            _ => Err(foreign),
        }
    }
}

/// A range of protocol versions, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest version spoken.
    pub oldest: u16,
    /// The newest version spoken.
    pub newest: u16,
}

record!(VersionRange { oldest, newest });

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "protocol {}", self.oldest)
        } else {
            write!(f, "protocols {} to {}", self.oldest, self.newest)
        }
    }
}

/// What one end can talk: the part of the handshake that never changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Protocol versions spoken.
    pub versions: VersionRange,
    /// Fingerprint of the list of driver functions that opcodes and payloads are generated from.
    pub fingerprint: u64,
    /// Version of the program, for people to read, e.g. `0.1.0`.
    pub release: String,
}

record!(Offer { versions, fingerprint, release });

/// Why two ends cannot talk to each other.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionMismatch {
    /// No protocol version is spoken by both.
    #[error(
        "the server is Causeway {} ({}) and the client is Causeway {} ({}), and they have no protocol \
         version in common; install the same release on both machines",
        server.release, server.versions, client.release, client.versions
    )]
    Protocol {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
    /// The ends know different lists of driver functions.
    #[error(
        "the server is Causeway {} (API list {:016x}) and the client is Causeway {} (API list {:016x}), and \
         their lists of driver functions differ; install the same release on both machines",
        server.release, server.fingerprint, client.release, client.fingerprint
    )]
    Functions {
        /// What the server can talk.
        server: Offer,
        /// What the client can talk.
        client: Offer,
    },
}

/// Chooses the protocol version to talk: the newest that both ends speak.
pub fn negotiate(server: &Offer, client: &Offer) -> Result<u16, VersionMismatch> {
    let newest = server.versions.newest.min(client.versions.newest);
    if newest < server.versions.oldest.max(client.versions.oldest) {
        return Err(VersionMismatch::Protocol { server: server.clone(), client: client.clone() });
    }
    if server.fingerprint != client.fingerprint {
        return Err(VersionMismatch::Functions { server: server.clone(), client: client.clone() });
    }
    Ok(newest)
}

/// Names a session; given out by the server, 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

record!(SessionId { 0 });

impl fmt::Display for SessionId {
    /// The first 32 bits, which tell sessions apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The secret with which a client's further connections prove that they belong to its session.
#[derive(Clone, Copy)]
pub struct LaneToken(pub [u8; 32]);

record!(LaneToken { 0 });

impl PartialEq for LaneToken {
    /// Compares in a time that does not depend on where two tokens differ, so that it cannot be found byte
    /// by byte.
    fn eq(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        core::hint::black_box(difference) == 0
    }
}

impl Eq for LaneToken {}

impl fmt::Debug for LaneToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaneToken(..)")
    }
}

/// What a client says of itself when it asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// What the client can talk.
    pub offer: Offer,
    /// The client's process id, for logs.
    pub pid: u32,
    /// The client's host name, for logs.
    pub host: String,
    /// The program's name, for logs.
    pub program: String,
    /// Environment variables that the worker sets before it starts the GPU.
    pub environment: Vec<(String, String)>,
    /// Bulk lanes that the client would like to open.
    pub lanes: u32,
}

/// The fields of a [`ClientHello`] that follow its offer.
struct ClientDetails {
    pid: u32,
    host: String,
    program: String,
    environment: Vec<(String, String)>,
    lanes: u32,
}

record!(ClientDetails { pid, host, program, environment, lanes });

impl Encode for ClientHello {
    fn encode(&self, out: &mut Vec<u8>) {
        self.offer.encode(out);
        self.pid.encode(out);
        self.host.encode(out);
        self.program.encode(out);
        self.environment.encode(out);
        self.lanes.encode(out);
    }
}

/// What a further connection of a client says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneHello {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Proof of that.
    pub token: LaneToken,
    /// Which lane it is, from 0.
    pub lane: u32,
}

record!(LaneHello { session, token, lane });

/// What the worker of another server says of a connection by which it fetches copies for the client that both have.
///
/// The ticket is both proof and secret: the worker that it leads to gave it to the client, the client to the other worker.
/// Where the server demands a key, the connection is encrypted with the ticket in the key's place, so that
/// no server learns another one's key; and whoever holds no more than a ticket is granted nothing else.
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

/// What a client says on a socket of the server's host, to go on with its session in memory that both share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinHello {
    /// The session.
    pub session: SessionId,
    /// Proof that it is the client's.
    pub token: LaneToken,
}

record!(JoinHello { session, token });

/// The first message of a client on a connection, as the server decodes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening<'a> {
    /// The client asks for a session. The rest is decoded by [`ClientHello::decode_rest`] once the versions
    /// agree.
    Session {
        /// What the client can talk.
        offer: Offer,
        /// The rest of the hello.
        rest: &'a [u8],
    },
    /// The connection is a bulk lane of a session.
    Lane(LaneHello),
    /// The connection is one of the same host, and the session could go on in shared memory.
    Join(JoinHello),
    /// The connection is for setting up InfiniBand verbs, over which the session could go on.
    Verbs(VerbsHello),
    /// The caller is the worker of another server.
    Peer(PeerHello),
    /// The client asks for a monitoring session, which has no worker: questions about the server's devices and
    /// their answers, one at a time. The fields are those of [`Opening::Session`].
    Monitor {
        /// What the client can talk.
        offer: Offer,
        /// The rest of the hello.
        rest: &'a [u8],
    },
    /// The client asks what the server's machine is like ([`crate::diagnosis`]). The fields are those of
    /// [`Opening::Session`].
    Diagnosis {
        /// What the client can talk.
        offer: Offer,
        /// The rest of the hello.
        rest: &'a [u8],
    },
}

const SESSION: u8 = 1;
const LANE: u8 = 2;
const MONITOR: u8 = 3;
const JOIN: u8 = 4;
const VERBS: u8 = 5;
const DIAGNOSIS: u8 = 6;
const PEER: u8 = 7;

impl Opening<'_> {
    /// Encodes the request for a session.
    pub fn encode_session(hello: &ClientHello, out: &mut Vec<u8>) {
        SESSION.encode(out);
        hello.encode(out);
    }

    /// Encodes the request for a monitoring session.
    pub fn encode_monitor(hello: &ClientHello, out: &mut Vec<u8>) {
        MONITOR.encode(out);
        hello.encode(out);
    }

    /// Encodes the request for a diagnosis.
    pub fn encode_diagnosis(hello: &ClientHello, out: &mut Vec<u8>) {
        DIAGNOSIS.encode(out);
        hello.encode(out);
    }

    /// Encodes the wish to share memory.
    pub fn encode_join(hello: &JoinHello, out: &mut Vec<u8>) {
        JOIN.encode(out);
        hello.encode(out);
    }

    /// Encodes the wish to go on over verbs.
    pub fn encode_verbs(hello: &VerbsHello, out: &mut Vec<u8>) {
        VERBS.encode(out);
        hello.encode(out);
    }

    /// Encodes the announcement of another server's worker.
    pub fn encode_peer(hello: &PeerHello, out: &mut Vec<u8>) {
        PEER.encode(out);
        hello.encode(out);
    }

    /// Encodes the announcement of a lane.
    pub fn encode_lane(hello: &LaneHello, out: &mut Vec<u8>) {
        LANE.encode(out);
        hello.encode(out);
    }
}

impl<'a> Decode<'a> for Opening<'a> {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            SESSION => Ok(Self::Session { offer: input.value()?, rest: input.take(input.remaining())? }),
            LANE => Ok(Self::Lane(input.value()?)),
            JOIN => Ok(Self::Join(input.value()?)),
            VERBS => Ok(Self::Verbs(input.value()?)),
            PEER => Ok(Self::Peer(input.value()?)),
            MONITOR => Ok(Self::Monitor { offer: input.value()?, rest: input.take(input.remaining())? }),
            DIAGNOSIS => Ok(Self::Diagnosis { offer: input.value()?, rest: input.take(input.remaining())? }),
            other => Err(DecodeError::UnknownTag { what: "first message", value: u64::from(other) }),
        }
    }
}

impl ClientHello {
    /// Decodes what follows the offer in a request for a session.
    pub fn decode_rest(offer: Offer, rest: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(rest);
        let ClientDetails { pid, host, program, environment, lanes } = input.value()?;
        input.finish()?;
        Ok(Self { offer, pid, host, program, environment, lanes })
    }
}

/// Where the server is, for a client that may be on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locality {
    /// What the server's kernel calls its current life; empty when it cannot be read. Equal ones mean one kernel;
    /// different ones mean little, since some containers are shown one of their own.
    pub boot_id: String,
    /// Unix sockets at which the server can be reached from its own host: paths, or `@` and an abstract name.
    pub sockets: Vec<String>,
}

record!(Locality { boot_id, sockets });

/// The sizes of the memory that a worker shares with its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMemory {
    /// Slots of the staging arena for transfers from the client.
    pub upload_slots: u32,
    /// Slots for transfers from the worker.
    pub download_slots: u32,
}

record!(SharedMemory { upload_slots, download_slots });

/// What a client wants of verbs, on a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerbsHello {
    /// The session.
    pub session: SessionId,
    /// Proof that it is the client's.
    pub token: LaneToken,
    /// Whether rdma_cm is to join the queue pairs, instead of their numbers being told here.
    pub by_manager: bool,
    /// How many queue pairs the client would like.
    pub queue_pairs: u32,
    /// How many messages it would like to have under way on each.
    pub depth: u32,
}

record!(VerbsHello { session, token, by_manager, queue_pairs, depth });

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

/// A granted session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The protocol version that both ends talk from here on.
    pub version: u16,
    /// Names the session.
    pub session: SessionId,
    /// Goes into the [`LaneHello`] of every lane.
    pub token: LaneToken,
    /// How many lanes the client may open.
    pub lanes: u32,
    /// Version of the server, for people to read.
    pub release: String,
    /// Where the server is.
    pub locality: Locality,
    /// Everything about the devices that the client answers by itself; opaque here.
    pub snapshot: Vec<u8>,
}

/// The server's answer to an [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The session is granted.
    Welcome(Welcome),
    /// The lane has joined its session.
    LaneReady,
    /// The memory comes with the next message.
    SharedMemory(SharedMemory),
    /// The worker's end of the queue pairs.
    Verbs(VerbsEnd),
    /// The queue pairs are joined, as far as this end can tell.
    VerbsReady,
    /// The monitoring session is granted.
    MonitorReady,
    /// The diagnosis is granted.
    DiagnosisReady,
    /// The request is refused.
    Refused {
        /// Why, as a sentence for the user.
        text: String,
    },
}

const WELCOME: u8 = 1;
const LANE_READY: u8 = 2;
const REFUSED: u8 = 3;
const MONITOR_READY: u8 = 4;
const SHARED_MEMORY: u8 = 5;
const VERBS_END: u8 = 6;
const VERBS_READY: u8 = 7;
const DIAGNOSIS_READY: u8 = 8;

impl Encode for Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome(welcome) => {
                WELCOME.encode(out);
                welcome.version.encode(out);
                welcome.session.encode(out);
                welcome.token.encode(out);
                welcome.lanes.encode(out);
                welcome.release.encode(out);
                welcome.locality.encode(out);
                welcome.snapshot.as_slice().encode(out);
            }
            Self::LaneReady => LANE_READY.encode(out),
            Self::MonitorReady => MONITOR_READY.encode(out),
            Self::Verbs(end) => {
                VERBS_END.encode(out);
                end.encode(out);
            }
            Self::VerbsReady => VERBS_READY.encode(out),
            Self::DiagnosisReady => DIAGNOSIS_READY.encode(out),
            Self::SharedMemory(memory) => {
                SHARED_MEMORY.encode(out);
                memory.encode(out);
            }
            Self::Refused { text } => {
                REFUSED.encode(out);
                text.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for Answer {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            WELCOME => Ok(Self::Welcome(Welcome {
                version: input.value()?,
                session: input.value()?,
                token: input.value()?,
                lanes: input.value()?,
                release: input.value()?,
                locality: input.value()?,
                snapshot: input.value::<&[u8]>()?.to_vec(),
            })),
            LANE_READY => Ok(Self::LaneReady),
            MONITOR_READY => Ok(Self::MonitorReady),
            DIAGNOSIS_READY => Ok(Self::DiagnosisReady),
            SHARED_MEMORY => Ok(Self::SharedMemory(input.value()?)),
            VERBS_END => Ok(Self::Verbs(input.value()?)),
            VERBS_READY => Ok(Self::VerbsReady),
            REFUSED => Ok(Self::Refused { text: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "handshake answer", value: u64::from(other) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(oldest: u16, newest: u16, fingerprint: u64) -> Offer {
        Offer { versions: VersionRange { oldest, newest }, fingerprint, release: format!("0.{newest}.0") }
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(negotiate(&offer(1, 4, 9), &offer(2, 3, 9)), Ok(3));
        assert_eq!(negotiate(&offer(3, 4, 9), &offer(2, 3, 9)), Ok(3));
    }

    #[test]
    fn a_mismatch_names_both_versions_and_says_what_to_do() {
        let text = negotiate(&offer(3, 4, 9), &offer(1, 2, 9)).unwrap_err().to_string();
        assert_eq!(
            text,
            "the server is Causeway 0.4.0 (protocols 3 to 4) and the client is Causeway 0.2.0 (protocols 1 \
             to 2), \
             and they have no protocol version in common; install the same release on both machines"
        );
        let text = negotiate(&offer(1, 1, 9), &offer(1, 1, 10)).unwrap_err().to_string();
        assert!(text.contains("API list 0000000000000009") && text.contains("API list 000000000000000a"));
    }

    #[test]
    fn prefaces_survive_a_round_trip_and_foreign_bytes_do_not() {
        for preface in [Preface { encrypted: true }, Preface { encrypted: false }] {
            assert_eq!(Preface::parse(&preface.to_bytes()), Ok(preface));
        }
        for answer in [PrefaceAnswer::GoOn, PrefaceAnswer::Refused { length: 300 }] {
            assert_eq!(PrefaceAnswer::parse(&answer.to_bytes()), Ok(answer));
        }
        assert!(PrefaceAnswer::parse(&PrefaceAnswer::Refused { length: 2000 }.to_bytes()).is_err());
        assert!(Preface::parse(b"GET / HT").is_err());
        assert!(PrefaceAnswer::parse(b"SSH-2.0-").is_err());
    }

    #[test]
    fn a_token_is_compared_whole_and_never_printed() {
        let mut other = [7; 32];
        assert_eq!(LaneToken(other), LaneToken([7; 32]));
        other[31] ^= 1;
        assert_ne!(LaneToken(other), LaneToken([7; 32]));
        assert_eq!(format!("{:?}", LaneToken(other)), "LaneToken(..)");
    }
}
