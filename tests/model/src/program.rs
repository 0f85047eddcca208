//! What a program is: buffers, streams, events, graphs, and operations in the order in which they are issued.

/// A rectangle (or box) of bytes in a buffer; a linear range has one row in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The buffer's number.
    pub buffer: usize,
    /// The first byte.
    pub offset: usize,
    /// Bytes in a row.
    pub width: usize,
    /// From the start of a row to the next.
    pub pitch: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// Rows from the start of a slice to the next.
    pub slice_rows: usize,
}

impl Region {
    /// A range of bytes.
    pub fn linear(buffer: usize, offset: usize, width: usize) -> Self {
        Self { buffer, offset, width, pitch: width, height: 1, depth: 1, slice_rows: 1 }
    }

    /// Whether it is one range of bytes.
    pub fn is_linear(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    /// Bytes that belong to it.
    pub fn bytes(&self) -> usize {
        self.width * self.height * self.depth
    }

    /// The end of its last row.
    pub fn end(&self) -> usize {
        self.offset + ((self.depth - 1) * self.slice_rows + self.height - 1) * self.pitch + self.width
    }

    /// The first byte of each row, ascending.
    pub fn rows(self) -> impl Iterator<Item = usize> {
        (0..self.depth).flat_map(move |slice| {
            (0..self.height).map(move |row| self.offset + (slice * self.slice_rows + row) * self.pitch)
        })
    }

    /// Whether both have a byte in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.buffer != other.buffer || self.offset >= other.end() || other.offset >= self.end() {
            return false;
        }
        let (mut mine, mut theirs) = (self.rows().peekable(), other.rows().peekable());
        while let (Some(&a), Some(&b)) = (mine.peek(), theirs.peek()) {
            if a + self.width <= b {
                mine.next();
            } else if b + other.width <= a {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }
}

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
    /// Whether it is memory of a device.
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

    /// Whether it is locked memory of the host, which copies read and write in stream order.
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
    /// Whether it exists from the start, with contents from the program's seed.
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

/// Which entry point makes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyForm {
    /// `cuMemcpyHtoD`, `cuMemcpyDtoH`, `cuMemcpyDtoD`, `cuMemcpyPeer`.
    Directed,
    /// `cuMemcpy`, whose directions come from the addresses.
    Unified,
    /// `cuMemcpy2D`.
    Rows,
    /// `cuMemcpy3D`.
    Slices,
}

/// What is done with memory, by a stream or by the host.
#[derive(Clone, Debug)]
pub enum Work {
    /// A copy between two regions of the same shape.
    Copy {
        /// Written.
        to: Region,
        /// Read.
        from: Region,
        /// The entry point.
        form: CopyForm,
    },
    /// `cuMemsetD8`, `cuMemsetD32` or the two-dimensional forms.
    Fill {
        /// Written.
        to: Region,
        /// The value of each element.
        value: u32,
        /// Bytes of an element, 1 or 4.
        element: usize,
    },
    /// A kernel that stores words made from a key.
    Generate {
        /// Written.
        to: Region,
        /// Decides the words.
        key: u32,
        /// Steps of a loop before the first store.
        delay: u32,
    },
    /// A kernel that adds to words.
    Add {
        /// Read and written.
        to: Region,
        /// Added to each word.
        constant: u32,
        /// Steps of a loop before the first load.
        delay: u32,
    },
    /// A kernel that copies words and adds to them.
    Move {
        /// Written.
        to: Region,
        /// Read.
        from: Region,
        /// Added to each word.
        constant: u32,
        /// Steps of a loop before the first load.
        delay: u32,
    },
    /// The host reads and compares with the model: code of a thread, or a host function in a stream.
    HostRead {
        /// Read.
        from: Region,
    },
    /// The host stores words made from a key: code of a thread, or a host function in a stream.
    HostWrite {
        /// Written.
        to: Region,
        /// Decides the words.
        key: u32,
    },
}

impl Work {
    /// What it reads.
    pub fn source(&self) -> Option<&Region> {
        match self {
            Self::Copy { from, .. } | Self::Move { from, .. } | Self::HostRead { from } => Some(from),
            Self::Add { to, .. } => Some(to),
            Self::Fill { .. } | Self::Generate { .. } | Self::HostWrite { .. } => None,
        }
    }

    /// What it writes.
    pub fn target(&self) -> Option<&Region> {
        match self {
            Self::Copy { to, .. }
            | Self::Fill { to, .. }
            | Self::Generate { to, .. }
            | Self::Add { to, .. }
            | Self::Move { to, .. }
            | Self::HostWrite { to, .. } => Some(to),
            Self::HostRead { .. } => None,
        }
    }

    /// Whether it is a kernel.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Generate { .. } | Self::Add { .. } | Self::Move { .. })
    }

    /// Whether it is code of the host.
    pub fn is_host_code(&self) -> bool {
        matches!(self, Self::HostRead { .. } | Self::HostWrite { .. })
    }
}

/// A step of a capture. Lane 0 is the stream in which the capture begins and ends; the others are forked from it at the
/// start and joined at the end.
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
    /// Whether streams, events and graphs put what touches the same host memory in order; else the host waits between.
    pub host_order: bool,
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

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn rows_overlap_only_where_they_have_bytes() {
        let even =
            Region { width: 4, pitch: 8, height: 3, depth: 1, slice_rows: 3, ..Region::linear(0, 0, 4) };
        let odd = Region { offset: 4, ..even };
        assert!(!even.overlaps(&odd) && even.overlaps(&even));
        assert!(even.overlaps(&Region { offset: 3, ..even }));
        assert!(even.overlaps(&Region::linear(0, 18, 1)) && !even.overlaps(&Region::linear(0, 20, 1)));
        assert!(!even.overlaps(&Region { buffer: 1, ..even }));
        let box_of_two = Region { depth: 2, slice_rows: 4, ..even };
        assert_eq!(box_of_two.end(), 52);
        assert!(
            !box_of_two.overlaps(&Region::linear(0, 20, 12))
                && box_of_two.overlaps(&Region::linear(0, 35, 1))
        );
    }
}
