//! What a program is: buffers, streams, events, graphs, and operations in the order in which they are issued.

mod region;
mod work;

pub use region::Region;
pub use work::{CopyForm, Work};

/// Where a buffer's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferKind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync`.
    Pool,
    /// `cuMemHostAlloc`.
    Pinned,
    /// Memory of the process under `cuMemHostRegister`.
    Registered,
    /// `cuMemHostAlloc` with a device pointer that kernels use.
    Mapped,
    /// `cuMemAllocManaged`.
    Managed,
    /// Memory of the process that CUDA does not know.
    Pageable,
}

impl BufferKind {
    /// Buffers of this kind are memory of a device.
    pub fn is_device(self) -> bool {
        matches!(self, Self::Device | Self::Pool)
    }

    /// Whether the host may read and write it.
    pub fn is_host(self) -> bool {
        !self.is_device()
    }

    /// Whether kernels may read and write it.
    pub fn has_device_pointer(self) -> bool {
        matches!(self, Self::Device | Self::Pool | Self::Mapped | Self::Managed)
    }

    /// Buffers of this kind are locked memory of the host, which copies read and write in stream order.
    pub fn is_locked(self) -> bool {
        matches!(self, Self::Pinned | Self::Registered | Self::Mapped)
    }
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Where its memory comes from.
    pub kind: BufferKind,
    /// Bytes.
    pub size: usize,
    /// The device in whose context it is made, and whose kernels may use it.
    pub device: usize,
    /// The buffer exists from the start, with contents from the program's seed.
    pub initial: bool,
}

/// How a stream follows the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The legacy default stream.
    Legacy,
    /// The default stream of one thread.
    PerThread(usize),
    /// `CU_STREAM_DEFAULT`.
    Blocking,
    /// `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Its device.
    pub device: usize,
    /// How it follows the legacy default stream.
    pub kind: StreamKind,
}

/// A step of a capture. Lane 0 is the stream in which the capture begins and ends; the others are forked from
/// it at the start and joined at the end.
#[derive(Clone, Debug)]
pub enum Step {
    /// Work in a lane.
    Work {
        /// The lane.
        lane: usize,
        /// The work.
        work: Work,
    },
    /// One lane waits for another.
    Join {
        /// The lane that is waited for.
        from: usize,
        /// The lane that waits.
        to: usize,
    },
}

/// What is captured for a graph.
#[derive(Clone, Debug)]
pub struct GraphPlan {
    /// Its device.
    pub device: usize,
    /// Streams that take part.
    pub lanes: usize,
    /// What is captured.
    pub steps: Vec<Step>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Await {
    /// `cuStreamSynchronize`.
    Stream(usize),
    /// `cuStreamQuery` until it says that all is done.
    StreamQueries(usize),
    /// `cuEventSynchronize`.
    Event(usize),
    /// `cuEventQuery` until it says that all is done.
    EventQueries(usize),
    /// `cuCtxSynchronize`.
    Context(usize),
}

/// An operation of a thread.
#[derive(Clone, Debug)]
pub enum Call {
    /// Work for a stream, by an asynchronous entry point.
    Enqueue {
        /// The stream.
        stream: usize,
        /// The work.
        work: Work,
    },
    /// A copy or a fill by a synchronous entry point, which is work of the legacy default stream.
    Blocking {
        /// The device whose context is current.
        device: usize,
        /// The work.
        work: Work,
    },
    /// Code of the thread itself.
    Host(Work),
    /// `cuEventRecord`.
    Record {
        /// The event.
        event: usize,
        /// The stream.
        stream: usize,
    },
    /// `cuStreamWaitEvent`.
    WaitEvent {
        /// The stream that waits.
        stream: usize,
        /// The event.
        event: usize,
    },
    /// The thread waits.
    Await(Await),
    /// A graph is captured and instantiated.
    Capture {
        /// The graph.
        graph: usize,
    },
    /// `cuGraphLaunch`.
    Launch {
        /// The graph.
        graph: usize,
        /// The stream.
        stream: usize,
    },
    /// A buffer is made; one of a device is then filled in a stream.
    Allocate {
        /// The buffer.
        buffer: usize,
        /// The stream of the fill, and of `cuMemAllocAsync`.
        stream: usize,
        /// What it is filled with, or the key of what the host writes.
        value: u32,
    },
    /// A buffer's end.
    Release {
        /// The buffer.
        buffer: usize,
        /// The stream of `cuMemFreeAsync`.
        stream: usize,
    },
    /// `cuStreamDestroy`, whatever the stream has still to do.
    DestroyStream {
        /// The stream.
        stream: usize,
    },
    /// `cuStreamWaitValue32`: the stream stands still until a word has been written.
    WaitValue {
        /// The stream.
        stream: usize,
        /// The word, which is used once.
        word: usize,
    },
    /// `cuStreamWriteValue32`.
    WriteValue {
        /// The stream.
        stream: usize,
        /// The word.
        word: usize,
    },
    /// All threads wait for each other.
    Barrier,
}

/// An operation and the thread that issues it.
#[derive(Clone, Debug)]
pub struct Op {
    /// The thread; all take part in a barrier.
    pub thread: usize,
    /// What it does.
    pub call: Call,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it was made from.
    pub seed: u64,
    /// The generator's name for programs of its kind.
    pub kind: &'static str,
    /// Devices in use.
    pub devices: usize,
    /// Host threads.
    pub threads: usize,
    /// Events; each belongs to the context of a device.
    pub events: Vec<usize>,
    /// Streams; the first ones are the legacy default streams of the devices.
    pub streams: Vec<Stream>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Graphs.
    pub graphs: Vec<GraphPlan>,
    /// Words for streams to wait for.
    pub words: usize,
    /// Whether a synchronous copy from locked memory to a device returns when all is done, as CUDA says.
    pub uploads_wait: bool,
    /// Whether streams, events and graphs put what touches the same host memory in order; else the host waits
    /// between.
    pub host_order: bool,
    /// Whether they put what reads host memory behind what wrote it; else the host waits between.
    pub host_sources: bool,
    /// What is done, in the order of issue.
    pub ops: Vec<Op>,
}

impl Program {
    /// The program with some of its operations only.
    pub fn keep(&self, kept: &[usize]) -> Self {
        let ops = kept.iter().filter_map(|&op| self.ops.get(op)).cloned().collect();
        Self { ops, ..self.clone() }
    }

    /// The key of a buffer's first contents.
    pub fn initial_key(&self, buffer: usize) -> u32 {
        // The end of splitmix64, so that no two buffers have bytes in common.
        let mut mixed = self.seed.wrapping_add((buffer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32
    }
}

/// The word that a key gives at a place: what kernels and host code store.
pub fn generated_word(key: u32, index: usize) -> u32 {
    key.wrapping_add((index as u32).wrapping_mul(0x9E37_79B9))
}
