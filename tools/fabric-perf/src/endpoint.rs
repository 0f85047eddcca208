//! Endpoint: device, memory, queue pairs.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use causeway_ibverbs::{
    Access, Buffer, Capacity, Completion, CompletionQueue, Device, DeviceError, GidEntry, Libraries, Limits,
    LinkLayer, LoadError, PathMtu, Port, PostError, ProtectionDomain, QueuePair, QueuePairError, Receive,
    RegisterError, RemoteEnd, RemoteMemory, Segment, Settings, Status, Transport, choose,
};
use thiserror::Error;

use crate::case::{MAX_MESSAGE_BYTES, Setting};
use crate::control::{MemoryEnd, QueuePairEnd};
use crate::results::End;
use causeway_measure::machine::Machine;
use causeway_measure::prng::Random;

/// Bytes of each half of the memory of an end: the longest message, whose parts for several queue pairs begin
/// at cache lines.
pub const HALF: usize = MAX_MESSAGE_BYTES as usize + 128 * Setting::MAX_QUEUE_PAIRS as usize;

/// Bytes of a message that travel with their request where latency is measured and the device takes them.
pub const MAX_INLINE_BYTES: u32 = 128;

/// Reads that a queue pair may have under way, where both devices allow as many.
const MAX_READS: u32 = 128;

/// How long queue pairs that end may take to give their requests back, and how long nothing may come before
/// they are taken to have done so.
const RELEASE: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_millis(2);

/// Why there is no end, or it no longer works.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// libibverbs is missing.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no device.
    #[error(
        "this machine has no RDMA device with an active port{}: run `causeway doctor` for details",
        .0.as_ref().map(|name| format!(" that is called {name}")).unwrap_or_default()
    )]
    NoDevice(Option<String>),
    /// The device has no reliable connections that can be made by numbers.
    #[error(
        "the RDMA device {0} is an iWARP device, whose queue pairs cannot be connected by number: measure it with `--through links`"
    )]
    Iwarp(String),
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue pair is refused.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// A request is refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The completion queue fails.
    #[error("cannot poll for completions: {0}")]
    Poll(#[from] io::Error),
    /// A request has failed.
    #[error("a message failed: {0}")]
    Failed(Status),
    /// Nothing happens.
    #[error("no message has arrived over the queue pairs for {0} seconds")]
    Silent(u64),
}

/// An open device with registered memory.
#[derive(Debug)]
pub struct Endpoint {
    device: Device,
    port: Port,
    gid: GidEntry,
    limits: Limits,
    domain: ProtectionDomain,
    /// What the peer reads, and then what it writes to.
    buffer: Buffer,
}

impl Endpoint {
    /// Opens the device of this name, or else the one that has the address `local` or is the fastest.
    pub fn open(name: Option<&str>, local: IpAddr) -> Result<Self, EndpointError> {
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let chosen = choose(&devices, name, Some(local))
            .ok_or_else(|| EndpointError::NoDevice(name.map(str::to_owned)))?;
        let device = Device::open(libraries, &chosen.device.name)?;
        let domain = ProtectionDomain::new(&device)?;
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let buffer = Buffer::new(&domain, 2 * HALF, access)?;
        let (port, gid, limits) = (chosen.port.clone(), chosen.gid, chosen.device.limits);
        let endpoint = Self { device, port, gid, limits, domain, buffer };
        endpoint.fill();
        Ok(endpoint)
    }

    /// Writes numbers that do not repeat to what is sent and read: content that moved is found.
    fn fill(&self) {
        let mut random = Random::beginning_at(u64::from(std::process::id()) << 32 | 0x9e37_79b9);
        for offset in (0..HALF).step_by(8) {
            // SAFETY: the offset lies in the buffer, which is aligned to pages; no request is under way.
            unsafe { self.buffer.as_ptr().add(offset).cast::<u64>().write(random.word()) };
        }
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// The device that a link has to take, to be compared with queue pairs here. Of iWARP's rdma_cm takes the
    /// one that has the address of the connection.
    pub fn device_for_links(&self) -> Option<&str> {
        (!self.is_iwarp()).then(|| self.device())
    }

    /// Whether the device's queue pairs are joined by rdma_cm alone.
    pub fn is_iwarp(&self) -> bool {
        self.device.transport() == Transport::Iwarp
    }

    /// The index of its address, as perftest's `-x` names it.
    pub fn gid_index(&self) -> u32 {
        self.gid.index
    }

    /// The largest path MTU of its port, in bytes.
    pub fn mtu(&self) -> u32 {
        self.port.mtu.bytes()
    }

    /// What people want to know of it.
    pub fn end(&self) -> End {
        let layer = match self.port.link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
            LinkLayer::Unspecified => "unknown link layer",
        };
        let port = format!(
            "port {} ({layer}, {:.1} Gbit/s, MTU {}), address {} ({})",
            self.port.number,
            f64::from(self.port.rate) / 1e3,
            self.port.mtu,
            self.gid.gid.address(),
            self.gid.kind
        );
        End { host: Machine::this().host, device: self.device().to_owned(), port }
    }

    /// This end's memory, for the peer.
    pub fn memory(&self) -> MemoryEnd {
        self.buffer.region().remote(0).into()
    }

    /// The first byte of what is sent.
    pub(crate) fn source(&self) -> *mut u8 {
        self.buffer.as_ptr()
    }

    /// What is sent through links.
    pub fn content(&self, bytes: u64) -> &[u8] {
        debug_assert!(bytes <= MAX_MESSAGE_BYTES);
        // SAFETY: the bytes lie in the buffer, and nobody writes to them while they are sent.
        unsafe { core::slice::from_raw_parts(self.source(), bytes as usize) }
    }

    /// The first byte of where messages of the peer come.
    pub(crate) fn sink(&self) -> *mut u8 {
        // SAFETY: the buffer is twice as long.
        unsafe { self.buffer.as_ptr().add(HALF) }
    }

    /// Makes queue pairs, which [`Joined::connect`] then joins with the peer's. They must go before this
    /// endpoint does, which the lifetime sees to: their requests name its memory.
    pub fn queue_pairs(&self, setting: Setting) -> Result<Joined<'_>, EndpointError> {
        if self.is_iwarp() {
            return Err(EndpointError::Iwarp(self.device().to_owned()));
        }
        let receives = (2 * setting.capacity).clamp(64, 512);
        let entries = setting.queue_pairs * (setting.capacity + receives + 1);
        let completions = CompletionQueue::new(&self.device, entries)?;
        let make = |inline| {
            // One more than is ever under way: a latency test answers before it has seen its last request's
            // end.
            let capacity = Capacity { sends: setting.capacity + 1, receives, inline };
            QueuePair::new(&self.domain, &completions, capacity)
        };
        let mut queue_pairs = Vec::new();
        for _ in 0..setting.queue_pairs {
            // Some devices take no bytes with their requests.
            let queue_pair = make(MAX_INLINE_BYTES).or_else(|_| make(0))?;
            queue_pair.initialise(self.port.number)?;
            queue_pairs.push(queue_pair);
        }
        let inline = queue_pairs.iter().map(|queue_pair| queue_pair.capacity().inline).min().unwrap_or(0);
        Ok(Joined { endpoint: self, setting, queue_pairs, completions, receives, inline, peer: None })
    }
}

/// Queue pairs of one setting.
#[derive(Debug)]
pub struct Joined<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) setting: Setting,
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) completions: CompletionQueue,
    /// Receives that are posted in each of them.
    pub(crate) receives: u32,
    /// Bytes that a request takes with it.
    pub(crate) inline: u32,
    /// The peer's memory.
    pub(crate) peer: Option<RemoteMemory>,
}

impl Drop for Joined<'_> {
    /// A queue pair is destroyed when it is idle: Soft-RoCE of Linux 6.1 can wait for itself otherwise, on a
    /// machine with one processor.
    fn drop(&mut self) {
        for queue_pair in &self.queue_pairs {
            // One that has failed has ended already.
            let _ = queue_pair.end();
        }
        let deadline = Instant::now() + RELEASE;
        let mut completions = [Completion::default(); 32];
        let mut last_completion = Instant::now();
        while Instant::now() < deadline && last_completion.elapsed() < QUIET {
            match self.completions.poll(&mut completions) {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => last_completion = Instant::now(),
                Err(_) => break,
            }
        }
    }
}

impl Joined<'_> {
    /// The number of the first packet of each queue pair.
    const FIRST_PACKET: u32 = 0x00ca_5e00;

    /// Their setting.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// This end's queue pairs, for the peer.
    pub fn ends(&self) -> Vec<QueuePairEnd> {
        let Endpoint { port, gid, limits, .. } = self.endpoint;
        let answered_reads = limits.answered_reads.min(MAX_READS) as u8;
        let end = |queue_pair: &QueuePair| RemoteEnd {
            queue_pair: queue_pair.number(),
            packet: Self::FIRST_PACKET,
            lid: port.lid,
            gid: gid.gid,
        };
        self.queue_pairs.iter().map(|queue_pair| QueuePairEnd::new(end(queue_pair), answered_reads)).collect()
    }

    /// Joins each queue pair with the peer's one of the same place, and posts receives.
    pub fn connect(&mut self, ends: &[QueuePairEnd], memory: MemoryEnd) -> Result<(), EndpointError> {
        let Endpoint { port, gid, limits, .. } = self.endpoint;
        let mtu = PathMtu::from_bytes(self.setting.mtu).unwrap_or(port.mtu);
        // A receiver that falls behind makes the sender wait, and is no failure here; nor is a queue full of
        // long reads, which software devices take for packets that nobody answers: 1 s until a packet is sent
        // again.
        let patient = Settings { rnr_retries: 7, rnr_timer: 1, timeout: 18, ..Settings::new(mtu) };
        for (index, (queue_pair, end)) in self.queue_pairs.iter().zip(ends).enumerate() {
            let settings = Settings {
                reads: limits.reads.min(MAX_READS).min(u32::from(end.answered_reads)) as u8,
                answered_reads: limits.answered_reads.min(MAX_READS) as u8,
                ..patient
            };
            queue_pair.receive_from(port, gid.index, &(*end).into(), &settings)?;
            self.post_receives(index, self.receives)?;
            queue_pair.send_from(Self::FIRST_PACKET, &settings)?;
        }
        self.peer = Some(memory.into());
        Ok(())
    }

    /// Where the part of a message lies that a queue pair carries, in each half of the memory.
    pub(crate) fn segment_offset(&self, index: usize) -> usize {
        index * self.room()
    }

    /// Bytes between two such places: a share of the longest message.
    fn room(&self) -> usize {
        (MAX_MESSAGE_BYTES as usize).div_ceil(self.queue_pairs.len()).next_multiple_of(64)
    }

    /// Posts so many receives of the longest part in a queue pair.
    pub(crate) fn post_receives(&self, index: usize, count: u32) -> Result<(), EndpointError> {
        let segment = self.sink_segment(index, self.room() as u64);
        let receives = vec![Receive { id: index as u64, segment }; count as usize];
        // SAFETY: the memory lives longer than the queue pair, as the lifetime says, and is looked at by
        // volatile reads alone.
        unsafe { self.queue_pairs[index].post_receives(&receives)? };
        Ok(())
    }

    /// What a queue pair sends, as a request names it.
    pub(crate) fn source_segment(&self, index: usize, bytes: u64) -> Segment {
        self.endpoint.buffer.region().segment(self.segment_offset(index), bytes as usize)
    }

    /// Where a queue pair's reads and receives come, as a request names it.
    pub(crate) fn sink_segment(&self, index: usize, bytes: u64) -> Segment {
        self.endpoint.buffer.region().segment(HALF + self.segment_offset(index), bytes as usize)
    }
}
