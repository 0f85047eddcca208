//! Failure of a team. What kernels have written, and what the host has found, as sentences.

use core::sync::atomic::Ordering;

use thiserror::Error;

use super::gpu::GpuError;
use super::layout::ErrorRecord;
use super::request::RequestError;
use super::verbs::{operation_name, syndrome_text};

/// What a kernel has found wrong: `Status` of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The bytes do not lie in the window.
    OutOfBounds,
    /// The window belongs to another team.
    OtherTeam,
    /// The team has no such rank.
    NoSuchRank,
    /// A word that is not at a multiple of 8.
    Misaligned,
    /// No initiator can do it with this window.
    Unsupported,
    /// It has not come within the team's limit.
    TimedOut,
    /// The host has ended the team.
    Aborted,
    /// A message is longer than the room for it.
    Truncated,
    /// No request has been taken within the team's limit.
    QueueFull,
    /// A network card has ended a request of a kernel with an error.
    NicFailed,
    /// A number that no header has.
    Unknown(u32),
}

impl Status {
    /// The status of a number, none for 0.
    pub fn of(code: u32) -> Option<Self> {
        Some(match code {
            0 => return None,
            1 => Self::OutOfBounds,
            2 => Self::OtherTeam,
            3 => Self::NoSuchRank,
            4 => Self::Misaligned,
            5 => Self::Unsupported,
            6 => Self::TimedOut,
            7 => Self::Aborted,
            8 => Self::Truncated,
            9 => Self::QueueFull,
            10 => Self::NicFailed,
            other => Self::Unknown(other),
        })
    }

    /// Its number.
    pub fn code(self) -> u32 {
        match self {
            Self::OutOfBounds => 1,
            Self::OtherTeam => 2,
            Self::NoSuchRank => 3,
            Self::Misaligned => 4,
            Self::Unsupported => 5,
            Self::TimedOut => 6,
            Self::Aborted => 7,
            Self::Truncated => 8,
            Self::QueueFull => 9,
            Self::NicFailed => 10,
            Self::Unknown(code) => code,
        }
    }
}

/// An operation that was refused or has not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub status: Status,
    /// `Verb` of the header.
    pub verb: u32,
    /// The rank that it named.
    pub peer: u32,
    /// The window.
    pub window: u32,
    /// Bytes from the window's start.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// The block and the thread, where it was a kernel that noticed.
    pub thread: Option<(u32, u32)>,
    /// What a network card says of it, where that has ended it.
    pub nic: Option<NicError>,
}

/// A request that a network card has ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicError {
    /// The number of the queue pair.
    pub queue_pair: u32,
    /// The operation, as the card numbers it.
    pub operation: u32,
    /// The card's cause.
    pub syndrome: u32,
}

/// Why a team has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// A kernel's operation, or one that the proxy was asked for.
    #[error("{}", sentence(*.rank, .refused))]
    Refused {
        /// The rank whose it was.
        rank: u32,
        /// What.
        refused: Refused,
    },
    /// Bytes in a queue that are no request.
    #[error(
        "rank {rank}: {cause}; the kernel was built with other headers than this library, or writes where \
         it must not"
    )]
    Request {
        /// The rank.
        rank: u32,
        /// What they were.
        cause: RequestError,
    },
    /// The proxy's copies.
    #[error("rank {rank}: the proxy could not copy: {cause}")]
    Gpu {
        /// The rank.
        rank: u32,
        /// What the driver said.
        cause: GpuError,
    },
    /// The proxy's thread has ended.
    #[error("rank {0}: the proxy has ended, and requests remain unfinished")]
    Proxy(u32),
    /// Another process of the team has ended.
    #[error("rank {0} has ended, or its part of the team has")]
    Peer(u32),
    /// The link to a rank whose memory is not mapped here.
    #[error("rank {rank}: the link to rank {peer} has ended: {cause}")]
    Link {
        /// The rank.
        rank: u32,
        /// The other one.
        peer: u32,
        /// Why.
        cause: String,
    },
    /// The program has asked for it.
    #[error("the program has ended the team")]
    Program,
}

impl Refused {
    /// What a kernel has written, if it has.
    pub fn read(record: &ErrorRecord) -> Option<Self> {
        // Acquired: it is written last.
        let status = Status::of(record.code.load(Ordering::Acquire))?;
        let word = |word: &core::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
        Some(Self {
            status,
            verb: word(&record.verb),
            peer: word(&record.peer),
            window: word(&record.window),
            offset: record.offset.load(Ordering::Relaxed),
            bytes: record.bytes.load(Ordering::Relaxed),
            thread: Some((word(&record.block), word(&record.thread))),
            nic: (status == Status::NicFailed).then(|| NicError {
                queue_pair: word(&record.queue_pair),
                operation: word(&record.operation),
                syndrome: word(&record.syndrome),
            }),
        })
    }
}

/// `Verb::wait`.
const WAIT: u32 = 10;

fn verb(number: u32) -> &'static str {
    match number {
        1 => "a put",
        2 => "a get",
        3 => "a store",
        4 => "a signal",
        5 => "a signal that adds",
        6 => "an atomic addition",
        7 => "an atomic compare-and-swap",
        8 => "a fetch",
        10 => "a wait",
        11 => "a barrier",
        12 => "a send",
        13 => "a receive",
        _ => "an unknown operation",
    }
}

/// What a network card says, with queue pair, operation and cause.
fn nic_sentence(error: NicError) -> String {
    let NicError { queue_pair, operation, syndrome } = error;
    let what = operation_name(operation);
    let cause = syndrome_text(syndrome).to_string_lossy();
    format!("queue pair {queue_pair:#x}, {what}: {cause} (syndrome {syndrome:#x})")
}

fn sentence(rank: u32, refused: &Refused) -> String {
    let Refused { status, verb: number, peer, window, offset, bytes, thread, nic } = *refused;
    let what = verb(number);
    let range = format!("{bytes} bytes at offset {offset} of window {window} of rank {peer}");
    let why = match status {
        Status::OutOfBounds => format!("{range} was refused: they do not lie in the window"),
        Status::OtherTeam => format!("{range} was refused: the window belongs to another team"),
        Status::NoSuchRank => format!("{range} was refused: the team has no such rank"),
        Status::Misaligned => format!("{range} was refused: the offset of a word is a multiple of 8"),
        Status::Unsupported => format!(
            "{range} was refused: this rank's threads don't reach the window, or its GPU has no atomic operations \
             there (nvidia-smi topo -p2p a), and the proxy cannot do this with it; give the window memory of the \
             host, or ranks that can map each other's memory"
        ),
        Status::TimedOut => format!("{range} has not come to its end within the team's limit"),
        Status::Aborted => format!("{range} was given up, because the team has ended"),
        Status::Truncated => {
            format!("{bytes} bytes from rank {peer} was refused: the receiver's room is shorter")
        }
        Status::QueueFull => {
            format!("{range} found the queue full, of which nothing was taken within the team's limit")
        }
        Status::NicFailed => {
            let reason = nic.map_or(String::new(), |error| format!(": {}", nic_sentence(error)));
            // A mark that `quiet` waits for is of no window.
            let at = if number == WAIT {
                "requests to ".to_owned()
            } else {
                format!("bytes at offset {offset} of window {window} of ")
            };
            format!("{at}rank {peer} was ended by the network card with an error{reason}")
        }
        Status::Unknown(code) => format!("{range} ended with the unknown status {code}"),
    };
    let thread = thread.map_or(String::new(), |(block, thread)| format!(" (block {block}, thread {thread})"));
    format!("rank {rank}: {what} of {why}{thread}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let header = include_str!("../../../../device/include/causeway/layout.h");
        let names = [
            ("out_of_bounds", Status::OutOfBounds),
            ("other_team", Status::OtherTeam),
            ("no_such_rank", Status::NoSuchRank),
            ("misaligned", Status::Misaligned),
            ("unsupported", Status::Unsupported),
            ("timed_out", Status::TimedOut),
            ("aborted", Status::Aborted),
            ("truncated", Status::Truncated),
            ("queue_full", Status::QueueFull),
            ("nic_failed", Status::NicFailed),
        ];
        for (name, status) in names {
            assert!(header.contains(&format!("    {name} = {},", status.code())), "{name}");
            assert_eq!(Status::of(status.code()), Some(status));
        }
    }

    #[test]
    fn an_error_says_what_was_asked_and_what_was_found() {
        let refused = Refused {
            status: Status::OutOfBounds,
            verb: 1,
            peer: 3,
            window: 2,
            offset: 4090,
            bytes: 64,
            thread: Some((0, 5)),
            nic: None,
        };
        assert_eq!(
            Failure::Refused { rank: 1, refused }.to_string(),
            "rank 1: a put of 64 bytes at offset 4090 of window 2 of rank 3 was refused: they do not lie in \
             the window (block 0, thread 5)"
        );
        let nic = Some(NicError { queue_pair: 0x105, operation: 8, syndrome: 0x13 });
        let ended = Refused { status: Status::NicFailed, nic, ..refused };
        assert_eq!(
            Failure::Refused { rank: 1, refused: ended }.to_string(),
            "rank 1: a put of bytes at offset 4090 of window 2 of rank 3 was ended by the network card with an error: queue \
             pair 0x105, RDMA write: the peer does not allow access to the memory that was named (syndrome 0x13) \
             (block 0, thread 5)"
        );
    }
}
