//! Path between two RDMA devices: the resources of an end, the receiver's end, which reads over connected
//! queue pairs, and the sender's, which lets its memory be read.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use causeway_config::read::PROCESS;
use causeway_config::table::{
    MAX_VERBS_QUEUE_PAIRS, VERBS_QUEUE_DEPTH, VERBS_QUEUE_DEPTH_DEFAULT, VERBS_QUEUE_PAIRS,
    VERBS_QUEUE_PAIRS_DEFAULT,
};
use causeway_ibverbs::{
    Capacity, Completion, CompletionQueue, Device, Gid, Limits, Listener, Operation, PathMtu,
    ProtectionDomain, QueuePair, RemoteEnd, RemoteMemory, Route, Segment, SendBatch, SendRequest, Settings,
};
use causeway_sync::spin::{self, BusyPoll};
use rustix::event::{PollFd, PollFlags, poll};

use super::endpoint::{EndpointAddress, Slots};
use super::nic::{NicSelector, RdmaDevice, RdmaError, is_address_of_this_host};
use crate::job;

/// Reads that a card has under way on a queue pair, at most: what cards of the last ten years allow. More
/// wait in the queue.
const MAX_READS: usize = 16;

/// Queue pairs of a path, at most.
pub(crate) const MAX_QUEUE_PAIRS: usize = MAX_VERBS_QUEUE_PAIRS as usize;

/// How long rdma_cm may take to join two queue pairs.
pub(super) const QP_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a queue pair has room for: reads that are under way, or wait. Nothing is sent.
fn capacity(depth: usize) -> Capacity {
    Capacity { sends: depth as u32, receives: 1, inline: 0 }
}

/// Queue pairs and requests of each, as a session's: the published optimum is 2 of 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Queues {
    pairs: usize,
    depth: usize,
}

impl Queues {
    /// As the user has set them.
    fn configured() -> Result<Self, RdmaError> {
        let pairs = PROCESS.number(&VERBS_QUEUE_PAIRS)?.unwrap_or(VERBS_QUEUE_PAIRS_DEFAULT);
        let depth = PROCESS.number(&VERBS_QUEUE_DEPTH)?.unwrap_or(VERBS_QUEUE_DEPTH_DEFAULT);
        Ok(Self { pairs: pairs as usize, depth: depth as usize })
    }

    /// As many of them as a device has room for.
    fn within(self, limits: &Limits) -> Self {
        let depth = self.depth.min(limits.work_requests as usize).max(1);
        // Each request has a completion, twice where it is flushed.
        let pairs = self.pairs.min(limits.completions as usize / (2 * depth)).max(1);
        Self { pairs, depth }
    }

    fn completions(self) -> u32 {
        // At most 16 times 1024, twice.
        (2 * self.pairs * self.depth) as u32
    }
}

/// Slots of an end that has none.
pub(super) const NO_SLOTS: Slots = Slots { memory: RemoteMemory { address: 0, key: 0 }, count: 0, bytes: 0 };

/// Where a queue pair's completions and memory are.
#[derive(Debug)]
pub(super) struct EndpointResources {
    pub(super) domain: ProtectionDomain,
    pub(super) completions: CompletionQueue,
    pub(super) limits: Limits,
}

impl EndpointResources {
    /// With a completion queue for so many.
    pub(super) fn with_completions(device: &Device, completions: u32) -> Result<Self, RdmaError> {
        Ok(Self {
            domain: ProtectionDomain::new(device)?,
            completions: CompletionQueue::new(device, completions)?,
            limits: device.limits()?,
        })
    }

    /// For queue pairs of a path on a device, as many as it has room for.
    fn of_queues(device: &Device, queues: Queues) -> Result<(Self, Queues), RdmaError> {
        let queues = queues.within(&device.limits()?);
        Ok((Self::with_completions(device, queues.completions())?, queues))
    }

    /// A queue pair for so many requests that is bound to the card's port, and its description for the peer.
    pub(super) fn queue_pair_for(
        &self,
        nic: &RdmaDevice,
        capacity: Capacity,
    ) -> Result<(QueuePair, EndpointAddress), RdmaError> {
        let pair = QueuePair::new(&self.domain, &self.completions, capacity)?;
        pair.initialise(nic.port.number)?;
        let remote = RemoteEnd {
            queue_pair: pair.number(),
            packet: u32::from_le_bytes(job::random()?) & 0x00ff_ffff,
            lid: nic.port.lid,
            gid: nic.gid.gid,
        };
        Ok((pair, EndpointAddress { remote, ..self.end(nic.port.mtu) }))
    }

    /// Description of an end that rdma_cm connects, without the port.
    pub(super) fn end(&self, mtu: PathMtu) -> EndpointAddress {
        EndpointAddress {
            remote: RemoteEnd { queue_pair: 0, packet: 0, lid: 0, gid: Gid([0; 16]) },
            mtu,
            reads: answered(&self.limits),
            by_manager: false,
            manager_port: 0,
            secret: [0; 8],
            slots: NO_SLOTS,
        }
    }

    /// Joins a queue pair with the peer's.
    pub(super) fn join(
        &self,
        nic: &RdmaDevice,
        pair: &QueuePair,
        own: &EndpointAddress,
        peer: &EndpointAddress,
    ) -> Result<(), RdmaError> {
        let settings = self.settings(own.mtu.min(peer.mtu), peer.reads);
        pair.receive_from(&nic.port, nic.gid.index, &peer.remote, &settings)?;
        Ok(pair.send_from(own.remote.packet, &settings)?)
    }

    /// How the path behaves to a peer that answers so many reads at a time.
    pub(super) fn settings(&self, mtu: PathMtu, peer_reads: u8) -> Settings {
        // At most MAX_READS.
        let reads = self.limits.reads.clamp(1, MAX_READS as u32) as u8;
        Settings {
            reads: reads.min(peer_reads),
            answered_reads: answered(&self.limits),
            ..Settings::new(mtu)
        }
    }
}

/// Reads that a device answers at a time on a queue pair.
fn answered(limits: &Limits) -> u8 {
    // At most MAX_READS.
    limits.answered_reads.clamp(1, MAX_READS as u32) as u8
}

/// How long nothing may come while a read is under way. The card reports a dead path after two seconds.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the descriptors are waited for at a time.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Queue pairs that are joined with the peer's, and by which its memory is read in turn.
#[derive(Debug)]
pub(crate) struct Path {
    /// In front of all else: when they have gone, no bytes come any more.
    pairs: Vec<QueuePair>,
    /// Requests of each at a time.
    depth: usize,
    resources: EndpointResources,
    batch: SendBatch,
    last: u64,
    /// Reads that have ended and were not asked for yet.
    ended: Vec<u64>,
    in_flight: usize,
    has_failed: bool,
}

impl Path {
    fn new(pairs: Vec<QueuePair>, depth: usize, resources: EndpointResources) -> Self {
        Self {
            pairs,
            depth,
            resources,
            batch: SendBatch::with_capacity(1),
            last: 0,
            ended: Vec::new(),
            in_flight: 0,
            has_failed: false,
        }
    }

    /// Where memory is registered into which bytes are read.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.resources.domain
    }

    /// How many queue pairs it has.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.pairs.len()
    }

    /// How many reads may be under way.
    pub(crate) fn max_reads(&self) -> usize {
        self.pairs.len() * self.depth
    }

    /// Begins to read memory of the peer, and gives the read's number. At most [`max_reads`](Self::max_reads) may be
    /// under way, which end in the order in which they have begun on each queue pair.
    ///
    /// # Safety
    /// The segment's bytes stay mapped, and are not shared, until [`wait`](Self::wait) has said that the
    /// read is done, or the path has been dropped.
    pub(crate) unsafe fn read(&mut self, from: RemoteMemory, into: Segment) -> Result<u64, RdmaError> {
        self.last += 1;
        self.batch.push(&SendRequest::new(self.last, Operation::Read { from }, into));
        // The numbers of reads go round the queue pairs.
        let turn = (self.last % self.pairs.len() as u64) as usize;
        let pair = &mut self.pairs[turn];
        // SAFETY: the caller keeps the segment mapped and unshared until the read is done; each read has a
        // completion of its own.
        unsafe { pair.post(&mut self.batch) }.inspect_err(|_| self.has_failed = true)?;
        self.in_flight += 1;
        Ok(self.last)
    }

    /// Waits until a read is done. `peer` is the socket that joins the two ranks: it tells when the peer
    /// ends. After an error the path is of no use, and to be dropped: then nothing more is written.
    pub(crate) fn wait(&mut self, read: u64, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        self.wait_for(read, peer).inspect_err(|_| self.has_failed = true)
    }

    /// Whether nothing is under way, and nothing has failed.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.has_failed
    }

    fn wait_for(&mut self, read: u64, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        let (mut busy, spin) = (BusyPoll::new(), spin::between_commands());
        let mut last_completion = Instant::now();
        loop {
            if let Some(at) = self.ended.iter().position(|ended| *ended == read) {
                self.ended.swap_remove(at);
                return Ok(());
            }
            if self.take()? {
                last_completion = Instant::now();
            } else if busy.pause() >= spin {
                if last_completion.elapsed() > COMPLETION_TIMEOUT {
                    return Err(RdmaError::Silent(COMPLETION_TIMEOUT.as_secs()));
                }
                self.sleep(peer)?;
            }
        }
    }

    /// Takes completions, if there are any.
    fn take(&mut self) -> Result<bool, RdmaError> {
        let mut completions = [Completion::default(); MAX_READS];
        let count = self.resources.completions.poll(&mut completions)?;
        for completion in &completions[..count] {
            if !completion.status().is_success() {
                return Err(RdmaError::Read(completion.status()));
            }
            self.ended.push(completion.id());
        }
        self.in_flight = self.in_flight.saturating_sub(count);
        Ok(count > 0)
    }

    /// Sleeps until a completion may be there.
    fn sleep(&mut self, peer: BorrowedFd<'_>) -> Result<(), RdmaError> {
        self.resources.completions.request_event()?;
        // It may have come before the question.
        if self.take()? {
            return Ok(());
        }
        let completions = self.resources.completions.descriptor();
        let mut polled = [
            PollFd::from_borrowed_fd(completions, PollFlags::IN),
            PollFd::from_borrowed_fd(peer, PollFlags::RDHUP),
        ];
        let look = CHECK_INTERVAL.try_into().ok();
        match poll(&mut polled, look.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RdmaError::System(error.into())),
        }
        let [completions, peer] = polled.map(|polled| polled.revents());
        if !completions.is_empty() {
            self.resources.completions.take_event()?;
        } else if !peer.is_empty() {
            return Err(RdmaError::PeerDisconnected);
        }
        Ok(())
    }
}

/// A receiver's end that is not joined yet.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Queue pairs with their ends; none where rdma_cm makes one.
    pairs: Vec<(QueuePair, EndpointAddress)>,
    queues: Queues,
    resources: EndpointResources,
    nic: RdmaDevice,
    /// Description of the one that rdma_cm creates.
    by_manager: EndpointAddress,
}

impl Reader {
    /// An end at the card that is wanted.
    pub(crate) fn new(selector: &NicSelector) -> Result<Self, RdmaError> {
        let nic = RdmaDevice::open(selector)?;
        let (resources, queues) = EndpointResources::of_queues(&nic.device, Queues::configured()?)?;
        let by_manager = EndpointAddress { by_manager: true, ..resources.end(nic.port.mtu) };
        // rdma_cm takes long for each.
        let count = if nic.needs_manager() { 0 } else { queues.pairs };
        let make = |_| resources.queue_pair_for(&nic, capacity(queues.depth));
        let pairs = (0..count).map(make).collect::<Result<_, _>>()?;
        Ok(Self { pairs, queues, resources, nic, by_manager })
    }

    /// What must be sent to the peer: an end for each queue pair, one at least.
    pub(crate) fn ends(&self) -> Vec<EndpointAddress> {
        if self.pairs.is_empty() {
            return vec![self.by_manager];
        }
        self.pairs.iter().map(|(_, end)| *end).collect()
    }

    /// Joins the end with the peer's, which has further queue pairs besides its first one, no more than this
    /// end. It is at that address, if at one of a network.
    pub(crate) fn join(
        self,
        peer: &EndpointAddress,
        others: &[EndpointAddress],
        address: Option<IpAddr>,
    ) -> Result<Path, RdmaError> {
        let Self { pairs, queues, resources, nic, by_manager } = self;
        if !peer.by_manager {
            if pairs.len() <= others.len() {
                return Err(RdmaError::Senseless);
            }
            let peers = core::iter::once(peer).chain(others);
            let join = |((pair, own), peer): ((QueuePair, EndpointAddress), &EndpointAddress)| {
                resources.join(&nic, &pair, &own, peer).map(|()| pair)
            };
            let joined = pairs.into_iter().zip(peers).map(join).collect::<Result<Vec<_>, _>>()?;
            return Ok(Path::new(joined, queues.depth, resources));
        }
        drop(pairs);
        let own = by_manager;
        let deadline = Instant::now() + QP_CONNECT_TIMEOUT;
        // Two ranks of a host have no address but the one that the peer tells. It may not lead elsewhere.
        let address = match (address, peer.address()) {
            (Some(address), _) => address,
            (None, Some(announced))
                if is_address_of_this_host(announced).map_err(RdmaError::Addresses)? =>
            {
                announced
            }
            (None, Some(announced)) => return Err(RdmaError::Elsewhere(announced)),
            (None, None) => return Err(RdmaError::Senseless),
        };
        let address = SocketAddr::new(address, peer.manager_port);
        let route = Route::resolve(nic.device.libraries(), None, address, deadline)?;
        // No more reads at a time have been tried with iWARP.
        let queues = Queues { pairs: 1, depth: queues.depth.min(MAX_READS) };
        let (resources, queues) = EndpointResources::of_queues(route.device(), queues)?;
        let pair = route.queue_pair(&resources.domain, &resources.completions, capacity(queues.depth))?;
        let settings = resources.settings(own.mtu.min(peer.mtu), peer.reads);
        // The queue pair keeps the connection.
        route.connect(&peer.secret, &settings, deadline)?;
        Ok(Path::new(vec![pair], queues.depth, resources))
    }
}

/// A sender's end, before or after it is joined with the receiver's.
#[derive(Debug)]
pub(crate) struct ReadTarget {
    /// In front of all else, so that nobody reads any more when that goes.
    pairs: Vec<QueuePair>,
    listener: Option<Listener>,
    resources: EndpointResources,
    own: EndpointAddress,
    /// Of further queue pairs.
    others: Vec<EndpointAddress>,
}

/// Whether the response to a read of so many bytes at an address may lie in the packet's header with software
/// iWARP, and in two pages before.
fn is_split_in_header(address: u64, bytes: u64) -> bool {
    /// More than a header holds.
    const MAX_IN_HEADER: u64 = 64;
    const PAGE: u64 = 4096;
    bytes <= MAX_IN_HEADER && address % PAGE + bytes > PAGE
}

/// This end reads nothing.
const TARGET_QUEUES: Queues = Queues { pairs: MAX_QUEUE_PAIRS, depth: 1 };

impl ReadTarget {
    /// An end for this peer and each of its queue pairs, who has come over the address `local`, if over a
    /// network. Within a host its own card is used, which it has chosen by its GPU.
    pub(crate) fn new(peers: &[EndpointAddress], local: Option<IpAddr>) -> Result<Self, RdmaError> {
        let peer = peers.first().ok_or(RdmaError::Senseless)?;
        let gid = Some(peer.remote.gid).filter(|gid| local.is_none() && !peer.by_manager && !gid.is_empty());
        let nic = RdmaDevice::open(&NicSelector { local, gid, ..NicSelector::default() })?;
        if peer.by_manager || nic.needs_manager() {
            let address = local.map_or_else(|| nic.address(), Ok)?;
            let listener = Listener::bind(nic.device.libraries(), address)?;
            let (resources, _) = EndpointResources::of_queues(listener.device(), TARGET_QUEUES)?;
            let (manager_port, secret) = (listener.port(), job::random()?);
            let own =
                EndpointAddress { by_manager: true, manager_port, secret, ..resources.end(nic.port.mtu) };
            // Within a host the peer does not know where that is.
            let own = if local.is_none() { own.at(address) } else { own };
            let others = Vec::new();
            return Ok(Self { pairs: Vec::new(), listener: Some(listener), resources, own, others });
        }
        let (resources, queues) = EndpointResources::of_queues(&nic.device, TARGET_QUEUES)?;
        let make = |peer| {
            let (pair, own) = resources.queue_pair_for(&nic, capacity(queues.depth))?;
            resources.join(&nic, &pair, &own, peer)?;
            Ok((pair, own))
        };
        let made = peers.iter().take(queues.pairs).map(make).collect::<Result<Vec<_>, RdmaError>>()?;
        let (pairs, mut others): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        // There is one at least.
        let own = others.remove(0);
        Ok(Self { pairs, listener: None, resources, own, others })
    }

    /// Where memory is registered that the peer is to read.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.resources.domain
    }

    /// Whether the peer gets the right bytes when it reads so many at an address.
    ///
    /// Linux's software iWARP driver puts a few bytes of a response into the packet's header, and takes the
    /// wrong ones where they lie in two pages (its function `siw_try_1seg` counts the part in the first page
    /// from that page's end).
    pub(crate) fn reads_directly(&self, address: u64, bytes: u64) -> bool {
        !self.own.by_manager || !is_split_in_header(address, bytes)
    }

    /// What must be sent to the peer, an end for each queue pair, the first one with the slots that it is to read.
    pub(crate) fn ends(&self, slots: Slots) -> Vec<EndpointAddress> {
        [EndpointAddress { slots, ..self.own }].into_iter().chain(self.others.iter().copied()).collect()
    }

    /// Waits until the peer, who has been told, has joined the two where rdma_cm does that.
    pub(crate) fn finish(&mut self) -> Result<(), RdmaError> {
        let Some(mut listener) = self.listener.take() else { return Ok(()) };
        let deadline = Instant::now() + QP_CONNECT_TIMEOUT;
        let request = loop {
            let request = listener.next(deadline)?;
            if request.private_data().starts_with(&self.own.secret) {
                break request;
            }
            request.reject();
        };
        let capacity = capacity(TARGET_QUEUES.depth);
        let pair = request.queue_pair(&self.resources.domain, &self.resources.completions, capacity)?;
        let settings = self.resources.settings(PathMtu::Mtu1024, self.own.reads);
        // The queue pair keeps the connection.
        listener.accept(request, &[], &settings, deadline)?;
        self.pairs.push(pair);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_reads_across_a_page_are_known() {
        let split = [(4095, 2), (4090, 10), (8191, 64), (4033, 64)];
        let whole = [(4094, 2), (4096, 64), (0, 1), (4095, 65), (4000, 4096), (u64::MAX, 1)];
        assert!(split.iter().all(|(address, bytes)| is_split_in_header(*address, *bytes)));
        assert!(!whole.iter().any(|(address, bytes)| is_split_in_header(*address, *bytes)));
    }

    #[test]
    fn paths_have_the_queues_of_the_tuned_transport_within_the_limits_of_the_card() {
        let limits = |work_requests, completions| Limits {
            queue_pairs: 1 << 10,
            work_requests,
            completions,
            memory_regions: 1,
            memory_region_bytes: 1,
            reads: 16,
            answered_reads: 16,
        };
        let queues = Queues::configured().unwrap();
        assert_eq!(queues, Queues { pairs: 2, depth: 128 });
        assert_eq!(queues.within(&limits(1 << 15, 1 << 22)), queues);
        assert_eq!(queues.completions(), 512);
        assert_eq!(queues.within(&limits(64, 1 << 22)), Queues { pairs: 2, depth: 64 });
        assert_eq!(queues.within(&limits(128, 300)), Queues { pairs: 1, depth: 128 });
    }
}
