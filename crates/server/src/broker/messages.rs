//! What do broker and worker say to each other?
//!
//! The broker reads exactly one request from a connection, and the client says no more before it is
//! answered. So a connection is its descriptor and the state of its encryption, and both fit into one
//! message on the worker's control socket.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use causeway_fabric::tcp::channel::Connection;
use causeway_fabric::tcp::record::ConnectionKeys;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::handshake::{ClientHello, LaneToken, Locality, Offer, SessionId, VerbsHello};
use causeway_wire::record;
use thiserror::Error;

use super::board::Token;
use super::config::GpuChoice;
use super::control::Control;
use crate::cache::CacheStart;

/// What a worker needs to know of its session; comes first, with the command connection.
#[derive(Debug, Clone)]
pub struct SessionStart {
    /// What the client said of itself; its encoding begins with the offer, which the broker has checked.
    pub hello: ClientHello,
    /// The protocol version to talk.
    pub version: u16,
    /// Names the session.
    pub session: SessionId,
    /// Proves that a lane belongs to it.
    pub token: LaneToken,
    /// How many lanes the client may open.
    pub lanes: u32,
    /// Which GPU to work with.
    pub gpu: GpuChoice,
    /// Where images of the client's identity are kept, if they are.
    pub cache: Option<CacheStart>,
    /// Where the client may find the broker on its own host.
    pub locality: Locality,
    /// The state of the encryption of the connection.
    pub keys: Option<ConnectionKeys>,
}

/// What the broker says to a worker. Its first message says what the process is for.
#[derive(Debug)]
pub enum ToWorker {
    /// Start the GPU; the client comes later.
    Prepare {
        /// Which GPU.
        gpu: GpuChoice,
    },
    /// Answer monitoring sessions; what follows are [`ToMonitor`] messages.
    Monitor {
        /// Which GPU to tell of.
        gpu: GpuChoice,
    },
    /// Tell the client, whose connection comes along, what this machine is like.
    Diagnose {
        /// The state of the encryption of the connection.
        keys: Option<ConnectionKeys>,
    },
    /// Serve this client.
    Start(Box<SessionStart>),
    /// The client has opened a bulk lane.
    Lane {
        /// The state of the lane's encryption.
        keys: Option<ConnectionKeys>,
    },
    /// The worker of another server has come with a ticket; its connection comes along.
    Peer {
        /// The ticket.
        ticket: LaneToken,
        /// Which of its connections it is: 0 carries messages, those from 1 on are lanes.
        connection: u32,
        /// The state of the encryption of the connection.
        keys: Option<ConnectionKeys>,
    },
    /// The worker of another server, which has come with this ticket, has shown that it is on this host; its connection comes
    /// along.
    PeerJoin {
        /// The ticket.
        ticket: LaneToken,
    },
    /// The client has shown that it is on this host; its connection comes along.
    Join,
    /// The client would like to go on over verbs; the connection for setting them up comes along.
    Verbs {
        /// What it wants.
        hello: VerbsHello,
        /// The state of the connection's encryption.
        keys: Option<ConnectionKeys>,
    },
    /// The answer to a question of the worker.
    Answer {
        /// The number of the question.
        number: u32,
        /// What was found; nothing when there is nothing, or when what was to be left is not taken.
        bytes: Option<Vec<u8>>,
    },
}

/// What a worker says to its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToBroker {
    /// The client is about to be answered; from here on the connection is the worker's alone.
    Answering,
    /// The client has gone.
    ClientGone,
    /// Let the worker of another server come with this ticket.
    Ticket {
        /// The number of the question.
        number: u32,
        /// The ticket.
        ticket: LaneToken,
    },
    /// Keep something for other sessions; a descriptor may come with it.
    Leave {
        /// The number of the question.
        number: u32,
        /// What the other sessions will ask for.
        token: Token,
        /// What it is.
        bytes: Vec<u8>,
    },
    /// What has a session left under this token?
    Find {
        /// The number of the question.
        number: u32,
        /// What the other session was told.
        token: Token,
    },
    /// Give up what this session has left.
    Withdraw {
        /// What it was left under.
        token: Token,
    },
}

/// Everything of a [`SessionStart`] but the hello, whose length only its end tells.
struct StartFields {
    version: u16,
    session: SessionId,
    token: LaneToken,
    lanes: u32,
    gpu: String,
    cache: Option<CacheStart>,
    locality: Locality,
    keys: Option<ConnectionKeys>,
    offer: Offer,
}

record!(StartFields { version, session, token, lanes, gpu, cache, locality, keys, offer });

const START: u8 = 1;
const LANE: u8 = 2;
const MONITOR: u8 = 3;
const ANSWER: u8 = 4;
const PREPARE: u8 = 5;
const JOIN: u8 = 6;
const VERBS: u8 = 7;
const DIAGNOSE: u8 = 8;
const PEER: u8 = 9;
const PEER_JOIN: u8 = 10;
const ANSWERING: u8 = 1;
const CLIENT_GONE: u8 = 2;
const LEAVE: u8 = 3;
const FIND: u8 = 4;
const WITHDRAW: u8 = 5;
const TICKET: u8 = 6;

impl Encode for ToWorker {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Start(start) => {
                START.encode(out);
                start.version.encode(out);
                start.session.encode(out);
                start.token.encode(out);
                start.lanes.encode(out);
                start.gpu.to_string().encode(out);
                start.cache.encode(out);
                start.locality.encode(out);
                start.keys.encode(out);
                start.hello.encode(out);
            }
            Self::Lane { keys } => {
                LANE.encode(out);
                keys.encode(out);
            }
            Self::Diagnose { keys } => {
                DIAGNOSE.encode(out);
                keys.encode(out);
            }
            Self::Join => JOIN.encode(out),
            Self::Verbs { hello, keys } => {
                VERBS.encode(out);
                hello.encode(out);
                keys.encode(out);
            }
            Self::PeerJoin { ticket } => {
                PEER_JOIN.encode(out);
                ticket.encode(out);
            }
            Self::Peer { ticket, connection, keys } => {
                PEER.encode(out);
                ticket.encode(out);
                connection.encode(out);
                keys.encode(out);
            }
            Self::Monitor { gpu } => {
                MONITOR.encode(out);
                gpu.to_string().encode(out);
            }
            Self::Prepare { gpu } => {
                PREPARE.encode(out);
                gpu.to_string().encode(out);
            }
            Self::Answer { number, bytes } => {
                ANSWER.encode(out);
                number.encode(out);
                bytes.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for ToWorker {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            START => {
                let StartFields { version, session, token, lanes, gpu, cache, locality, keys, offer } =
                    input.value()?;
                let rest = input.take(input.remaining())?;
                let hello = ClientHello::decode_rest(offer, rest)?;
                let gpu = gpu.parse().map_err(|_| DecodeError::MalformedText)?;
                Ok(Self::Start(Box::new(SessionStart {
                    hello,
                    version,
                    session,
                    token,
                    lanes,
                    gpu,
                    cache,
                    locality,
                    keys,
                })))
            }
            LANE => Ok(Self::Lane { keys: input.value()? }),
            JOIN => Ok(Self::Join),
            VERBS => Ok(Self::Verbs { hello: input.value()?, keys: input.value()? }),
            DIAGNOSE => Ok(Self::Diagnose { keys: input.value()? }),
            PEER_JOIN => Ok(Self::PeerJoin { ticket: input.value()? }),
            PEER => {
                Ok(Self::Peer { ticket: input.value()?, connection: input.value()?, keys: input.value()? })
            }
            MONITOR => {
                let gpu = input.value::<&str>()?.parse().map_err(|_| DecodeError::MalformedText)?;
                Ok(Self::Monitor { gpu })
            }
            PREPARE => {
                let gpu = input.value::<&str>()?.parse().map_err(|_| DecodeError::MalformedText)?;
                Ok(Self::Prepare { gpu })
            }
            ANSWER => Ok(Self::Answer { number: input.value()?, bytes: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message of a broker", value: u64::from(other) }),
        }
    }
}

impl Encode for ToBroker {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Answering => ANSWERING.encode(out),
            Self::ClientGone => CLIENT_GONE.encode(out),
            Self::Ticket { number, ticket } => {
                TICKET.encode(out);
                number.encode(out);
                ticket.encode(out);
            }
            Self::Leave { number, token, bytes } => {
                LEAVE.encode(out);
                number.encode(out);
                token.encode(out);
                bytes.encode(out);
            }
            Self::Find { number, token } => {
                FIND.encode(out);
                number.encode(out);
                token.encode(out);
            }
            Self::Withdraw { token } => {
                WITHDRAW.encode(out);
                token.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for ToBroker {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            ANSWERING => Ok(Self::Answering),
            CLIENT_GONE => Ok(Self::ClientGone),
            LEAVE => Ok(Self::Leave { number: input.value()?, token: input.value()?, bytes: input.value()? }),
            FIND => Ok(Self::Find { number: input.value()?, token: input.value()? }),
            WITHDRAW => Ok(Self::Withdraw { token: input.value()? }),
            TICKET => Ok(Self::Ticket { number: input.value()?, ticket: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message of a worker", value: u64::from(other) }),
        }
    }
}

/// What the broker says to the process that answers monitoring sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMonitor {
    /// Answer this client, whose connection comes along.
    Client {
        /// Its host's name.
        host: String,
        /// The state of the encryption of the connection.
        keys: Option<ConnectionKeys>,
    },
    /// A session with a worker has begun.
    Began(WorkerOf),
    /// The session of this worker has ended.
    Ended {
        /// The worker's process.
        worker: u32,
    },
}

/// Whose worker a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOf {
    /// The worker's process.
    pub worker: u32,
    /// The client's process, on its own host.
    pub client: u32,
    /// The client's host.
    pub host: String,
}

record!(WorkerOf { worker, client, host });

const CLIENT: u8 = 1;
const BEGAN: u8 = 2;
const ENDED: u8 = 3;

impl Encode for ToMonitor {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Client { host, keys } => {
                CLIENT.encode(out);
                host.encode(out);
                keys.encode(out);
            }
            Self::Began(worker) => {
                BEGAN.encode(out);
                worker.encode(out);
            }
            Self::Ended { worker } => {
                ENDED.encode(out);
                worker.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for ToMonitor {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            CLIENT => Ok(Self::Client { host: input.value()?, keys: input.value()? }),
            BEGAN => Ok(Self::Began(input.value()?)),
            ENDED => Ok(Self::Ended { worker: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message to a monitor", value: u64::from(other) }),
        }
    }
}

/// Why a broker and a worker do not understand each other.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The control socket failed.
    #[error("the control connection between broker and worker failed: {0}")]
    Io(#[from] io::Error),
    /// A message makes no sense.
    #[error("a message between broker and worker is damaged: {0}")]
    Damaged(#[from] DecodeError),
    /// A message that must carry a descriptor has none.
    #[error("a message between broker and worker lacks its descriptor")]
    NoDescriptor,
    /// The other process has ended.
    #[error("the other end of the control connection is closed")]
    Closed,
}

/// Sends a message, and with it a connection's descriptor.
pub fn send(control: &Control, message: &impl Encode, socket: Option<&OwnedFd>) -> Result<(), ControlError> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    Ok(control.send(&bytes, socket.map(|socket| socket.as_fd()))?)
}

/// Receives a message, and the descriptor that came with it.
pub fn receive<T: for<'a> Decode<'a>>(control: &Control) -> Result<(T, Option<OwnedFd>), ControlError> {
    let (bytes, descriptor) = control.receive()?.ok_or(ControlError::Closed)?;
    let mut input = Decoder::new(&bytes);
    let message = input.value()?;
    input.finish()?;
    Ok((message, descriptor))
}

/// Takes an answered connection apart, for handing it over.
pub fn take_apart(connection: Connection) -> io::Result<(OwnedFd, Option<ConnectionKeys>)> {
    let socket = OwnedFd::from(connection.socket().try_clone()?);
    Ok((socket, connection.into_keys().map_err(io::Error::other)?))
}

#[cfg(test)]
mod tests {
    use causeway_wire::handshake::{LaneToken, VERSIONS};

    use super::*;

    #[test]
    fn a_session_start_survives_the_control_connection_with_its_descriptor() {
        let (broker, worker) = Control::pair().unwrap();
        let hello = ClientHello {
            offer: Offer { versions: VERSIONS, fingerprint: 5, release: "0.1.0".into() },
            pid: 7,
            host: "host".into(),
            program: "program".into(),
            environment: vec![("CUDA_VISIBLE_DEVICES".into(), "1".into())],
            lanes: 3,
        };
        let cache = CacheStart { folder: b"/cache".to_vec(), capacity: 9, identity: "i".into() };
        let locality = Locality { boot_id: "b".into(), sockets: vec!["@causeway-1".into()] };
        let start = SessionStart {
            hello: hello.clone(),
            version: 1,
            session: SessionId([1; 16]),
            token: LaneToken([2; 32]),
            lanes: 2,
            gpu: GpuChoice::Cpu,
            cache: Some(cache.clone()),
            locality: locality.clone(),
            keys: None,
        };
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        send(&broker, &ToWorker::Start(Box::new(start)), Some(&file)).unwrap();
        let (message, descriptor) = receive(&worker).unwrap();
        let ToWorker::Start(start) = message else { panic!("another message") };
        assert_eq!((start.hello, start.lanes, start.gpu), (hello, 2, GpuChoice::Cpu));
        assert_eq!((start.cache, start.locality), (Some(cache), locality));
        assert!(start.token == LaneToken([2; 32]) && descriptor.is_some());
        send(&worker, &ToBroker::ClientGone, None).unwrap();
        assert_eq!(receive::<ToBroker>(&broker).unwrap().0, ToBroker::ClientGone);
        drop(worker);
        assert!(matches!(receive::<ToBroker>(&broker), Err(ControlError::Closed)));
    }
}
