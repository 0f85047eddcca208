//! Cases of kernels that communicate by themselves.

use core::fmt;

use serde::Serialize;

/// What a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Half a round trip between two kernels: bytes and a signal.
    Latency,
    /// The time of a message where so many are asked for before all are waited for.
    Flight,
    /// Bytes in a second, where more messages are asked for than a queue holds.
    Queue,
    /// Bytes in a second of one large message that so many blocks move together.
    Bandwidth,
    /// Messages of 8 B in a second, by the threads of each of eight blocks.
    RateByThreads,
    /// Messages of 8 B in a second, by blocks of 256 threads.
    RateByBlocks,
    /// What it takes to ask for one message of 8 B, until the kernel goes on.
    Post,
    /// What it takes a thread to post a request of 8 B to a network card, where so many post.
    VerbsPost,
    /// Requests of 8 B in a second that they post.
    VerbsRate,
    /// An atomic addition in a peer's memory that returns what was there.
    AtomicAdd,
    /// A compare-and-swap in a peer's memory.
    AtomicCas,
    /// A word of a peer's memory is read.
    Fetch,
    /// All ranks meet.
    Barrier,
    /// A step of a 3-D stencil that is cut between two ranks.
    Stencil,
    /// What the GPU takes for a message of a ping-pong.
    Energy,
    /// What the GPU takes.
    Power,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Latency,
        Self::Flight,
        Self::Queue,
        Self::Bandwidth,
        Self::RateByThreads,
        Self::RateByBlocks,
        Self::Post,
        Self::VerbsPost,
        Self::VerbsRate,
        Self::AtomicAdd,
        Self::AtomicCas,
        Self::Fetch,
        Self::Barrier,
        Self::Stencil,
        Self::Energy,
        Self::Power,
    ];

    /// The one that the measuring program calls so.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.name() == name)
    }

    /// What the measuring program calls it, as JSON does.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
    }

    /// The unit of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Queue | Self::Bandwidth => "GB/s",
            Self::RateByThreads | Self::RateByBlocks | Self::VerbsRate => "M/s",
            Self::Post | Self::VerbsPost => "ns",
            Self::Energy => "uJ",
            Self::Power => "W",
            _ => "us",
        }
    }

    /// What [`Case::count`] counts, where it tells cases apart.
    pub fn counted(self) -> Option<&'static str> {
        match self {
            Self::Flight | Self::Queue => Some("messages in flight"),
            Self::Bandwidth | Self::RateByBlocks => Some("blocks"),
            Self::RateByThreads => Some("threads of each block"),
            Self::VerbsPost | Self::VerbsRate => Some("posting threads"),
            Self::Barrier => Some("ranks"),
            Self::Stencil => Some("points of a rank"),
            _ => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latency => "latency, one way",
            Self::Flight => "time of a message with others in flight",
            Self::Queue => "bandwidth to a full queue",
            Self::Bandwidth => "bandwidth of one large message",
            Self::RateByThreads => "messages of 8 blocks, by threads",
            Self::RateByBlocks => "messages of blocks of 256 threads",
            Self::Post => "time of a post",
            Self::VerbsPost => "time of a post to a network card, of each thread",
            Self::VerbsRate => "posts to a network card",
            Self::AtomicAdd => "atomic addition",
            Self::AtomicCas => "compare-and-swap",
            Self::Fetch => "fetch of a word",
            Self::Barrier => "barrier",
            Self::Stencil => "step of a 3-D stencil",
            Self::Energy => "energy of the GPU, a message of a ping-pong",
            Self::Power => "power of the GPU",
        })
    }
}

/// What one figure is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Case {
    /// What of.
    pub what: What,
    /// Bytes of a message.
    pub bytes: u64,
    /// How many there are of what [`What::counted`] says; 1 where it says nothing.
    pub count: u64,
    /// Who moves the bytes.
    pub way: String,
}
