//! Status protocol: sessions, devices, drain.
//!
//! A client that was granted a status session asks one question at a time. What a later release adds to an
//! answer goes behind what is there, and is passed over by an earlier client.

use std::collections::HashMap;
use std::time::Duration;

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::handshake::SessionId;
use crate::moves::{MoveReply, MoveRequest};
use crate::record;
use crate::text::{Printable, printable};

/// How long device memory may take to go to the host: that of the largest GPU at a disk's rate. Whoever has asked for it
/// waits longer, so that the server's error arrives.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(900);

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusRequest {
    /// How is the server?
    Status,
    /// Take no new sessions, and end when those that are open have ended. Granted to the server's own user
    /// and to root, at a socket of its host.
    Drain {
        /// After so many seconds the sessions that are left are ended; 0 waits for all of them.
        seconds: u32,
    },
    /// Have a session's device memory go to the host until its next command.
    Release {
        /// The session.
        session: SessionId,
    },
    /// About a session that goes to another server.
    Move(MoveRequest),
    /// Have copies of a session use GPUDirect from the next one on, or staging.
    GpuDirect {
        /// The session.
        session: SessionId,
        /// Whether GPUDirect is used where it is available.
        is_on: bool,
    },
    /// What may the asker's own sessions have?
    Limits,
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// How the server is.
    Status(Box<ServerStatus>),
    /// The server is drained from now on, or was already.
    Draining {
        /// Sessions that it waits for.
        sessions: u32,
        /// Whether somebody had asked for it before.
        already: bool,
    },
    /// The device memory of the session has gone to the host.
    Released,
    /// About a session that goes to another server.
    Move(MoveReply),
    /// The session's copies use GPUDirect from the next one on, or staging.
    GpuDirectSet,
    /// What the asker's own sessions may have.
    Limits {
        /// Bytes of device memory, of all of them together; nothing without a limit.
        device_memory: Option<u64>,
    },
    /// The question is not answered.
    Refused {
        /// Why, as a sentence for the user.
        text: Printable,
    },
}

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerStatus {
    /// Its release.
    pub release: Printable,
    /// Its process.
    pub process: u32,
    /// For how long it has been running, in ms.
    pub running: u64,
    /// Whether the server takes no new sessions, since it ends with those that it has.
    pub is_draining: bool,
    /// How many sessions it has at most.
    pub max_sessions: u32,
    /// Sessions that have begun, those that are open included.
    pub sessions_started: u64,
    /// Sessions that were refused.
    pub refused: u64,
    /// Unix sockets at which it is reached from its own host.
    pub sockets: Vec<String>,
    /// The open sessions.
    pub sessions: Vec<SessionStatus>,
    /// Its devices, as far as its monitor tells.
    pub devices: Vec<DeviceStatus>,
}

impl Encode for ServerStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        self.release.encode(out);
        self.process.encode(out);
        self.running.encode(out);
        self.is_draining.encode(out);
        self.max_sessions.encode(out);
        self.sessions_started.encode(out);
        self.refused.encode(out);
        self.sockets.encode(out);
        self.sessions.encode(out);
        self.devices.encode(out);
        let is_any = |session: &&SessionStatus| session.release != ReleaseStatus::default();
        let releases = self.sessions.iter().filter(is_any);
        let releases: Vec<_> = releases.map(|session| (session.session, session.release.clone())).collect();
        releases.encode(out);
        let owned = self.sessions.iter().filter(|session| session.owner != SessionOwner::default());
        let owners: Vec<_> = owned.map(|session| (session.session, session.owner.clone())).collect();
        owners.encode(out);
        let direct = self.sessions.iter().filter(|session| session.gpudirect != GpuDirectStatus::default());
        let direct: Vec<_> = direct.map(|session| (session.session, session.gpudirect)).collect();
        direct.encode(out);
        let forked = self.sessions.iter();
        let parents: Vec<_> = forked.filter_map(|session| Some((session.session, session.parent?))).collect();
        parents.encode(out);
        let grouped = self.sessions.iter().filter(|session| !session.group.is_empty());
        let groups: Vec<_> = grouped.map(|session| (session.session, session.group.clone())).collect();
        groups.encode(out);
    }
}

impl<'a> Decode<'a> for ServerStatus {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let mut status = Self {
            release: input.value()?,
            process: input.value()?,
            running: input.value()?,
            is_draining: input.value()?,
            max_sessions: input.value()?,
            sessions_started: input.value()?,
            refused: input.value()?,
            sockets: input.value()?,
            sessions: input.value()?,
            devices: input.value()?,
        };
        // Earlier servers end here.
        if input.remaining() > 0 {
            let releases: Vec<(SessionId, ReleaseStatus)> = input.value()?;
            let mut releases: HashMap<_, _> = releases.into_iter().collect();
            for session in &mut status.sessions {
                session.release = releases.remove(&session.session).unwrap_or_default();
            }
        }
        if input.remaining() > 0 {
            let owners: Vec<(SessionId, SessionOwner)> = input.value()?;
            let mut owners: HashMap<_, _> = owners.into_iter().collect();
            for session in &mut status.sessions {
                session.owner = owners.remove(&session.session).unwrap_or_default();
            }
        }
        if input.remaining() > 0 {
            let direct: Vec<(SessionId, GpuDirectStatus)> = input.value()?;
            let mut direct: HashMap<_, _> = direct.into_iter().collect();
            for session in &mut status.sessions {
                session.gpudirect = direct.remove(&session.session).unwrap_or_default();
            }
        }
        if input.remaining() > 0 {
            let parents: Vec<(SessionId, SessionId)> = input.value()?;
            let mut parents: HashMap<_, _> = parents.into_iter().collect();
            for session in &mut status.sessions {
                session.parent = parents.remove(&session.session);
            }
        }
        if input.remaining() > 0 {
            let groups: Vec<(SessionId, Printable)> = input.value()?;
            let mut groups: HashMap<_, _> = groups.into_iter().collect();
            for session in &mut status.sessions {
                session.group = groups.remove(&session.session).unwrap_or_default();
            }
        }
        Ok(status)
    }
}

/// One open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its number.
    pub session: SessionId,
    /// The client's program.
    pub program: Printable,
    /// The client's host, as it says.
    pub host: Printable,
    /// The client's process there.
    pub process: u32,
    /// Where it comes from, as the kernel says.
    pub peer: Printable,
    /// The worker's process.
    pub worker: u32,
    /// What carries its messages; empty until that is known.
    pub via: Printable,
    /// For how long it has been open, in ms.
    pub open: u64,
    /// What it has done.
    pub activity: Activity,
    /// Whether its device memory is on the host. It travels behind all else of a [`ServerStatus`], which earlier clients
    /// pass over, and nowhere else.
    pub release: ReleaseStatus,
    /// Whose it is. It travels as the release does.
    pub owner: SessionOwner,
    /// The group that its client or user is in, by the server's list of clients; empty where that is none. It travels as
    /// the release does.
    pub group: Printable,
    /// What network cards have copied. It travels as the release does.
    pub gpudirect: GpuDirectStatus,
    /// The session of which it is a fork. It travels as the release does.
    pub parent: Option<SessionId>,
}

impl Encode for SessionStatus {
    fn encode(&self, out: &mut Vec<u8>) {
        self.session.encode(out);
        self.program.encode(out);
        self.host.encode(out);
        self.process.encode(out);
        self.peer.encode(out);
        self.worker.encode(out);
        self.via.encode(out);
        self.open.encode(out);
        self.activity.encode(out);
    }
}

impl<'a> Decode<'a> for SessionStatus {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            session: input.value()?,
            program: input.value()?,
            host: input.value()?,
            process: input.value()?,
            peer: input.value()?,
            worker: input.value()?,
            via: input.value()?,
            open: input.value()?,
            activity: input.value()?,
            release: ReleaseStatus::default(),
            owner: SessionOwner::default(),
            group: Printable::default(),
            gpudirect: GpuDirectStatus::default(),
            parent: None,
        })
    }
}

/// The most characters of each name in a [`SessionOwner`]: as many sessions as a server has fit into one reply.
pub const MAX_OWNER_CHARACTERS: usize = 64;

/// Whose a session is. Only the client's name is proved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SessionOwner {
    /// The client that has a key of its own; empty for others.
    pub client: Printable,
    /// The user on the client's host, as the client says.
    pub user: Printable,
    /// The job, as the client says; empty where there is none.
    pub job: Printable,
}

record!(SessionOwner { client, user, job });

impl SessionOwner {
    /// The owner by these names, each in at most [`MAX_OWNER_CHARACTERS`].
    pub fn new(client: &str, user: &str, job: &str) -> Self {
        let bounded = |name: &str| printable(name, MAX_OWNER_CHARACTERS).into();
        Self { client: bounded(client), user: bounded(user), job: bounded(job) }
    }
}

/// Whether device memory of a session has been released.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleaseStatus {
    /// How many bytes are on the host, and since how many ms.
    pub released: Option<(u64, u64)>,
    /// Why none of it goes there; empty where nothing is known against it.
    pub refused: Printable,
}

record!(ReleaseStatus { released, refused });

/// GPUDirect of a session: copies that network cards make between device memory and the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuDirectStatus {
    /// Whether network cards may access the session's device memory.
    pub is_available: bool,
    /// Whether the owner lets them.
    pub is_on: bool,
    /// Bytes that they have written to devices; the others of [`Activity::bytes_to_device`] were staged.
    pub bytes_to_device: u64,
    /// Bytes that they have read from devices.
    pub bytes_from_device: u64,
}

record!(GpuDirectStatus { is_available, is_on, bytes_to_device, bytes_from_device });

/// What sessions have done, since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// Commands without a reply.
    pub posted: u64,
    /// Commands with one.
    pub called: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Launches of kernels and graphs.
    pub launches: u64,
    /// Replies that waited for the GPU.
    pub waits: u64,
    /// How long those took, in ns.
    pub wait_time: u64,
    /// Bytes of copies to devices.
    pub bytes_to_device: u64,
    /// Bytes of copies from devices.
    pub bytes_from_device: u64,
}

record!(Activity { posted, called, failed, launches, waits, wait_time, bytes_to_device, bytes_from_device });

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its place among the server's.
    pub index: u32,
    /// Its name.
    pub name: Printable,
    /// Its UUID.
    pub uuid: Printable,
    /// Its memory in bytes.
    pub memory_total: u64,
    /// How much of it is in use.
    pub memory_used: u64,
    /// For how many percent of the last moments something ran on it, where that is known.
    pub utilisation: Option<u32>,
}

record!(DeviceStatus { index, name, uuid, memory_total, memory_used, utilisation });

const STATUS: u8 = 1;
const DRAIN: u8 = 2;
const RELEASE: u8 = 3;
const MOVE: u8 = 4;
const GPU_DIRECT: u8 = 5;
const LIMITS: u8 = 6;

impl Encode for StatusRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status => STATUS.encode(out),
            Self::Drain { seconds } => {
                DRAIN.encode(out);
                seconds.encode(out);
            }
            Self::Release { session } => {
                RELEASE.encode(out);
                session.encode(out);
            }
            Self::Move(request) => {
                MOVE.encode(out);
                request.encode(out);
            }
            Self::GpuDirect { session, is_on } => {
                GPU_DIRECT.encode(out);
                session.encode(out);
                is_on.encode(out);
            }
            Self::Limits => LIMITS.encode(out),
        }
    }
}

impl<'a> Decode<'a> for StatusRequest {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            STATUS => Ok(Self::Status),
            DRAIN => Ok(Self::Drain { seconds: input.value()? }),
            RELEASE => Ok(Self::Release { session: input.value()? }),
            MOVE => Ok(Self::Move(input.value()?)),
            GPU_DIRECT => Ok(Self::GpuDirect { session: input.value()?, is_on: input.value()? }),
            LIMITS => Ok(Self::Limits),
            other => Err(DecodeError::UnknownTag { what: "question to a server", value: u64::from(other) }),
        }
    }
}

const STATUS_REPLY: u8 = 1;
const DRAINING: u8 = 2;
const REFUSED: u8 = 3;
const RELEASED: u8 = 4;
const MOVED: u8 = 5;
const GPU_DIRECT_SET: u8 = 6;
const LIMITS_REPLY: u8 = 7;

impl Encode for Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(status) => {
                STATUS_REPLY.encode(out);
                status.encode(out);
            }
            Self::Draining { sessions, already } => {
                DRAINING.encode(out);
                sessions.encode(out);
                already.encode(out);
            }
            Self::Released => RELEASED.encode(out),
            Self::GpuDirectSet => GPU_DIRECT_SET.encode(out),
            Self::Limits { device_memory } => {
                LIMITS_REPLY.encode(out);
                device_memory.encode(out);
            }
            Self::Move(reply) => {
                MOVED.encode(out);
                reply.encode(out);
            }
            Self::Refused { text } => {
                REFUSED.encode(out);
                text.encode(out);
            }
        }
    }
}

impl<'a> Decode<'a> for Reply {
    fn decode(input: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        match input.value()? {
            STATUS_REPLY => Ok(Self::Status(Box::new(input.value()?))),
            DRAINING => Ok(Self::Draining { sessions: input.value()?, already: input.value()? }),
            RELEASED => Ok(Self::Released),
            GPU_DIRECT_SET => Ok(Self::GpuDirectSet),
            LIMITS_REPLY => Ok(Self::Limits { device_memory: input.value()? }),
            MOVED => Ok(Self::Move(input.value()?)),
            REFUSED => Ok(Self::Refused { text: input.value()? }),
            other => Err(DecodeError::UnknownTag { what: "answer of a server", value: u64::from(other) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u8, gpudirect: GpuDirectStatus) -> SessionStatus {
        SessionStatus {
            session: SessionId([number; 16]),
            program: "p".into(),
            host: "h".into(),
            process: 7,
            peer: "local".into(),
            worker: 8,
            via: "verbs".into(),
            open: 9,
            activity: Activity { bytes_to_device: 100, ..Activity::default() },
            release: ReleaseStatus::default(),
            owner: SessionOwner::default(),
            group: Printable::default(),
            gpudirect,
            parent: None,
        }
    }

    #[test]
    fn what_is_new_travels_behind_what_earlier_clients_read() {
        let direct =
            GpuDirectStatus { is_available: true, is_on: false, bytes_to_device: 60, bytes_from_device: 5 };
        let parent = Some(SessionId([1; 16]));
        let forked = SessionStatus { parent, ..session(2, direct) };
        let grouped = SessionStatus { group: "staff".into(), ..forked.clone() };
        let sessions = vec![session(1, GpuDirectStatus::default()), grouped];
        let status = ServerStatus { sessions, ..ServerStatus::default() };
        let mut bytes = Vec::new();
        status.encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).value::<ServerStatus>(), Ok(status.clone()));
        // What servers of before send ends before the lists of one entry.
        let (mut groups, mut parents, mut list) = (Vec::new(), Vec::new(), Vec::new());
        vec![(SessionId([2; 16]), Printable::from("staff"))].encode(&mut groups);
        vec![(SessionId([2; 16]), SessionId([1; 16]))].encode(&mut parents);
        vec![(SessionId([2; 16]), direct)].encode(&mut list);
        for (length, wanted) in [
            (groups.len(), forked),
            (parents.len(), session(2, direct)),
            (list.len(), session(2, GpuDirectStatus::default())),
        ] {
            bytes.truncate(bytes.len() - length);
            let earlier = Decoder::new(&bytes).value::<ServerStatus>().unwrap();
            assert_eq!(earlier.sessions[1], wanted);
        }
    }

    #[test]
    fn bytes_of_a_session_without_gpudirect_travel_too() {
        let before = GpuDirectStatus { bytes_from_device: 5, ..GpuDirectStatus::default() };
        let status = ServerStatus { sessions: vec![session(1, before)], ..ServerStatus::default() };
        let mut bytes = Vec::new();
        status.encode(&mut bytes);
        assert_eq!(Decoder::new(&bytes).value(), Ok(status));
    }

    #[test]
    fn requests_and_replies_are_read_as_they_were_sent() {
        let mut bytes = Vec::new();
        for request in
            [StatusRequest::GpuDirect { session: SessionId([3; 16]), is_on: true }, StatusRequest::Limits]
        {
            bytes.clear();
            request.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value::<StatusRequest>(), Ok(request));
        }
        let limits = [None, Some(5 << 30)].map(|device_memory| Reply::Limits { device_memory });
        for reply in limits.into_iter().chain([Reply::GpuDirectSet]) {
            bytes.clear();
            reply.encode(&mut bytes);
            assert_eq!(Decoder::new(&bytes).value::<Reply>(), Ok(reply));
        }
    }
}
