//! What there is in a world: messages, calls, what the MPI holds, and how receives have ended.

use causeway_comm::matching::Unexpected;

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
