//! What the broker says to its workers.

use std::time::Duration;

use causeway_connection::keepalive::KeepaliveTimeouts;
use causeway_connection::record::ConnectionKeys;
use causeway_sandbox::Confinement;
use causeway_wire::codec::{Decode, DecodeError, Decoder, Encode};
use causeway_wire::handshake::{ClientHello, LaneToken, Locality, SessionId, UpgradeHello};
use causeway_wire::record;
use causeway_wire::relocation::Relocation;

use super::confinement;
use crate::back_end::GpuChoice;

/// How long nothing may come from a client, in seconds; 0 is for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepaliveSeconds {
    /// On one connection of a session, while something comes on others; and from a worker of another server.
    pub connection: u32,
    /// On all connections of a session. A program that is stopped is as silent as one behind a dead network.
    pub client: u32,
    /// On none, of a program that asked for being resumed, before the session ends.
    pub resume: u32,
}

record!(KeepaliveSeconds { connection, client, resume });

impl Default for KeepaliveSeconds {
    fn default() -> Self {
        Self { connection: 15, client: 3600, resume: 60 }
    }
}

impl KeepaliveSeconds {
    /// For the link to the client.
    pub fn of_client(self) -> KeepaliveTimeouts {
        KeepaliveTimeouts::of_seconds(self.connection.into(), self.client.into())
    }

    /// For links to workers of other servers.
    pub fn of_peer(self) -> KeepaliveTimeouts {
        KeepaliveTimeouts::of_seconds(self.connection.into(), self.connection.into())
    }
}

/// When device memory of a session goes to the host, and how long it may take to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseTimes {
    /// After how many milliseconds without a message; 0 is never.
    pub idle: u64,
    /// How many seconds a client waits at most while the device has no memory for it.
    pub returns_within: u32,
}

record!(ReleaseTimes { idle, returns_within });

impl Default for ReleaseTimes {
    fn default() -> Self {
        Self { idle: 0, returns_within: 60 }
    }
}

impl ReleaseTimes {
    /// After how long an idle session's memory is released, if it is.
    pub fn idle(self) -> Option<Duration> {
        (self.idle > 0).then(|| Duration::from_millis(self.idle))
    }

    /// How long a client waits at most.
    pub fn returns_within(self) -> Duration {
        Duration::from_secs(self.returns_within.into())
    }
}

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
    /// Whether the broker keeps images for later sessions.
    pub keeps_images: bool,
    /// Where the client may find the broker on its own host.
    pub locality: Locality,
    /// The state of the encryption of the connection.
    pub keys: Option<ConnectionKeys>,
    /// How long the client may be silent.
    pub keepalive: KeepaliveSeconds,
    /// When its device memory is released.
    pub release: ReleaseTimes,
    /// Whether its bandwidth is limited, so that it tells the broker what it carries.
    pub is_paced: bool,
    /// Whether it asks before it runs kernels, since clients have shares of the GPU.
    pub is_time_shared: bool,
}

impl Encode for SessionStart {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.session.encode(out);
        self.token.encode(out);
        self.lanes.encode(out);
        self.gpu.encode(out);
        self.keeps_images.encode(out);
        self.locality.encode(out);
        self.keys.encode(out);
        self.keepalive.encode(out);
        self.release.encode(out);
        self.is_paced.encode(out);
        self.is_time_shared.encode(out);
        self.hello.encode(out);
    }
}

impl<'a> Decode<'a> for SessionStart {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            version: input.value()?,
            session: input.value()?,
            token: input.value()?,
            lanes: input.value()?,
            gpu: input.value()?,
            keeps_images: input.value()?,
            locality: input.value()?,
            keys: input.value()?,
            keepalive: input.value()?,
            release: input.value()?,
            is_paced: input.value()?,
            is_time_shared: input.value()?,
            // It comes last, since only its end tells its length.
            hello: {
                let offer = input.value()?;
                ClientHello::decode_rest(offer, input.take(input.remaining())?)?
            },
        })
    }
}

const AUTO: u8 = 1;
const AUTO_OR_SOFTWARE: u8 = 2;
const CPU: u8 = 3;
const DRIVER: u8 = 4;

impl Encode for GpuChoice {
    fn encode(&self, out: &mut Vec<u8>) {
        let tag = match self {
            Self::Auto { allows_software: false } => AUTO,
            Self::Auto { allows_software: true } => AUTO_OR_SOFTWARE,
            Self::Cpu => CPU,
            Self::Driver => DRIVER,
        };
        tag.encode(out);
    }
}

impl<'a> Decode<'a> for GpuChoice {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            AUTO => Ok(Self::Auto { allows_software: false }),
            AUTO_OR_SOFTWARE => Ok(Self::Auto { allows_software: true }),
            CPU => Ok(Self::Cpu),
            DRIVER => Ok(Self::Driver),
            other => Err(DecodeError::UnknownTag { what: "kind of GPU", value: u64::from(other) }),
        }
    }
}

/// Where a session is to go on, and what the worker there must know of it.
#[derive(Debug, Clone)]
pub struct CheckpointStart {
    /// The number of the request.
    pub number: u32,
    /// Where the client goes.
    pub relocation: Relocation,
    /// Whether this worker ends when the client has heard of it, since no worker has taken the session up yet.
    pub stops: bool,
    /// Whether the state is that of another session, which a forked program has; then no client goes
    /// anywhere.
    pub is_fork: bool,
}

record!(CheckpointStart { number, relocation, stops, is_fork });

/// What the broker says to a worker. Its first message confines the process, and the second one says what it
/// is for.
#[derive(Debug)]
pub enum ToWorker {
    /// Give up what a worker does not need; nothing where there is no sandbox.
    Confine(Option<Confinement>),
    /// Start the GPU; the client comes later.
    Prepare {
        /// Which GPU.
        gpu: GpuChoice,
        /// Whether no worker of this server has been told so before: the first one says what the machine lacks.
        is_first: bool,
    },
    /// Answer monitoring sessions; what follows are [`ToMonitor`](super::ToMonitor) messages.
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
    /// The client, or the worker of another server, would like to go on over another transport; the connection for
    /// changing over comes along.
    Upgrade {
        /// What it wants. Of a worker, the token is the ticket with which it has come.
        hello: UpgradeHello,
        /// Whether it is the worker of another server.
        is_peer: bool,
        /// The state of the connection's encryption.
        keys: Option<ConnectionKeys>,
    },
    /// Say that you are there, and how far the commands are.
    Ping {
        /// The number of the question.
        number: u32,
    },
    /// Release the session's device memory, if nothing is under way; answered by
    /// [`ReleaseOutcome`](super::ToBroker::ReleaseOutcome).
    Release {
        /// The number of the question.
        number: u32,
    },
    /// Use GPUDirect for the session's copies from the next one on, or staging.
    GpuDirect {
        /// Whether GPUDirect is used where it is available.
        is_on: bool,
    },
    /// Take up a session, over a connection without a peer; its [state](Self::State) follows.
    Restore(Box<SessionStart>),
    /// The state of the session, in the file that comes along.
    State,
    /// Hold the session and write its state to the file that comes along; answered by
    /// [`Checkpointed`](super::ToBroker::Checkpointed).
    Checkpoint(Box<CheckpointStart>),
    /// The state is elsewhere: the client may go there.
    Proceed {
        /// The number of the [checkpoint](Self::Checkpoint).
        number: u32,
    },
    /// The session goes on here after all.
    Stay {
        /// The number of the [checkpoint](Self::Checkpoint).
        number: u32,
    },
    /// End without a word to the client: the session goes on elsewhere, or is not wanted.
    Leave {
        /// A sentence for the log.
        why: String,
    },
    /// Tell the client that its session ends, and why. The process is killed a moment later.
    End {
        /// A sentence for the client's user.
        text: String,
    },
    /// The session may issue kernels.
    Slot {
        /// To the device of this number.
        device: u32,
        /// By this lease.
        lease: u32,
    },
    /// Others wait: a lease that is not used must be released.
    SlotContended {
        /// The device's number.
        device: u32,
        /// Which one.
        lease: u32,
    },
    /// The session is to issue no more kernels by this lease.
    SlotRecalled {
        /// The device's number.
        device: u32,
        /// Which one.
        lease: u32,
    },
    /// The answer to a question of the worker.
    Response {
        /// The number of the question.
        number: u32,
        /// What was found; nothing when there is nothing, or when what was to be left is not taken.
        bytes: Option<Vec<u8>>,
    },
}

const START: u8 = 1;
const LANE: u8 = 2;
const MONITOR: u8 = 3;
const RESPONSE: u8 = 4;
const PREPARE: u8 = 5;
const UPGRADE: u8 = 6;
const DIAGNOSE: u8 = 8;
const PEER: u8 = 9;
const PING: u8 = 12;
const CONFINE: u8 = 13;
const END: u8 = 14;
const RELEASE: u8 = 15;
const RESTORE: u8 = 16;
const CHECKPOINT: u8 = 17;
const PROCEED: u8 = 18;
const STAY: u8 = 19;
const LEAVE: u8 = 20;
const STATE: u8 = 21;
const SLOT: u8 = 22;
const SLOT_CONTENDED: u8 = 23;
const SLOT_RECALLED: u8 = 24;
const GPU_DIRECT: u8 = 25;

impl Encode for ToWorker {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Confine(confinement) => {
                CONFINE.encode(out);
                confinement::encode(confinement.as_ref(), out);
            }
            Self::Start(start) => {
                START.encode(out);
                start.encode(out);
            }
            Self::Lane { keys } => {
                LANE.encode(out);
                keys.encode(out);
            }
            Self::Diagnose { keys } => {
                DIAGNOSE.encode(out);
                keys.encode(out);
            }
            Self::Upgrade { hello, is_peer, keys } => {
                UPGRADE.encode(out);
                hello.encode(out);
                is_peer.encode(out);
                keys.encode(out);
            }
            Self::Peer { ticket, connection, keys } => {
                PEER.encode(out);
                ticket.encode(out);
                connection.encode(out);
                keys.encode(out);
            }
            Self::Monitor { gpu } => {
                MONITOR.encode(out);
                gpu.encode(out);
            }
            Self::Prepare { gpu, is_first } => {
                PREPARE.encode(out);
                gpu.encode(out);
                is_first.encode(out);
            }
            Self::Ping { number } => {
                PING.encode(out);
                number.encode(out);
            }
            Self::Release { number } => {
                RELEASE.encode(out);
                number.encode(out);
            }
            Self::GpuDirect { is_on } => {
                GPU_DIRECT.encode(out);
                is_on.encode(out);
            }
            Self::Restore(start) => {
                RESTORE.encode(out);
                start.encode(out);
            }
            Self::Checkpoint(start) => {
                CHECKPOINT.encode(out);
                start.encode(out);
            }
            Self::State => STATE.encode(out),
            Self::Slot { device, lease } => {
                SLOT.encode(out);
                device.encode(out);
                lease.encode(out);
            }
            Self::SlotContended { device, lease } => {
                SLOT_CONTENDED.encode(out);
                device.encode(out);
                lease.encode(out);
            }
            Self::SlotRecalled { device, lease } => {
                SLOT_RECALLED.encode(out);
                device.encode(out);
                lease.encode(out);
            }
            Self::Proceed { number } => {
                PROCEED.encode(out);
                number.encode(out);
            }
            Self::Stay { number } => {
                STAY.encode(out);
                number.encode(out);
            }
            Self::Leave { why } => {
                LEAVE.encode(out);
                why.encode(out);
            }
            Self::End { text } => {
                END.encode(out);
                text.encode(out);
            }
            Self::Response { number, bytes } => {
                RESPONSE.encode(out);
                number.encode(out);
                bytes.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for ToWorker {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            CONFINE => Ok(Self::Confine(confinement::decode(input)?)),
            START => Ok(Self::Start(Box::new(input.value()?))),
            LANE => Ok(Self::Lane { keys: input.value()? }),
            UPGRADE => {
                Ok(Self::Upgrade { hello: input.value()?, is_peer: input.value()?, keys: input.value()? })
            }
            DIAGNOSE => Ok(Self::Diagnose { keys: input.value()? }),
            PEER => {
                Ok(Self::Peer { ticket: input.value()?, connection: input.value()?, keys: input.value()? })
            }
            MONITOR => Ok(Self::Monitor { gpu: input.value()? }),
            PREPARE => Ok(Self::Prepare { gpu: input.value()?, is_first: input.value()? }),
            PING => Ok(Self::Ping { number: input.value()? }),
            RELEASE => Ok(Self::Release { number: input.value()? }),
            GPU_DIRECT => Ok(Self::GpuDirect { is_on: input.value()? }),
            RESTORE => Ok(Self::Restore(Box::new(input.value()?))),
            CHECKPOINT => Ok(Self::Checkpoint(Box::new(input.value()?))),
            STATE => Ok(Self::State),
            SLOT => Ok(Self::Slot { device: input.value()?, lease: input.value()? }),
            SLOT_CONTENDED => Ok(Self::SlotContended { device: input.value()?, lease: input.value()? }),
            SLOT_RECALLED => Ok(Self::SlotRecalled { device: input.value()?, lease: input.value()? }),
            PROCEED => Ok(Self::Proceed { number: input.value()? }),
            STAY => Ok(Self::Stay { number: input.value()? }),
            LEAVE => Ok(Self::Leave { why: input.value()? }),
            END => Ok(Self::End { text: input.value()? }),
            RESPONSE => Ok(Self::Response { number: input.value()?, bytes: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "message of a broker", value: u64::from(other) }),
        }
    }
}
