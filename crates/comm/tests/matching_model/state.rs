//! State of a world, and the programs and messages that are tried.

use causeway_comm::matching::{DESCRIPTOR_BYTES, Unexpected};

pub const OWN: u32 = 9;
/// Payloads of a GPU from here on travel as descriptors.
pub const THRESHOLD: u64 = 100;

/// Where a payload lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    Host,
    Gpu,
    /// Memory of the host that holds a descriptor of another job.
    ForeignDescriptor,
}

/// A message of a sender's program; where it stands in the world's list is its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Message {
    pub source: i32,
    pub tag: i32,
    pub memory: Memory,
    pub bytes: u64,
}

/// A call of the receiver's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// A receive that is posted and completes at some time.
    Irecv { source: Option<i32>, tag: Option<i32>, room: u64 },
    /// Waits for a message, and receives it by the source and tag that it was told.
    ProbeAndReceive { source: Option<i32>, tag: Option<i32> },
    /// Looks once.
    Iprobe { source: Option<i32>, tag: Option<i32> },
    /// Cancels the receive of this number.
    Cancel(usize),
}

/// Parts of the rule that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    Nothing,
    /// A receive gives the MPI no more room than the user does.
    Room,
    /// A probe takes out the descriptor alone, and leaves what came before it.
    Order,
    /// Receives do not look into the list.
    List,
    /// Another thread may come between a look into the list and the call of the MPI.
    Lock,
    /// A message of a descriptor's length is one, whatever is in it.
    Proof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Pending,
    Cancelled,
    /// The message, what the status says of it, and whether it was too long.
    Got {
        message: usize,
        count: u64,
        truncated: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receive {
    pub source: Option<i32>,
    pub tag: Option<i32>,
    pub room: u64,
    pub outcome: Outcome,
}

impl Receive {
    pub fn matches(&self, message: &Message) -> bool {
        fits(self.source, self.tag, message)
    }
}

pub fn fits(source: Option<i32>, tag: Option<i32>, message: &Message) -> bool {
    source.is_none_or(|source| source == message.source) && tag.is_none_or(|tag| tag == message.tag)
}

/// A thread of the receiver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Thread {
    pub next: usize,
    /// It has looked into the list in vain, and calls the MPI in its next step.
    pub has_looked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// How many messages of each sender have arrived.
    pub arrived: [usize; 2],
    /// The MPI's: messages that match no receive, in the order of their arrival.
    pub waiting: Vec<usize>,
    /// The MPI's: receives that are posted, with the room that it was given.
    pub posted: Vec<(usize, u64)>,
    pub list: Unexpected<usize>,
    pub receives: Vec<Receive>,
    pub threads: Vec<Thread>,
}

/// All messages that a sender may send in these tests.
fn kinds(source: i32) -> Vec<Message> {
    let mut kinds = Vec::new();
    for tag in [1, 2] {
        for (memory, bytes) in [
            (Memory::Host, 8),
            (Memory::Host, DESCRIPTOR_BYTES as u64),
            (Memory::Gpu, 8),
            (Memory::Gpu, 1000),
            (Memory::ForeignDescriptor, DESCRIPTOR_BYTES as u64),
        ] {
            kinds.push(Message { source, tag, memory, bytes });
        }
    }
    kinds
}

/// Calls of every kind; `Cancel` is of the first receive.
fn calls() -> Vec<Call> {
    let mut calls = vec![Call::Cancel(0)];
    for (source, tag) in [(None, None), (Some(0), None), (None, Some(2)), (Some(0), Some(2))] {
        for room in [8, 2000] {
            calls.push(Call::Irecv { source, tag, room });
        }
        calls.push(Call::ProbeAndReceive { source, tag });
        calls.push(Call::Iprobe { source, tag });
    }
    calls
}

/// Every program of three calls in which what is cancelled was posted before.
pub fn programs() -> impl Iterator<Item = [Call; 3]> {
    let all = calls();
    let posts = |call: &Call| matches!(call, Call::Irecv { .. });
    let firsts = all.clone().into_iter().filter(|call| !matches!(call, Call::Cancel(_)));
    firsts
        .flat_map(move |first| {
            let all = all.clone();
            all.clone()
                .into_iter()
                .flat_map(move |second| all.clone().into_iter().map(move |third| [first, second, third]))
        })
        .filter(move |program| {
            posts(&program[0]) || program.iter().all(|call| !matches!(call, Call::Cancel(_)))
        })
}

/// Worlds of one sender with two messages, and of two senders with three.
pub fn message_lists(sample: usize) -> Vec<Vec<Message>> {
    let (of_first, of_second) = (kinds(0), kinds(1));
    let mut lists = Vec::new();
    for first in &of_first {
        for second in &of_first {
            lists.push(vec![*first, *second]);
            lists.extend(of_second.iter().map(|other| vec![*first, *second, *other]));
        }
    }
    // All lists over the programs, each with some of them: a stride that is prime to both.
    lists.into_iter().enumerate().filter(|(at, _)| at % 37 == sample % 37).map(|(_, list)| list).collect()
}

/// One thread that probes, and one that receives. Each of them looks once, so that no receive of one takes
/// away what the other has been told of.
pub fn threads() -> Vec<([Call; 2], [Call; 2])> {
    let mut pairs = Vec::new();
    for (source, tag) in [(None, None), (Some(0), None), (None, Some(2))] {
        let receive = Call::Irecv { source, tag, room: 2000 };
        for probed in [None, Some(2)] {
            let probe = Call::Iprobe { source: Some(0), tag: probed };
            pairs.push(([probe, probe], [receive, receive]));
        }
    }
    pairs
}
