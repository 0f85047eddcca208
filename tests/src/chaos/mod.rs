//! Faults of a network at exact points of a session: a relay between a program and a server that knows where
//! frames and chunks end, and cuts, closes, stalls or splits there.
//!
//! A [`Schedule`] is a list of faults, each with the point at which it happens; the next one counts from
//! there on. The session must be in the clear (`--insecure-no-key`), and a relay serves one program at a
//! time.

mod boundaries;
mod relay;
mod rounds;
mod schedule;

pub use relay::Chaos;
pub use rounds::Rounds;
pub use schedule::{Calls, Random, Schedule};

pub use crate::stall::Direction;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What bytes of a connection are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// What comes before frames or chunks.
    Handshake,
    /// The frames of the session.
    Frames,
    /// Chunks.
    Lane,
    /// What cannot be read, since it is encrypted, or is not followed.
    Other,
}

/// Where a fault happens.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// In what.
    pub of: Carries,
    /// In which direction: to the server, or to the client.
    pub direction: Direction,
    /// Behind so many ends of frames, chunks or steps of a handshake, counted from the fault before.
    pub ends: u64,
    /// So many bytes behind that.
    pub bytes: u64,
}

/// Which connections a fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The one on which it happens.
    This,
    /// All that there are.
    All,
    /// All lanes that there are.
    Lanes,
}

/// What happens.
#[derive(Clone)]
pub enum Fault {
    /// Connections end, for both sides.
    Cut(Scope),
    /// The same, as from a machine that does not know them any more.
    Reset(Scope),
    /// All connections end, and new ones do for so long.
    Away(Duration),
    /// One direction of the connection ends. What is sent on it is lost.
    HalfClose,
    /// Nothing is forwarded on these connections for so long, in neither direction.
    Stall(Scope, Duration),
    /// The next bytes go on one by one.
    Split(usize),
    /// Something else, at the side.
    Call(&'static str, Arc<dyn Fn() + Send + Sync>),
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut(scope) => write!(f, "Cut({scope:?})"),
            Self::Reset(scope) => write!(f, "Reset({scope:?})"),
            Self::Away(time) => write!(f, "Away({time:?})"),
            Self::HalfClose => write!(f, "HalfClose"),
            Self::Stall(scope, time) => write!(f, "Stall({scope:?}, {time:?})"),
            Self::Split(bytes) => write!(f, "Split({bytes})"),
            Self::Call(name, _) => write!(f, "{name}"),
        }
    }
}
