//! What the broker says to the process that answers monitoring sessions.

use causeway_connection::record::ConnectionKeys;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::record;
use causeway_wire::text::Printable;

use crate::admission::Source;

/// What the broker says to the process that answers monitoring sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMonitor {
    /// Answer this client, whose connection comes along.
    Client {
        /// With which others it shares what one may have.
        source: Source,
        /// Its host's name; nothing where the broker itself asks, to whom all processes are shown.
        host: Option<Printable>,
        /// The state of the encryption of the connection.
        keys: Option<ConnectionKeys>,
        /// The device memory that it and those may have together, if that is limited.
        device_memory: Option<u64>,
        /// What it has proved, by a number of the broker's; 0 where that always counts.
        credential: u32,
    },
    /// What clients have proved does not count any more: end their connections.
    Revoked {
        /// Its number.
        credential: u32,
    },
    /// The session of this worker is counted in the memory that comes along.
    Counts {
        /// The worker's process.
        worker: u32,
    },
    /// A session with a worker has begun, of this source.
    SessionStarted(WorkerOf, Source),
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
    pub host: Printable,
}

record!(WorkerOf { worker, client, host });

const CLIENT: u8 = 1;
const SESSION_STARTED: u8 = 2;
const ENDED: u8 = 3;
const COUNTS: u8 = 4;
const REVOKED: u8 = 5;

impl Encode for ToMonitor {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Client { source, host, keys, device_memory, credential } => {
                CLIENT.encode(out);
                source.encode(out);
                host.encode(out);
                keys.encode(out);
                device_memory.encode(out);
                credential.encode(out);
            }
            Self::Revoked { credential } => {
                REVOKED.encode(out);
                credential.encode(out);
            }
            Self::Counts { worker } => {
                COUNTS.encode(out);
                worker.encode(out);
            }
            Self::SessionStarted(worker, source) => {
                SESSION_STARTED.encode(out);
                worker.encode(out);
                source.encode(out);
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
            CLIENT => Ok(Self::Client {
                source: input.value()?,
                host: input.value()?,
                keys: input.value()?,
                device_memory: input.value()?,
                credential: input.value()?,
            }),
            REVOKED => Ok(Self::Revoked { credential: input.value()? }),
            COUNTS => Ok(Self::Counts { worker: input.value()? }),
            SESSION_STARTED => Ok(Self::SessionStarted(input.value()?, input.value()?)),
            ENDED => Ok(Self::Ended { worker: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message to a monitor", value: u64::from(other) }),
        }
    }
}
