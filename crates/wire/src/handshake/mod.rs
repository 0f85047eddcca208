//! The handshake: how a client and a server agree to talk.
//!
//! A connection begins with a [`Preface`] of the client and a [`PrefaceResponse`] of the server, both in the
//! clear: they say how the connection is protected, so that a missing or needless key gets a sentence
//! instead of a hang. On a protected connection the Noise messages follow. Then each end sends one message
//! of this module, in a frame of kind [`FrameKind::Handshake`](crate::frame::FrameKind::Handshake): an
//! [`Opening`] and an [`Response`].
//!
//! The fields of [`Offer`] stay where they are in every version of the protocol, so that two ends that have
//! nothing else in common can still name each other's version.

mod abilities;
mod further;
mod offer;
mod preface;
mod session;
mod version;

pub use abilities::{Abilities, CommandTable, Features, KnownCommands, OtherCommands};
pub use further::{
    JoinHello, KeyId, LaneHello, NewKey, PeerHello, SharedMemory, TicketId, UpgradeHello, VerbsEnd,
    VerbsHello,
};
pub use offer::{Offer, VERSIONS, VersionRange};
pub use preface::{
    FOR_A_CLIENT, FOR_A_NAMED_CLIENT, MAX_REFUSAL, NotCauseway, PREFACE_MAGIC, PREFACE_SIZE, PROOF_SIZE,
    Preface, PrefaceResponse, Protection, Secret,
};
pub use session::{ClientHello, LaneToken, Locality, SessionId, Welcome};
pub use version::{OwnVersion, VersionMismatch};

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::text::Printable;

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
    /// The connection is for changing over to another transport, over which the session could go on.
    Upgrade(UpgradeHello),
    /// The caller is the worker of another server.
    Peer(PeerHello),
    /// The client asks for a monitoring session, which has no worker: questions about the server's devices
    /// and their answers, one at a time. The fields are those of [`Opening::Session`].
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
    /// The client asks how the server is ([`crate::status`]). The fields are those of [`Opening::Session`].
    Status {
        /// What the client can talk.
        offer: Offer,
        /// The rest of the hello.
        rest: &'a [u8],
    },
    /// An invited client enrols its key. The other fields are those of [`Opening::Session`].
    Enrol {
        /// The key.
        key: NewKey,
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
const STATUS: u8 = 8;
const ENROL: u8 = 9;

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

    /// Encodes the request for a status session.
    pub fn encode_status(hello: &ClientHello, out: &mut Vec<u8>) {
        STATUS.encode(out);
        hello.encode(out);
    }

    /// Encodes the enrolment of a key.
    pub fn encode_enrol(hello: &ClientHello, key: &NewKey, out: &mut Vec<u8>) {
        ENROL.encode(out);
        key.encode(out);
        hello.encode(out);
    }

    /// Encodes the request to change over to another transport.
    pub fn encode_upgrade(hello: &UpgradeHello, out: &mut Vec<u8>) {
        match hello {
            UpgradeHello::Join(hello) => {
                JOIN.encode(out);
                hello.encode(out);
            }
            UpgradeHello::Verbs(hello) => {
                VERBS.encode(out);
                hello.encode(out);
            }
        }
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
            JOIN => Ok(Self::Upgrade(UpgradeHello::Join(input.value()?))),
            VERBS => Ok(Self::Upgrade(UpgradeHello::Verbs(input.value()?))),
            PEER => Ok(Self::Peer(input.value()?)),
            MONITOR => Ok(Self::Monitor { offer: input.value()?, rest: input.take(input.remaining())? }),
            DIAGNOSIS => Ok(Self::Diagnosis { offer: input.value()?, rest: input.take(input.remaining())? }),
            ENROL => Ok(Self::Enrol {
                key: input.value()?,
                offer: input.value()?,
                rest: input.take(input.remaining())?,
            }),
            STATUS => Ok(Self::Status { offer: input.value()?, rest: input.take(input.remaining())? }),
            other => Err(DecodeError::UnknownTag { what: "first message", value: u64::from(other) }),
        }
    }
}

/// The server's answer to an [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
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
    /// The status session is granted.
    StatusReady,
    /// The client's key is enrolled.
    Enrolled,
    /// The request is refused.
    Refused {
        /// Why, as a sentence for the user.
        text: Printable,
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
const STATUS_READY: u8 = 9;
const ENROLLED: u8 = 10;

impl Encode for Response {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Welcome(welcome) => {
                WELCOME.encode(out);
                welcome.encode(out);
            }
            Self::LaneReady => LANE_READY.encode(out),
            Self::MonitorReady => MONITOR_READY.encode(out),
            Self::Verbs(end) => {
                VERBS_END.encode(out);
                end.encode(out);
            }
            Self::VerbsReady => VERBS_READY.encode(out),
            Self::DiagnosisReady => DIAGNOSIS_READY.encode(out),
            Self::StatusReady => STATUS_READY.encode(out),
            Self::Enrolled => ENROLLED.encode(out),
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

impl<'a> Decode<'a> for Response {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            WELCOME => Ok(Self::Welcome(input.value()?)),
            LANE_READY => Ok(Self::LaneReady),
            MONITOR_READY => Ok(Self::MonitorReady),
            DIAGNOSIS_READY => Ok(Self::DiagnosisReady),
            STATUS_READY => Ok(Self::StatusReady),
            ENROLLED => Ok(Self::Enrolled),
            SHARED_MEMORY => Ok(Self::SharedMemory(input.value()?)),
            VERBS_END => Ok(Self::Verbs(input.value()?)),
            VERBS_READY => Ok(Self::VerbsReady),
            REFUSED => Ok(Self::Refused { text: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "handshake answer", value: u64::from(other) }),
        }
    }
}
