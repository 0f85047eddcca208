//! Queue pairs to which a rank's kernels post for ranks that its network card reaches: their joining, the memory that
//! they need, and the keys of windows.

use core::fmt;
use core::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use causeway_ibverbs::Access;

use super::member::{HostPlan, Options, bytes_of};
use crate::device::gpu::{Block, Gpu, GpuError};
use crate::device::layout::{CLASSES, TeamVerbs, VERBS_RESULTS, VerbsPeer};
use crate::device::peers::{PeerError, Peers};
use crate::device::verbs::queue_pair::ADDRESS_BYTES;
use crate::device::verbs::{
    CompletionQueue, Doorbell, Nic, NicOptions, QueuePair, QueuePairOptions, Registered, VerbsError,
};
use crate::verbs::LinkNic;

/// Requests of a queue pair, between which that of the team's queues is.
const MIN_REQUESTS: u64 = 16;
const MAX_REQUESTS: u64 = 4096;

/// Bytes of a request whose bytes are in it: `INLINE_BYTES` of `team_verbs.cuh`.
const INLINE_BYTES: u32 = 12;

/// Bytes of the words, and of the one behind them that peers write.
const RESULTS_BYTES: u64 = 8 * VERBS_RESULTS as u64;
const SINK_BYTES: usize = 64;

/// Bytes of the words of this GPU that peers read.
const FLUSH_BYTES: usize = 64;

/// What a rank tells another one of its queue pair for it.
const END_BYTES: usize = 64;

/// Addresses and keys of words of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RemoteBuffers {
    /// On its GPU; the address is 0 where cards do not reach that.
    flush: (u64, u32),
    /// In its host.
    sink: (u64, u32),
}

/// A rank's queue pair for another one, as that one hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EndAddress {
    queue_pair: [u8; ADDRESS_BYTES],
    buffers: RemoteBuffers,
}

impl EndAddress {
    fn encode(&self) -> [u8; END_BYTES] {
        let RemoteBuffers { flush, sink } = self.buffers;
        let mut bytes = [0; END_BYTES];
        bytes[..ADDRESS_BYTES].copy_from_slice(&self.queue_pair);
        bytes[32..40].copy_from_slice(&flush.0.to_le_bytes());
        bytes[40..48].copy_from_slice(&sink.0.to_le_bytes());
        bytes[48..52].copy_from_slice(&flush.1.to_le_bytes());
        bytes[52..56].copy_from_slice(&sink.1.to_le_bytes());
        bytes
    }

    /// From a peer's bytes. What they name is refused by the peer's card, where it is nothing of its own.
    fn decode(bytes: &[u8; END_BYTES]) -> Self {
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let mut queue_pair = [0; ADDRESS_BYTES];
        queue_pair.copy_from_slice(&bytes[..ADDRESS_BYTES]);
        let buffers = RemoteBuffers { flush: (long(32), word(48)), sink: (long(40), word(52)) };
        Self { queue_pair, buffers }
    }
}

/// A queue pair for a rank.
struct End {
    rank: u32,
    queue_pair: QueuePair,
    completions: CompletionQueue,
    /// The other end's words, once it is joined.
    peer: RemoteBuffers,
}

/// What a rank's kernels have of its network card.
pub struct KernelVerbs {
    rank: u32,
    /// In front of all memory.
    ends: Vec<End>,
    results: Registered,
    sink: Registered,
    flush: Option<(Registered, Block)>,
    memory: Block,
    state: Block,
    /// Whether kernels of every rank reach every other one so, and their own.
    is_complete: bool,
    nic: Nic,
}

impl fmt::Debug for KernelVerbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelVerbs")
            .field("nic", &self.nic)
            .field("ranks", &self.ranks())
            .finish_non_exhaustive()
    }
}

/// What was found out of kernels that post for a rank: who rings the doorbell, or why none of them posts.
pub type Joined = (u32, Result<Doorbell, String>);

fn all_access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl KernelVerbs {
    fn prepare(
        gpu: &Arc<dyn Gpu>,
        link: &LinkNic,
        rank: u32,
        peers: &[u32],
        options: &Options,
        doorbell: Doorbell,
    ) -> Result<Self, VerbsError> {
        let (device, port, gid) = link.port();
        let nic = Nic::open_port(
            device,
            port,
            gid,
            Arc::clone(gpu),
            NicOptions { limit: options.limit, doorbell },
        )?;
        let sends = options.capacity.clamp(MIN_REQUESTS, MAX_REQUESTS) as u32;
        let of_rank = |rank| {
            // The library may make the ring longer than it has to be.
            let completions = CompletionQueue::new(&nic, 4 * sends + 64)?;
            let options = QueuePairOptions { sends, receives: 1, inline: INLINE_BYTES };
            let queue_pair = QueuePair::new(&nic, &completions, &completions, options)?;
            Ok(End { rank, queue_pair, completions, peer: RemoteBuffers::default() })
        };
        let ends: Vec<End> =
            peers.iter().copied().chain([rank]).map(of_rank).collect::<Result<_, VerbsError>>()?;
        let memory = gpu.host_memory(RESULTS_BYTES + SINK_BYTES as u64)?;
        // SAFETY: the memory is freed behind the registration, and holds so many bytes.
        let results = unsafe { nic.register(memory.address, RESULTS_BYTES as usize, Access::LOCAL_WRITE) }?;
        // SAFETY: the memory is freed behind the registration, and holds so many bytes. Nothing is ever read
        // from there.
        let sink = unsafe { nic.register(memory.address + RESULTS_BYTES, SINK_BYTES, Access::REMOTE_WRITE) }?;
        let flush = gpu.device_memory(FLUSH_BYTES as u64)?;
        let registered = if gpu.allows_rdma() {
            // SAFETY: the memory is freed behind the registration, and holds so many bytes.
            unsafe { nic.register(flush.address, FLUSH_BYTES, Access::REMOTE_READ) }.ok()
        } else {
            None
        };
        let flush = registered.map(|registered| (registered, flush));
        let state = gpu.device_memory(size_of::<TeamVerbs>() as u64)?;
        Ok(Self { rank, ends, results, sink, flush, memory, state, is_complete: false, nic })
    }

    /// Joins this rank's kernels with those of ranks that have a network card, and says of each what came of it. `None`
    /// where none is joined. All ranks call it at the same time.
    ///
    /// # Errors
    /// When a peer has gone.
    pub(crate) fn join(
        gpu: &Arc<dyn Gpu>,
        link: Result<&LinkNic, &String>,
        ranks: &[u32],
        peers: &Peers,
        options: &Options,
    ) -> Result<(Option<Self>, Vec<Joined>), PeerError> {
        let (rank, count) = (peers.rank(), peers.count());
        // Where the costs decide, a thread of the host more would be one too many.
        let doorbell = if options.policy.named().is_some() { Doorbell::Auto } else { Doorbell::Direct };
        let link = link.map_err(Clone::clone);
        let made = link.and_then(|link| {
            if !options.policy.allows_verbs() {
                return Err("CAUSEWAY_DEVICE_INITIATOR leaves `verbs` out".to_owned());
            }
            Self::prepare(gpu, link, rank, ranks, options, doorbell).map_err(|error| error.to_string())
        });
        for peer in ranks {
            let address = made.as_ref().ok().and_then(|made| made.address(*peer));
            peers.send_verbs(*peer, address.map(|address| address.encode()).as_ref())?;
        }
        let (mut made, why_not) = match made {
            Ok(made) => (Some(made), String::new()),
            Err(why_not) => (None, why_not),
        };
        let mut joined: Vec<Joined> = Vec::with_capacity(ranks.len());
        for peer in ranks {
            let theirs = peers.receive_verbs::<END_BYTES>(*peer)?.map(|bytes| EndAddress::decode(&bytes));
            let result = match (&mut made, theirs) {
                (None, _) => Err(why_not.clone()),
                (_, None) => Err(format!("kernels of rank {peer} post nothing, and it says why")),
                (Some(made), Some(theirs)) => made.connect(*peer, theirs),
            };
            peers.send_joined(*peer, result.is_ok())?;
            joined.push((*peer, result));
        }
        for (peer, result) in &mut joined {
            if !peers.receive_joined(*peer)? && result.is_ok() {
                *result =
                    Err(format!("rank {peer} could not join its queue pair with this rank's, and says why"));
            }
        }
        let is_joined = |rank: u32| joined.iter().any(|(other, result)| *other == rank && result.is_ok());
        let is_own_joined = made.as_mut().is_some_and(|made| {
            let own = made.address(rank);
            own.is_some_and(|own| made.connect(rank, own).is_ok())
        });
        if let Some(made) = &mut made {
            made.ends.retain(|end| if end.rank == rank { is_own_joined } else { is_joined(end.rank) });
        }
        let joined_count = joined.iter().filter(|(_, result)| result.is_ok()).count();
        let all = peers.all_have_verbs(is_own_joined && joined_count + 1 == count)?;
        if let Some(made) = &mut made {
            made.is_complete = all;
        }
        Ok((made.filter(|_| joined_count > 0), joined))
    }

    fn buffers(&self) -> RemoteBuffers {
        let flush =
            self.flush.as_ref().map_or((0, 0), |(registered, block)| (block.address, registered.rkey()));
        RemoteBuffers { flush, sink: (self.memory.address + RESULTS_BYTES, self.sink.rkey()) }
    }

    fn address(&self, rank: u32) -> Option<EndAddress> {
        let end = self.ends.iter().find(|end| end.rank == rank)?;
        Some(EndAddress { queue_pair: end.queue_pair.address(), buffers: self.buffers() })
    }

    fn connect(&mut self, rank: u32, theirs: EndAddress) -> Result<Doorbell, String> {
        let end = self.ends.iter_mut().find(|end| end.rank == rank);
        let end = end.ok_or_else(|| format!("there is no queue pair for rank {rank}"))?;
        end.queue_pair.connect(&theirs.queue_pair).map_err(|error| error.to_string())?;
        end.peer = theirs.buffers;
        Ok(end.queue_pair.doorbell())
    }

    /// The other ranks that are joined_count so.
    pub fn ranks(&self) -> Vec<u32> {
        self.ends.iter().map(|end| end.rank).filter(|rank| *rank != self.rank).collect()
    }

    /// Whether kernels of every rank reach every other one so, and their own: then cards make all changes of windows
    /// that are to be atomic, as those of a card are so with those of that card alone.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Bytes a nanosecond of the card.
    pub fn bandwidth(&self) -> f64 {
        self.nic.bandwidth()
    }

    /// The address of the [`TeamVerbs`].
    pub fn state(&self) -> u64 {
        self.state.address
    }

    /// The number of the queue pair for a rank.
    pub fn queue_pair(&self, rank: u32) -> Option<u32> {
        self.ends.iter().find(|end| end.rank == rank).map(|end| end.queue_pair.number())
    }

    /// Writes what kernels need; `host` is the rank's memory of the host.
    ///
    /// # Errors
    /// What the GPU's driver says.
    pub fn write_state(&self, gpu: &dyn Gpu, host: u64, choice: [u64; CLASSES]) -> Result<(), GpuError> {
        let mut state = TeamVerbs::empty();
        if let Some((registered, block)) = &self.flush {
            (state.flush, state.flush_key) = (block.address, registered.lkey());
        }
        (state.results, state.results_key) = (self.memory.address, self.results.lkey());
        (state.shared, state.choice) = (HostPlan::network(host), choice);
        for End { rank, queue_pair, completions, peer } in &self.ends {
            state.peers[*rank as usize] = VerbsPeer {
                queue_pair: queue_pair.handle(),
                completions: completions.handle(),
                flush: peer.flush.0,
                flush_key: peer.flush.1,
                sink: peer.sink.0,
                sink_key: peer.sink.1,
                ..VerbsPeer::default()
            };
        }
        gpu.write(self.state.address, bytes_of(&state))
    }

    /// Lets this rank's card and its peers' use a part of a window; `None` where it does not reach that.
    pub fn register(&self, gpu: &dyn Gpu, part: &Block, bytes: u64, in_host: bool) -> Option<Registered> {
        if !in_host && (!gpu.allows_rdma() || self.flush.is_none()) {
            return None;
        }
        let bytes = usize::try_from(bytes).ok()?;
        // SAFETY: the part has the registration in front of the memory. Other ranks write to windows when their kernels
        // say so.
        unsafe { self.nic.register(part.address, bytes, all_access()) }.ok()
    }

    /// Has the card end what kernels have posted, which none of them does any more.
    pub fn drain(&self, limit: Duration) {
        for end in &self.ends {
            // What fails here has no kernel that would hear of it; the peer is told by its own waits.
            let _ = end.queue_pair.drain(end.peer.sink, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_what_was_written() {
        let buffers = RemoteBuffers { flush: (0x1234_5678_9abc, 7), sink: (0xdef0, u32::MAX) };
        let end = EndAddress { queue_pair: [5; ADDRESS_BYTES], buffers };
        assert_eq!(EndAddress::decode(&end.encode()), end);
    }
}
