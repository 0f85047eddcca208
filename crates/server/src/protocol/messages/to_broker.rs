//! What a worker says to its broker.

use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::handshake::LaneToken;
use causeway_wire::record;

/// What finds an export of a session.
pub type Token = [u8; 16];

/// Bytes that a session has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Whether they came from the client.
    pub is_received: bool,
    /// Whether they were of copies by themselves, and not among messages.
    pub is_bulk: bool,
    /// How many.
    pub bytes: u64,
}

record!(Carried { is_received, is_bulk, bytes });

/// Why a session cannot be taken up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotTakenUp {
    /// A sentence for people.
    pub text: String,
    /// Whether the device has too little memory now.
    pub lacks_memory: bool,
}

impl From<String> for NotTakenUp {
    fn from(text: String) -> Self {
        Self { text, lacks_memory: false }
    }
}

/// The state of a session that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenState {
    /// How long it is.
    pub bytes: u64,
    /// Whether it has variables of code that are to be found again by their names: their addresses may be
    /// others then, of which only a trial tells whether the program can do with them.
    pub has_variables: bool,
}

/// What a worker says to its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToBroker {
    /// The GPU has been started before there is a client, or why it cannot be.
    Prepared {
        /// What is sent to clients; nothing where the GPU works.
        failure: Option<String>,
    },
    /// The client is to be refused, for the GPU cannot be started.
    NoGpu {
        /// What is sent to the client.
        text: String,
    },
    /// The client is about to be answered; from here on the connection is the worker's alone.
    Answering,
    /// What the session does is counted in the memory that comes with this.
    Counts,
    /// The client has gone.
    ClientDisconnected,
    /// The answer to a [ping](super::ToWorker::Ping).
    Pong {
        /// The number of the question.
        number: u32,
        /// How many steps the thread that handles commands has made.
        progress: u64,
    },
    /// Let the worker of another server come with this ticket.
    Ticket {
        /// The number of the question.
        number: u32,
        /// The ticket.
        ticket: LaneToken,
    },
    /// Keep something for other sessions; a descriptor may come with it.
    Export {
        /// The number of the question.
        number: u32,
        /// What the other sessions will ask for.
        token: Token,
        /// What it is.
        bytes: Vec<u8>,
    },
    /// What has a session exported under this token?
    Find {
        /// The number of the question.
        number: u32,
        /// What was sent to the other session.
        token: Token,
    },
    /// Connect to another server for this worker; the answer carries the connection, or says why there is
    /// none.
    Dial {
        /// The number of the question.
        number: u32,
        /// Where to, as a target without a key.
        address: String,
        /// How long that may take.
        milliseconds: u32,
        /// What the other server has proved of its address.
        proof: [u8; 32],
    },
    /// Is there an image of an earlier session? The answer brings its file.
    FindImage {
        /// The number of the question.
        number: u32,
        /// The hash of its content.
        hash: [u8; 32],
        /// Its bytes.
        length: u64,
    },
    /// Keep an image for later sessions; sealed memory with it comes along.
    KeepImage {
        /// The number of the question, which is answered when it is done.
        number: u32,
        /// The hash of its content.
        hash: [u8; 32],
    },
    /// The session takes more device memory; it may, if this is answered. The reply has [`UNLIMITED`] where
    /// there is no limit.
    Reserve {
        /// The number of the question.
        number: u32,
        /// How many bytes more.
        bytes: u64,
        /// All memory of a device that the broker alone divides up among sessions; 0 for another one.
        capacity: u64,
    },
    /// The session takes more device memory, of which its peer may have any amount.
    Take {
        /// How many bytes more.
        bytes: u64,
    },
    /// The session has less device memory than before.
    Release {
        /// How many bytes less.
        bytes: u64,
    },
    /// How much device memory may the session have, and how much of that is left?
    MemoryInfo {
        /// The number of the question.
        number: u32,
        /// As in [`Self::Reserve`].
        capacity: u64,
    },
    /// May the session's device memory go to the host, or to the server's disk? The answer has no text where
    /// it may, and why not otherwise; and a file, if one is wanted.
    Suspend {
        /// The number of the question.
        number: u32,
        /// How many bytes of device memory the session has.
        bytes: u64,
        /// How many bytes of the worker's own memory that takes at most.
        host_bytes: u64,
        /// Whether they go to a file.
        needs_file: bool,
    },
    /// The device memory has gone, which took so many nanoseconds.
    Suspended {
        /// How many bytes of it the session has.
        bytes: u64,
        /// The time.
        nanoseconds: u64,
    },
    /// The device memory stays, although it might have gone.
    StaysResident,
    /// May the device memory come back? The answer has no text where it may, and why not otherwise.
    Reclaim {
        /// The number of the question.
        number: u32,
        /// As in [`Self::Reserve`].
        capacity: u64,
    },
    /// The device memory has come back, after so many nanoseconds.
    Returned {
        /// The time.
        nanoseconds: u64,
    },
    /// Device memory of the idle session cannot be released.
    ReleaseRefused {
        /// Why.
        text: String,
    },
    /// The answer to [`Release`](super::ToWorker::Release).
    ReleaseOutcome {
        /// The number of the question.
        number: u32,
        /// Why nothing was released; nothing when it was.
        refused: Option<String>,
    },
    /// The session, whose bandwidth is limited, has carried something; the answer says for how many
    /// nanoseconds it waits.
    Carried {
        /// The number of the question.
        number: u32,
        /// What.
        carried: Carried,
    },
    /// The session has kernels to run and no slot of a device; answered by [`Slot`](super::ToWorker::Slot)
    /// when it may.
    SlotRequest {
        /// The device's number.
        device: u32,
    },
    /// All kernels of the session have ended that it issued by this lease.
    SlotEnded {
        /// The device's number.
        device: u32,
        /// The lease.
        lease: u32,
    },
    /// The answer to [`Checkpoint`](super::ToWorker::Checkpoint): the session is held, and its state written.
    Checkpointed {
        /// The number of the request.
        number: u32,
        /// The state; or why there is none, and the session goes on.
        outcome: Result<WrittenState, String>,
    },
    /// The session of which the state was wanted is held at a quiet point.
    Quiet {
        /// The number of the request.
        number: u32,
    },
    /// The client has come back: the session goes on here.
    ClientReturned {
        /// Why, for people.
        text: String,
    },
    /// The session has been taken up, or why it cannot be.
    Restored {
        /// Why not; nothing when it was.
        refused: Option<NotTakenUp>,
    },
    /// The client has come to the session that was taken up.
    Arrived,
    /// Give up what this session has exported.
    Withdraw {
        /// What it was exported under.
        token: Token,
    },
}

impl ToBroker {
    /// Whether this is about a session that goes to another worker, or comes from one.
    pub fn is_about_move(&self) -> bool {
        matches!(
            self,
            Self::Checkpointed { .. }
                | Self::Quiet { .. }
                | Self::ClientReturned { .. }
                | Self::Restored { .. }
                | Self::Arrived
        )
    }

    /// Whether this is about device memory that goes to the host or comes back.
    pub fn is_about_release(&self) -> bool {
        matches!(
            self,
            Self::Suspend { .. }
                | Self::Suspended { .. }
                | Self::StaysResident
                | Self::Reclaim { .. }
                | Self::Returned { .. }
                | Self::ReleaseRefused { .. }
                | Self::ReleaseOutcome { .. }
        )
    }
}

const ANSWERING: u8 = 1;
const CLIENT_DISCONNECTED: u8 = 2;
const EXPORT: u8 = 3;
const FIND: u8 = 4;
const WITHDRAW: u8 = 5;
const TICKET: u8 = 6;
const DIAL: u8 = 7;
const PONG: u8 = 8;
const FIND_IMAGE: u8 = 9;
const KEEP_IMAGE: u8 = 10;
const COUNTS: u8 = 11;
const PREPARED: u8 = 12;
const NO_GPU: u8 = 13;
const RESERVE: u8 = 14;
const RELEASE: u8 = 15;
const MEMORY_INFO: u8 = 16;
const TAKE: u8 = 17;
const SUSPEND: u8 = 18;
const SUSPENDED: u8 = 19;
const STAYS_RESIDENT: u8 = 20;
const RECLAIM: u8 = 21;
const RETURNED: u8 = 22;
const RELEASE_REFUSED: u8 = 23;
const RELEASE_OUTCOME: u8 = 24;
const CARRIED: u8 = 25;
const CHECKPOINTED: u8 = 26;
const RETURNED_CLIENT: u8 = 27;
const RESTORED: u8 = 28;
const ARRIVED: u8 = 29;
const SLOT_REQUEST: u8 = 30;
const SLOT_ENDED: u8 = 31;
const QUIET: u8 = 32;

/// The reply to a session that asks for device memory and need not ask.
pub const UNLIMITED: &[u8] = b"unlimited";

impl Encode for ToBroker {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Prepared { failure } => {
                PREPARED.encode(out);
                failure.encode(out);
            }
            Self::NoGpu { text } => {
                NO_GPU.encode(out);
                text.encode(out);
            }
            Self::Answering => ANSWERING.encode(out),
            Self::ClientDisconnected => CLIENT_DISCONNECTED.encode(out),
            Self::Counts => COUNTS.encode(out),
            Self::Pong { number, progress } => {
                PONG.encode(out);
                number.encode(out);
                progress.encode(out);
            }
            Self::Ticket { number, ticket } => {
                TICKET.encode(out);
                number.encode(out);
                ticket.encode(out);
            }
            Self::Export { number, token, bytes } => {
                EXPORT.encode(out);
                number.encode(out);
                token.encode(out);
                bytes.encode(out);
            }
            Self::Find { number, token } => {
                FIND.encode(out);
                number.encode(out);
                token.encode(out);
            }
            Self::Dial { number, address, milliseconds, proof } => {
                DIAL.encode(out);
                number.encode(out);
                address.encode(out);
                milliseconds.encode(out);
                proof.encode(out);
            }
            Self::FindImage { number, hash, length } => {
                FIND_IMAGE.encode(out);
                number.encode(out);
                hash.encode(out);
                length.encode(out);
            }
            Self::KeepImage { number, hash } => {
                KEEP_IMAGE.encode(out);
                number.encode(out);
                hash.encode(out);
            }
            Self::Reserve { number, bytes, capacity } => {
                RESERVE.encode(out);
                number.encode(out);
                bytes.encode(out);
                capacity.encode(out);
            }
            Self::Take { bytes } => {
                TAKE.encode(out);
                bytes.encode(out);
            }
            Self::Release { bytes } => {
                RELEASE.encode(out);
                bytes.encode(out);
            }
            Self::MemoryInfo { number, capacity } => {
                MEMORY_INFO.encode(out);
                number.encode(out);
                capacity.encode(out);
            }
            Self::Suspend { number, bytes, host_bytes, needs_file } => {
                SUSPEND.encode(out);
                number.encode(out);
                bytes.encode(out);
                host_bytes.encode(out);
                needs_file.encode(out);
            }
            Self::Suspended { bytes, nanoseconds } => {
                SUSPENDED.encode(out);
                bytes.encode(out);
                nanoseconds.encode(out);
            }
            Self::StaysResident => STAYS_RESIDENT.encode(out),
            Self::Reclaim { number, capacity } => {
                RECLAIM.encode(out);
                number.encode(out);
                capacity.encode(out);
            }
            Self::Returned { nanoseconds } => {
                RETURNED.encode(out);
                nanoseconds.encode(out);
            }
            Self::ReleaseRefused { text } => {
                RELEASE_REFUSED.encode(out);
                text.encode(out);
            }
            Self::ReleaseOutcome { number, refused } => {
                RELEASE_OUTCOME.encode(out);
                number.encode(out);
                refused.encode(out);
            }
            Self::Carried { number, carried } => {
                CARRIED.encode(out);
                number.encode(out);
                carried.encode(out);
            }
            Self::Checkpointed { number, outcome } => {
                CHECKPOINTED.encode(out);
                number.encode(out);
                outcome.as_ref().ok().map(|state| (state.bytes, state.has_variables)).encode(out);
                outcome.as_ref().err().cloned().unwrap_or_default().encode(out);
            }
            Self::Quiet { number } => {
                QUIET.encode(out);
                number.encode(out);
            }
            Self::ClientReturned { text } => {
                RETURNED_CLIENT.encode(out);
                text.encode(out);
            }
            Self::Restored { refused } => {
                RESTORED.encode(out);
                refused.as_ref().map(|why| (why.text.clone(), why.lacks_memory)).encode(out);
            }
            Self::Arrived => ARRIVED.encode(out),
            Self::SlotRequest { device } => {
                SLOT_REQUEST.encode(out);
                device.encode(out);
            }
            Self::SlotEnded { device, lease } => {
                SLOT_ENDED.encode(out);
                device.encode(out);
                lease.encode(out);
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
            PREPARED => Ok(Self::Prepared { failure: input.value()? }),
            NO_GPU => Ok(Self::NoGpu { text: input.value()? }),
            ANSWERING => Ok(Self::Answering),
            CLIENT_DISCONNECTED => Ok(Self::ClientDisconnected),
            COUNTS => Ok(Self::Counts),
            EXPORT => {
                Ok(Self::Export { number: input.value()?, token: input.value()?, bytes: input.value()? })
            }
            FIND => Ok(Self::Find { number: input.value()?, token: input.value()? }),
            FIND_IMAGE => {
                Ok(Self::FindImage { number: input.value()?, hash: input.value()?, length: input.value()? })
            }
            KEEP_IMAGE => Ok(Self::KeepImage { number: input.value()?, hash: input.value()? }),
            RESERVE => {
                Ok(Self::Reserve { number: input.value()?, bytes: input.value()?, capacity: input.value()? })
            }
            TAKE => Ok(Self::Take { bytes: input.value()? }),
            RELEASE => Ok(Self::Release { bytes: input.value()? }),
            MEMORY_INFO => Ok(Self::MemoryInfo { number: input.value()?, capacity: input.value()? }),
            SUSPEND => Ok(Self::Suspend {
                number: input.value()?,
                bytes: input.value()?,
                host_bytes: input.value()?,
                needs_file: input.value()?,
            }),
            SUSPENDED => Ok(Self::Suspended { bytes: input.value()?, nanoseconds: input.value()? }),
            STAYS_RESIDENT => Ok(Self::StaysResident),
            RECLAIM => Ok(Self::Reclaim { number: input.value()?, capacity: input.value()? }),
            RETURNED => Ok(Self::Returned { nanoseconds: input.value()? }),
            RELEASE_REFUSED => Ok(Self::ReleaseRefused { text: input.value()? }),
            RELEASE_OUTCOME => Ok(Self::ReleaseOutcome { number: input.value()?, refused: input.value()? }),
            CARRIED => Ok(Self::Carried { number: input.value()?, carried: input.value()? }),
            CHECKPOINTED => {
                let number = input.value()?;
                let (state, text) = input.value::<(Option<(u64, bool)>, String)>()?;
                let state = state.map(|(bytes, has_variables)| WrittenState { bytes, has_variables });
                Ok(Self::Checkpointed { number, outcome: state.ok_or(text) })
            }
            QUIET => Ok(Self::Quiet { number: input.value()? }),
            RETURNED_CLIENT => Ok(Self::ClientReturned { text: input.value()? }),
            RESTORED => {
                let refused = input.value::<Option<(String, bool)>>()?;
                let refused = refused.map(|(text, lacks_memory)| NotTakenUp { text, lacks_memory });
                Ok(Self::Restored { refused })
            }
            ARRIVED => Ok(Self::Arrived),
            SLOT_REQUEST => Ok(Self::SlotRequest { device: input.value()? }),
            SLOT_ENDED => Ok(Self::SlotEnded { device: input.value()?, lease: input.value()? }),
            WITHDRAW => Ok(Self::Withdraw { token: input.value()? }),
            DIAL => Ok(Self::Dial {
                number: input.value()?,
                address: input.value()?,
                milliseconds: input.value()?,
                proof: input.value()?,
            }),
            PONG => Ok(Self::Pong { number: input.value()?, progress: input.value()? }),
            TICKET => Ok(Self::Ticket { number: input.value()?, ticket: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message of a worker", value: u64::from(other) }),
        }
    }
}
