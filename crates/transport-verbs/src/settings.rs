//! Settings of verbs for a session: queue pairs, depth and device limits.
//!
//! The variables are documented in `docs/src/reference/environment.md`. Each end reads its own; of queue
//! pairs, depth and MTU the smaller of both ends' counts.

use std::time::Duration;

use causeway_config::read::PROCESS;
use causeway_config::table::{
    MAX_VERBS_QUEUE_DEPTH, MAX_VERBS_QUEUE_PAIRS, VERBS_CONNECT, VERBS_DEVICE, VERBS_GID, VERBS_INLINE,
    VERBS_INLINE_DEFAULT, VERBS_MTU, VERBS_POLL_US, VERBS_QUEUE_DEPTH, VERBS_QUEUE_DEPTH_DEFAULT,
    VERBS_QUEUE_PAIRS, VERBS_QUEUE_PAIRS_DEFAULT, VERBS_SIGNAL_INTERVAL, VERBS_SIGNAL_INTERVAL_DEFAULT,
    VERBS_STAGING, VERBS_STAGING_DEFAULT, VERBS_TO_DEVICE,
};
use causeway_config::{Environment, ValueError};
use causeway_ibverbs::{Limits, PathMtu};

use super::credit::{CREDIT_UPDATE_RECEIVES, frames_of};
use causeway_transport::slots::SLOT;

/// The most queue pairs of a session.
pub const MAX_QUEUE_PAIRS: u32 = MAX_VERBS_QUEUE_PAIRS as u32;
/// The most messages of a kind that may be under way on a queue pair.
pub const MAX_DEPTH: u32 = MAX_VERBS_QUEUE_DEPTH as u32;
/// How long completions are looked for before a thread sleeps, where there are cores to spare for that.
const POLL: Duration = Duration::from_micros(20);
/// From so many bytes on registered memory is read by the peer.
const READ_FROM: usize = 1 << 20;

/// How queue pairs are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By their numbers, told over TCP; where the device demands it, by rdma_cm.
    Auto,
    /// By rdma_cm.
    Manager,
    /// By their numbers.
    Numbers,
}

/// Which end's card moves memory that the client has registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// As is better for so many bytes.
    BySize,
    /// The end that has the memory writes it.
    Writes,
    /// The end that wants the memory reads it.
    Reads,
}

impl Preference {
    /// Whether `bytes` of registered memory are read by the peer, and not written to it.
    pub fn reads(self, bytes: usize) -> bool {
        match self {
            Self::BySize => bytes >= READ_FROM,
            Self::Writes => false,
            Self::Reads => true,
        }
    }
}

/// The settings of one end, as the user has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The device to use.
    pub device: Option<String>,
    /// The index of the GID to use in the port's table.
    pub gid: Option<u32>,
    /// Queue pairs of a session.
    pub queue_pairs: u32,
    /// Messages of a kind under way on each.
    pub depth: u32,
    /// The path MTU; the card's own if not set.
    pub mtu: Option<PathMtu>,
    /// Bytes that may go inline.
    pub inline: u32,
    /// One request in so many has a completion.
    pub signal_interval: u32,
    /// How long completions are looked for before a thread sleeps.
    pub poll: Duration,
    /// Bytes of staging for each direction.
    pub staging: usize,
    /// How queue pairs are joined.
    pub method: Method,
    /// How registered memory goes to a device.
    pub prefers: Preference,
}

impl Settings {
    /// What the environment of this process says.
    pub fn from_environment() -> Result<Self, ValueError> {
        Self::read(PROCESS)
    }

    fn read(environment: Environment<'_>) -> Result<Self, ValueError> {
        let number =
            |variable, default: u64| environment.number(variable).map(|set| set.unwrap_or(default) as u32);
        let method = match environment.word(&VERBS_CONNECT)?.as_deref() {
            Some("rdma_cm") => Method::Manager,
            Some("numbers") => Method::Numbers,
            _ => Method::Auto,
        };
        let prefers = match environment.word(&VERBS_TO_DEVICE)?.as_deref() {
            Some("read") => Preference::Reads,
            Some("write") => Preference::Writes,
            _ => Preference::BySize,
        };
        let staging = environment.size(&VERBS_STAGING)?.unwrap_or(VERBS_STAGING_DEFAULT) as usize;
        let poll = environment.number(&VERBS_POLL_US)?.map(Duration::from_micros);
        let mtu = environment.number(&VERBS_MTU)?.and_then(|bytes| PathMtu::from_bytes(bytes as u32));
        Ok(Self {
            device: environment.text(&VERBS_DEVICE),
            gid: environment.number(&VERBS_GID)?.map(|index| index as u32),
            queue_pairs: number(&VERBS_QUEUE_PAIRS, VERBS_QUEUE_PAIRS_DEFAULT)?,
            depth: number(&VERBS_QUEUE_DEPTH, VERBS_QUEUE_DEPTH_DEFAULT)?,
            mtu,
            inline: number(&VERBS_INLINE, VERBS_INLINE_DEFAULT)?,
            signal_interval: number(&VERBS_SIGNAL_INTERVAL, VERBS_SIGNAL_INTERVAL_DEFAULT)?,
            poll: poll.unwrap_or(POLL.min(causeway_sync::spin::between_commands())),
            staging: staging / SLOT * SLOT,
            method,
            prefers,
        })
    }

    /// As much of the depth as a device has room for, in its queues and in a completion queue that all queue
    /// pairs share.
    pub fn depth_for(&self, limits: &Limits, queue_pairs: u32) -> u32 {
        let mut depth = self.depth;
        while depth > 1 {
            let QueueCapacity { sends, receives, completions } = QueueCapacity::of(depth, queue_pairs);
            if sends.max(receives) <= limits.work_requests && completions <= limits.completions {
                break;
            }
            depth /= 2;
        }
        depth
    }
}

/// Entries that the queues need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCapacity {
    /// In each send queue.
    pub sends: u32,
    /// In each receive queue.
    pub receives: u32,
    /// In the completion queue.
    pub completions: u32,
}

impl QueueCapacity {
    /// What `depth` messages of each kind need on each of so many queue pairs.
    pub fn of(depth: u32, queue_pairs: u32) -> Self {
        // A transfer's announcement has a write before it.
        let sends = 2 * depth + frames_of(depth) + CREDIT_UPDATE_RECEIVES;
        let receives = depth + frames_of(depth) + CREDIT_UPDATE_RECEIVES;
        Self { sends, receives, completions: (sends + receives) * queue_pairs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_config::Variable;
    use std::ffi::OsString;

    fn read(variables: &[(&Variable, &str)]) -> Result<Settings, ValueError> {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| known.name == name).map(|(_, text)| OsString::from(text))
        };
        Settings::read(Environment::of(&value))
    }

    #[test]
    fn the_defaults_are_the_published_optimum() {
        let settings = read(&[(&VERBS_QUEUE_DEPTH, " ")]).unwrap();
        assert_eq!((settings.queue_pairs, settings.depth, settings.mtu), (2, 128, None));
        assert_eq!((settings.method, settings.device), (Method::Auto, None));
    }

    #[test]
    fn what_is_set_is_taken_or_refused_in_words() {
        let settings = read(&[
            (&VERBS_QUEUE_PAIRS, "4"),
            (&VERBS_QUEUE_DEPTH, "1"),
            (&VERBS_MTU, "2048"),
            (&VERBS_DEVICE, "mlx5_1"),
            (&VERBS_GID, "3"),
            (&VERBS_POLL_US, "0"),
            (&VERBS_STAGING, "4M"),
            (&VERBS_CONNECT, "rdma_cm"),
            (&VERBS_TO_DEVICE, "read"),
        ])
        .unwrap();
        assert_eq!((settings.queue_pairs, settings.depth, settings.gid), (4, 1, Some(3)));
        assert_eq!((settings.mtu, settings.staging), (Some(PathMtu::Mtu2048), 4 << 20));
        assert_eq!((settings.method, settings.prefers), (Method::Manager, Preference::Reads));
        for (variable, text) in [
            (&VERBS_MTU, "1500"),
            (&VERBS_QUEUE_PAIRS, "0"),
            (&VERBS_QUEUE_DEPTH, "x"),
            (&VERBS_STAGING, "1K"),
            (&VERBS_CONNECT, "udp"),
            (&VERBS_TO_DEVICE, "ask"),
        ] {
            let text = read(&[(variable, text)]).unwrap_err().to_string();
            assert!(text.starts_with(variable.name) && text.contains("cannot be used: give "), "{text}");
        }
    }

    #[test]
    fn long_memory_is_read_unless_something_else_was_requested() {
        let reads =
            |preference: Preference| [1, READ_FROM - 1, READ_FROM].map(|bytes| preference.reads(bytes));
        assert_eq!(reads(Preference::BySize), [false, false, true]);
        assert_eq!((reads(Preference::Reads), reads(Preference::Writes)), ([true; 3], [false; 3]));
    }

    #[test]
    fn the_depth_is_what_the_device_has_room_for() {
        let settings = read(&[]).unwrap();
        let limits = |work_requests, completions| Limits {
            queue_pairs: 100,
            work_requests,
            completions,
            memory_regions: 100,
            memory_region_bytes: 1 << 40,
            reads: 16,
            answered_reads: 16,
        };
        assert_eq!(settings.depth_for(&limits(1 << 15, 1 << 20), 2), 128);
        assert_eq!(settings.depth_for(&limits(128, 1 << 20), 2), 32);
        assert_eq!(settings.depth_for(&limits(1 << 15, 400), 2), 32);
        assert_eq!(settings.depth_for(&limits(1, 1), 2), 1, "the device will say what it lacks");
    }
}
