//! Report of channels, algorithms and collective calls: what `CAUSEWAY_COMM_EXPLAIN=1` prints at the end.

use core::fmt;
use std::collections::BTreeMap;
use std::io::Write as _;

use crate::channels::Channel;
use crate::scheduler::Decision;

/// Why a message of a GPU's memory travelled with the MPI, through the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inline {
    /// It is shorter than the threshold, and the receiver does not have its memory open.
    Short,
    /// The peer's socket does not answer: it is on another host, or not interposed.
    Unreachable,
    /// This rank moves to another container.
    Moving,
    /// No channel is allowed that takes such memory.
    NoChannel,
    /// The call returns before the receiver has anything (`MPI_Bsend`).
    Buffered,
    /// It is so short that the processor reads it through the GPU's BAR.
    Eager,
}

/// Which way a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessagePath {
    /// Fetched by a channel.
    Fetched(Decision),
    /// Used by a kernel in place, which the channel has opened here.
    Mapped(Channel),
    /// Offered, and fetched by the peer.
    Offered,
    /// With the MPI.
    Inline(Inline),
    /// With the MPI, and the processor has written it through the GPU's BAR.
    Eager,
}

impl fmt::Display for MessagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetched(Decision { channel, reason, traffic, to_gpu, is_gpudirect }) => {
                let memory = if *to_gpu { "a GPU" } else { "memory of the host" };
                let gpudirect = if *is_gpudirect { ", by GPUDirect" } else { "" };
                write!(f, "received by {channel}: {reason} (into {memory}, {traffic}{gpudirect})")
            }
            Self::Mapped(channel) => {
                write!(f, "read or written by a kernel where they lie, opened by {channel}")
            }
            Self::Offered => f.write_str("sent, for the receiver to fetch (its report says how)"),
            Self::Inline(Inline::Short) => {
                f.write_str("sent with the MPI: short, and not open at the receiver")
            }
            Self::Inline(Inline::Unreachable) => {
                f.write_str("sent with the MPI: the peer's socket does not answer")
            }
            Self::Inline(Inline::Moving) => {
                f.write_str("sent with the MPI: while this rank moved to another container")
            }
            Self::Inline(Inline::NoChannel) => {
                f.write_str("sent with the MPI: CAUSEWAY_COMM_CHANNELS leaves no channel for such memory")
            }
            Self::Inline(Inline::Buffered) => f.write_str("sent with the MPI: MPI_Bsend keeps a copy"),
            Self::Inline(Inline::Eager) => {
                f.write_str("sent with the MPI: short, and read through the GPU's BAR")
            }
            Self::Eager => f.write_str("received by bar: short, and brought by the MPI (into a GPU)"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    messages: u64,
    bytes: u64,
    /// The sizes of the shortest and the longest.
    sizes: Option<(u64, u64)>,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let (min_bytes, max_bytes) = self.sizes.unwrap_or((bytes, bytes));
        self.sizes = Some((min_bytes.min(bytes), max_bytes.max(bytes)));
    }
}

/// Counts of messages, for one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    paths: BTreeMap<(u32, MessagePath), Count>,
    /// Messages that the program had back before the peer came.
    detached: BTreeMap<u32, Count>,
    calls: BTreeMap<(String, Algorithm), Count>,
    /// By the number of the highest bit of the size.
    sizes: BTreeMap<u32, u64>,
}

impl Report {
    /// Counts a message to or from a peer.
    pub fn count(&mut self, peer: u32, path: MessagePath, bytes: u64) {
        let count = self.paths.entry((peer, path)).or_default();
        count.add(bytes);
        *self.sizes.entry(u64::BITS - bytes.leading_zeros()).or_default() += 1;
    }

    /// Counts a message that was sent to a peer, and of which a copy is kept since the peer is late.
    pub fn count_detached(&mut self, peer: u32, bytes: u64) {
        let count = self.detached.entry(peer).or_default();
        count.add(bytes);
    }

    /// Counts a collective call of this name: `bytes` are those that this rank sends and receives.
    pub fn count_call(&mut self, name: &str, algorithm: Algorithm, bytes: u64) {
        let count = self.calls.entry((name.to_owned(), algorithm)).or_default();
        count.add(bytes);
    }

    /// How many messages were received by a channel, or sent with the MPI where there is none.
    pub fn messages(&self, channel: Option<Channel>) -> u64 {
        let is_meant = |path: &MessagePath| match (path, channel) {
            (MessagePath::Fetched(Decision { channel: by, .. }) | MessagePath::Mapped(by), Some(channel)) => {
                *by == channel
            }
            (MessagePath::Eager, Some(channel)) => channel == Channel::EAGER,
            (MessagePath::Inline(_), None) => true,
            _ => false,
        };
        self.paths.iter().filter(|((_, path), _)| is_meant(path)).map(|(_, count)| count.messages).sum()
    }

    /// The lines that are printed for a rank.
    pub fn lines(&self, rank: u32) -> Vec<String> {
        let mut lines = Vec::new();
        for ((peer, path), Count { messages, bytes, sizes }) in &self.paths {
            let each = match sizes {
                Some((min_bytes, max_bytes)) if min_bytes < max_bytes => {
                    format!(", {min_bytes} to {max_bytes} bytes each")
                }
                _ => String::new(),
            };
            lines.push(format!("rank {rank} and {peer}: {messages} messages, {bytes} bytes {path}{each}"));
        }
        for (peer, Count { messages, bytes, .. }) in &self.detached {
            lines.push(format!(
                "rank {rank} and {peer}: {messages} of the messages that were sent, {bytes} bytes, were copied \
                 into memory of the host, since the receiver was late"
            ));
        }
        for ((name, algorithm), Count { messages: calls, bytes, .. }) in &self.calls {
            lines.push(format!("rank {rank}: {calls} calls of {name}, {bytes} bytes, {algorithm}"));
        }
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|(class, count)| {
                let limit = 1_u128 << class;
                format!("{count} below {limit}")
            })
            .collect();
        if !sizes.is_empty() {
            lines.push(format!("rank {rank}: sizes in bytes: {}", sizes.join(", ")));
        }
        lines
    }
}

/// Why a collective call went through the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Staging {
    /// It was not the blocking form.
    Later,
    /// It is shorter than the threshold.
    Short,
    /// It is shorter than two levels between so many hosts are worth.
    ShortOfHosts(u32),
    /// No other way is built for this call.
    NotBuilt,
    /// It was made between two groups, by a rank alone, or by one that has no part in the job.
    Group,
    /// No kernel reduces such elements by that operation.
    NoKernel,
    /// The ranks are on so many hosts, and the call is not made between hosts otherwise, or not by these
    /// ranks.
    Hosts(u32),
    /// Nobody asked the other ranks whether they can.
    Unasked,
    /// Some rank cannot: for its memory, or since it does not reach the others.
    Rank,
    /// The same, between so many hosts.
    RankOfHosts(u32),
}

/// Which way a collective call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// From GPU to GPU.
    Direct,
    /// In two levels.
    Leaders {
        /// How many hosts there are.
        hosts: u32,
        /// This rank's calls are those of its host's leader.
        leads: bool,
        /// As a leader it has heard the others by channels; otherwise by the MPI.
        by_channels: bool,
    },
    /// By way of the host's memory.
    Staged(Staging),
}

impl Algorithm {
    /// That of a number of `causeway_comm.h`, for ranks of so many hosts.
    pub fn of_code(code: i32, hosts: u32, leads: bool) -> Option<Self> {
        Some(match code {
            0 => Self::Direct,
            1 => Self::Leaders { hosts, leads, by_channels: false },
            2 => Self::Leaders { hosts, leads, by_channels: true },
            3 => Self::Staged(Staging::Later),
            4 => Self::Staged(Staging::Short),
            5 => Self::Staged(Staging::ShortOfHosts(hosts)),
            6 => Self::Staged(Staging::NotBuilt),
            7 => Self::Staged(Staging::Group),
            8 => Self::Staged(Staging::NoKernel),
            9 => Self::Staged(Staging::Hosts(hosts)),
            10 => Self::Staged(Staging::Unasked),
            11 if hosts > 1 => Self::Staged(Staging::RankOfHosts(hosts)),
            11 => Self::Staged(Staging::Rank),
            _ => return None,
        })
    }
}

impl fmt::Display for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later => f.write_str("non-blocking and persistent calls are always staged"),
            Self::Short => f.write_str("it is shorter than CAUSEWAY_COMM_COLLECTIVE_THRESHOLD"),
            Self::ShortOfHosts(hosts) => write!(
                f,
                "between {hosts} hosts, it is shorter than 16 times CAUSEWAY_COMM_COLLECTIVE_THRESHOLD"
            ),
            Self::NotBuilt => f.write_str("this call has no other way"),
            Self::Group => {
                f.write_str("it is made between two groups, by one rank, or with one that has no part in the job")
            }
            Self::NoKernel => f.write_str("no kernel reduces such elements by this operation"),
            Self::Hosts(hosts) => {
                write!(f, "the ranks are on {hosts} hosts, and are alone there or have no two levels for this call")
            }
            Self::Unasked => f.write_str(
                "the ranks did not ask each other, as no rank had memory on a GPU in such a call that was asked about",
            ),
            Self::Rank => {
                f.write_str("a rank has memory in the host's, or with gaps, or does not reach the others")
            }
            Self::RankOfHosts(hosts) => write!(
                f,
                "between {hosts} hosts, a rank that shares its host has memory in the host's, or with gaps"
            ),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("from GPU to GPU"),
            Self::Leaders { hosts, leads, by_channels } => {
                write!(f, "in two levels between {hosts} hosts")?;
                match (leads, by_channels) {
                    (false, _) => f.write_str(", whose leaders speak with each other"),
                    (true, true) => f.write_str(", as this one's leader, by channels between leaders"),
                    (true, false) => f.write_str(", as this one's leader, by the MPI between leaders"),
                }
            }
            Self::Staged(why) => write!(f, "staged through host memory: {why}"),
        }
    }
}

/// Prints lines on standard error, each by one call of the system: parts of lines would be mixed
/// with those of other ranks.
pub(crate) fn print(lines: impl IntoIterator<Item = String>) {
    for line in lines {
        // Where it cannot be written nobody reads it.
        let _ = std::io::stderr().write_all(format!("causeway: {line}\n").as_bytes());
    }
}

/// Prints that a rank shares its GPU with others without MPS, and what that means for kernels, or graphs.
pub(crate) fn warn_of_time_slicing(rank: u32, same: &[u32], what: &str) {
    print([format!(
        "rank {rank} shares its GPU with the processes of ranks {same:?}, without NVIDIA's MPS: they take turns by \
         time slice, {what} that wait for each other use theirs up, and no latency counts"
    )]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Reason;
    use crate::tracer::Traffic;

    #[test]
    fn messages_are_counted_by_peer_and_way() {
        let mut report = Report::default();
        let (channel, reason) = (Channel::Staged, Reason::Only);
        let decision =
            Decision { channel, reason, traffic: Traffic::Bandwidth, to_gpu: true, is_gpudirect: false };
        let path = MessagePath::Fetched(decision);
        report.count(1, path, 5000);
        report.count(1, path, 8191);
        report.count(2, MessagePath::Inline(Inline::Short), 0);
        report.count(2, MessagePath::Offered, 1);
        report.count_detached(2, 1);
        let messages = [Some(Channel::Staged), Some(Channel::Vmm), None].map(|path| report.messages(path));
        assert_eq!(messages, [2, 0, 1]);
        assert_eq!(
            report.lines(0),
            [
                "rank 0 and 1: 2 messages, 13191 bytes received by staged: there is no other (into a GPU, \
                 bound by bandwidth), 5000 to 8191 bytes each",
                "rank 0 and 2: 1 messages, 1 bytes sent, for the receiver to fetch (its report says how)",
                "rank 0 and 2: 1 messages, 0 bytes sent with the MPI: short, and not open at the receiver",
                "rank 0 and 2: 1 of the messages that were sent, 1 bytes, were copied into memory of the host, \
                 since the receiver was late",
                "rank 0: sizes in bytes: 1 below 1, 1 below 2, 2 below 8192",
            ]
        );
    }

    #[test]
    fn calls_are_counted_by_name_algorithm_and_reason() {
        let mut report = Report::default();
        let leaders = Algorithm::Leaders { hosts: 2, leads: true, by_channels: false };
        report.count_call("MPI_Bcast", leaders, 70_000);
        report.count_call("MPI_Bcast", leaders, 1);
        report.count_call("MPI_Bcast", Algorithm::Staged(Staging::Short), u64::MAX);
        report.count_call("MPI_Bcast", Algorithm::Staged(Staging::Short), 1);
        report.count_call("MPI_Allgather", Algorithm::Direct, 0);
        assert_eq!(
            report.lines(3),
            [
                "rank 3: 1 calls of MPI_Allgather, 0 bytes, from GPU to GPU",
                "rank 3: 2 calls of MPI_Bcast, 70001 bytes, in two levels between 2 hosts, as this one's \
                 leader, by the MPI between leaders",
                "rank 3: 2 calls of MPI_Bcast, 18446744073709551615 bytes, staged through host memory: it is \
                 shorter than CAUSEWAY_COMM_COLLECTIVE_THRESHOLD",
            ]
        );
    }

    #[test]
    fn codes_of_the_header_name_each_algorithm_once() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../mpi/causeway_comm.h");
        let header = std::fs::read_to_string(header).expect("the header is in the tree");
        let codes =
            header.lines().filter(|line| line.trim_start().starts_with("CAUSEWAY_COMM_CALL_")).count();
        let known: std::collections::BTreeSet<_> =
            (0..codes as i32).filter_map(|code| Algorithm::of_code(code, 2, true)).collect();
        assert_eq!((known.len(), Algorithm::of_code(codes as i32, 2, true)), (codes, None));
        assert_eq!(Algorithm::of_code(-1, 2, true), None);
    }
}
