//! Which messages went which way, and why? What `CAUSEWAY_COMM_EXPLAIN=1` prints at the end.

use core::fmt;
use std::collections::BTreeMap;

use crate::channels::Channel;
use crate::scheduler::Reason;

/// Why a message of a GPU's memory travelled with the MPI, by way of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inline {
    /// It is shorter than the threshold, and the receiver does not have its memory open.
    Short,
    /// The peer's socket does not answer: it is on another host, or not interposed.
    Unreachable,
    /// No channel is allowed that takes such memory.
    NoChannel,
    /// The call returns before the receiver has anything (`MPI_Bsend`).
    Buffered,
}

/// Which way a collective call went whose ranks are on several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Between {
    /// In two levels.
    Leaders {
        /// How many hosts there are.
        hosts: u32,
        /// This rank's calls are those of its host's leader.
        leads: bool,
        /// As a leader it has heard the others by channels; otherwise by the MPI.
        by_channels: bool,
    },
    /// Staged, since a rank that shares its host with others has memory in the host's, or with gaps.
    Staged {
        /// How many hosts there are.
        hosts: u32,
    },
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaders { hosts, leads, by_channels } => {
                write!(f, "in two levels between {hosts} hosts")?;
                match (leads, by_channels) {
                    (false, _) => f.write_str(", whose leaders speak with each other"),
                    (true, true) => f.write_str(", as this one's leader, by channels between leaders"),
                    (true, false) => f.write_str(", as this one's leader, by the MPI between leaders"),
                }
            }
            Self::Staged { hosts } => write!(
                f,
                "between {hosts} hosts with the MPI: a rank that shares its host has memory in the host's, or with gaps"
            ),
        }
    }
}

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Fetched by a channel.
    Fetched(Channel, Reason),
    /// Used by a kernel where it lies, which the channel has opened here.
    Reached(Channel),
    /// Offered, and fetched by the peer.
    Offered,
    /// With the MPI.
    Inline(Inline),
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetched(channel, reason) => write!(f, "received by {channel}: {reason}"),
            Self::Reached(channel) => {
                write!(f, "read or written by a kernel where they lie, opened by {channel}")
            }
            Self::Offered => f.write_str("sent, for the receiver to fetch (its report says how)"),
            Self::Inline(Inline::Short) => {
                f.write_str("sent with the MPI: short, and not open at the receiver")
            }
            Self::Inline(Inline::Unreachable) => {
                f.write_str("sent with the MPI: the peer's socket does not answer")
            }
            Self::Inline(Inline::NoChannel) => {
                f.write_str("sent with the MPI: CAUSEWAY_COMM_CHANNELS leaves no channel for such memory")
            }
            Self::Inline(Inline::Buffered) => f.write_str("sent with the MPI: MPI_Bsend keeps a copy"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    messages: u64,
    bytes: u64,
}

/// Counts of messages, for one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    ways: BTreeMap<(u32, Way), Count>,
    between: BTreeMap<Between, Count>,
    /// By the number of the highest bit of the size.
    sizes: BTreeMap<u32, u64>,
}

impl Report {
    /// Counts a message to or from a peer.
    pub fn count(&mut self, peer: u32, way: Way, bytes: u64) {
        let count = self.ways.entry((peer, way)).or_default();
        count.messages += 1;
        count.bytes = count.bytes.saturating_add(bytes);
        *self.sizes.entry(u64::BITS - bytes.leading_zeros()).or_default() += 1;
    }

    /// Counts a collective call between hosts.
    pub fn count_between_hosts(&mut self, way: Between, bytes: u64) {
        let count = self.between.entry(way).or_default();
        count.messages += 1;
        count.bytes = count.bytes.saturating_add(bytes);
    }

    /// How many messages were received by a channel, or sent with the MPI where there is none.
    pub fn messages(&self, channel: Option<Channel>) -> u64 {
        let is_meant = |way: &Way| match (way, channel) {
            (Way::Fetched(by, _) | Way::Reached(by), Some(channel)) => *by == channel,
            (Way::Inline(_), None) => true,
            _ => false,
        };
        self.ways.iter().filter(|((_, way), _)| is_meant(way)).map(|(_, count)| count.messages).sum()
    }

    /// The lines that are printed for a rank.
    pub fn lines(&self, rank: u32) -> Vec<String> {
        let mut lines = Vec::new();
        for ((peer, way), Count { messages, bytes }) in &self.ways {
            lines.push(format!("rank {rank} and {peer}: {messages} messages, {bytes} bytes {way}"));
        }
        for (way, Count { messages, bytes }) in &self.between {
            lines.push(format!("rank {rank}: {messages} collective calls, {bytes} bytes {way}"));
        }
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(class, count)| {
                let below = 1_u128 << class;
                format!("{count} below {below}")
            })
            .collect();
        if !sizes.is_empty() {
            lines.push(format!("rank {rank}: sizes in bytes: {}", sizes.join(", ")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_peer_and_way() {
        let mut report = Report::default();
        let way = Way::Fetched(Channel::Staged, Reason::Only);
        report.count(1, way, 5000);
        report.count(1, way, 8191);
        report.count(2, Way::Inline(Inline::Short), 0);
        report.count(2, Way::Offered, 1);
        report.count_between_hosts(Between::Leaders { hosts: 2, leads: true, by_channels: false }, 70_000);
        let messages = [Some(Channel::Staged), Some(Channel::Vmm), None].map(|way| report.messages(way));
        assert_eq!(messages, [2, 0, 1]);
        assert_eq!(
            report.lines(0),
            [
                "rank 0 and 1: 2 messages, 13191 bytes received by staged: there is no other",
                "rank 0 and 2: 1 messages, 1 bytes sent, for the receiver to fetch (its report says how)",
                "rank 0 and 2: 1 messages, 0 bytes sent with the MPI: short, and not open at the receiver",
                "rank 0: 1 collective calls, 70000 bytes in two levels between 2 hosts, as this one's \
                 leader, by the MPI between leaders",
                "rank 0: sizes in bytes: 1 below 1, 1 below 2, 2 below 8192",
            ]
        );
    }
}
