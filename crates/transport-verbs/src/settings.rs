//! How is a session's use of verbs set, and what does the device allow of it?
//!
//! The variables are documented in `docs/src/reference/environment.md`. Each end reads its own; of queue
//! pairs, depth and MTU the smaller of both ends' counts.

use core::fmt;
use std::time::Duration;

use causeway_ibverbs::{Limits, PathMtu};
use thiserror::Error;

use super::credit::{EXTRA_RECEIVES, frames_of};
use causeway_pipeline::Size;
use causeway_transport::slots::SLOT;

/// What the names of all variables begin with.
pub const PREFIX: &str = "CAUSEWAY_VERBS_";

/// Two queue pairs a port were the published optimum (2 % below 2 KiB, 5 % above; more gave nothing).
const QUEUE_PAIRS: u32 = 2;
/// The most queue pairs of a session.
pub const MOST_QUEUE_PAIRS: u32 = 16;
/// A capacity of 128 requests was the published optimum (against 2: up to 5.8 times the rate; more gave
/// nothing).
const DEPTH: u32 = 128;
/// The most messages of a kind that may be under way on a queue pair.
pub const MOST_DEPTH: u32 = 1024;
/// Bytes that go into the queue with their request: an announcement is 48.
const INLINE: u32 = 64;
/// One request in so many has a completion.
const SIGNAL_INTERVAL: u32 = 16;
/// How long completions are looked for before a thread sleeps, where there are cores to spare for that.
const POLL: Duration = Duration::from_micros(20);
/// Bytes of staging for each direction, at either end: four pieces of a long copy. It is registered, and so
/// taken from the system, at the start.
const STAGING: usize = 16 << 20;
const LEAST_STAGING: usize = 1 << 20;
/// From so many bytes on registered memory is read by the peer.
const READ_FROM: usize = 1 << 20;
const MOST_STAGING: usize = 4 << 30;

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

/// A variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{PREFIX}{name}={value} cannot be used: {expected}")]
pub struct SettingsError {
    name: &'static str,
    value: String,
    expected: String,
}

impl Settings {
    /// What the environment of this process says.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::read(|name| std::env::var(format!("{PREFIX}{name}")).ok())
    }

    /// What `variable` says, which gets names without their common beginning.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let text =
            |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let number = |name, least: u64, most: u64| match text(name) {
            None => Ok(None),
            Some(value) => match value.parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => Err(error(name, value, format!("give a number from {least} to {most}"))),
            },
        };
        let mtu = match text("MTU") {
            None => None,
            Some(value) => match value.parse().ok().and_then(PathMtu::from_bytes) {
                Some(mtu) => Some(mtu),
                None => return Err(error("MTU", value, "give 256, 512, 1024, 2048 or 4096")),
            },
        };
        let method = match text("CONNECT").as_deref() {
            None | Some("auto") => Method::Auto,
            Some("rdma_cm") => Method::Manager,
            Some("numbers") => Method::Numbers,
            Some(other) => return Err(error("CONNECT", other, "give auto, rdma_cm or numbers")),
        };
        let prefers = match text("TO_DEVICE").as_deref() {
            None | Some("auto") => Preference::BySize,
            Some("read") => Preference::Reads,
            Some("write") => Preference::Writes,
            Some(other) => return Err(error("TO_DEVICE", other, "give auto, read or write")),
        };
        let staging = match text("STAGING") {
            None => STAGING,
            Some(value) => match Size::parse_bytes(&value) {
                Some(bytes) if (LEAST_STAGING..=MOST_STAGING).contains(&bytes) => bytes,
                _ => return Err(error("STAGING", value, "give a size from 1M to 4G")),
            },
        };
        let poll = number("POLL_US", 0, 1_000_000)?.map(Duration::from_micros);
        let u32_or = |found: Option<u64>, default: u32| found.map_or(default, |number| number as u32);
        Ok(Self {
            device: text("DEVICE"),
            gid: number("GID", 0, 1023)?.map(|index| index as u32),
            queue_pairs: u32_or(number("QUEUE_PAIRS", 1, MOST_QUEUE_PAIRS.into())?, QUEUE_PAIRS),
            depth: u32_or(number("DEPTH", 1, MOST_DEPTH.into())?, DEPTH),
            mtu,
            inline: u32_or(number("INLINE", 0, 1024)?, INLINE),
            signal_interval: u32_or(number("SIGNAL_INTERVAL", 1, 1024)?, SIGNAL_INTERVAL),
            poll: poll.unwrap_or(POLL.min(causeway_sync::awake::between_commands())),
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
            let Room { sends, receives, completions } = Room::of(depth, queue_pairs);
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
pub struct Room {
    /// In each send queue.
    pub sends: u32,
    /// In each receive queue.
    pub receives: u32,
    /// In the completion queue.
    pub completions: u32,
}

impl Room {
    /// What `depth` messages of each kind need on each of so many queue pairs.
    pub fn of(depth: u32, queue_pairs: u32) -> Self {
        // A transfer's announcement has a write before it.
        let sends = 2 * depth + frames_of(depth) + EXTRA_RECEIVES;
        let receives = depth + frames_of(depth) + EXTRA_RECEIVES;
        Self { sends, receives, completions: (sends + receives) * queue_pairs }
    }
}

fn error(name: &'static str, value: impl fmt::Display, expected: impl Into<String>) -> SettingsError {
    SettingsError { name, value: value.to_string(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_defaults_are_the_published_optimum() {
        let settings = read(&[("DEPTH", " ")]).unwrap();
        assert_eq!((settings.queue_pairs, settings.depth, settings.mtu), (2, 128, None));
        assert_eq!((settings.method, settings.device), (Method::Auto, None));
    }

    #[test]
    fn what_is_set_is_taken_or_refused_in_words() {
        let settings = read(&[
            ("QUEUE_PAIRS", "4"),
            ("DEPTH", "1"),
            ("MTU", "2048"),
            ("DEVICE", "mlx5_1"),
            ("GID", "3"),
            ("POLL_US", "0"),
            ("STAGING", "4M"),
            ("CONNECT", "rdma_cm"),
            ("TO_DEVICE", "read"),
        ])
        .unwrap();
        assert_eq!((settings.queue_pairs, settings.depth, settings.gid), (4, 1, Some(3)));
        assert_eq!((settings.mtu, settings.staging), (Some(PathMtu::Mtu2048), 4 << 20));
        assert_eq!((settings.method, settings.prefers), (Method::Manager, Preference::Reads));
        for (name, text) in [
            ("MTU", "1500"),
            ("QUEUE_PAIRS", "0"),
            ("DEPTH", "x"),
            ("STAGING", "1K"),
            ("CONNECT", "udp"),
            ("TO_DEVICE", "ask"),
        ] {
            let text = read(&[(name, text)]).unwrap_err().to_string();
            assert!(text.starts_with(PREFIX) && text.contains("cannot be used: give "), "{text}");
        }
    }

    #[test]
    fn long_memory_is_read_unless_something_else_was_asked_for() {
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
