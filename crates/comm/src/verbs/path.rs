//! Path between two RDMA devices: the resources of an end, the receiver's end, which reads over a connected
//! queue pair, and the sender's, which lets its memory be read.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use causeway_ibverbs::{
    Capacity, Completion, CompletionQueue, Device, Gid, Limits, Listener, Operation, PathMtu,
    ProtectionDomain, QueuePair, RemoteEnd, RemoteMemory, Route, Segment, SendBatch, SendRequest, Settings,
};
use causeway_sync::spin::{self, BusyPoll};
use rustix::event::{PollFd, PollFlags, poll};

use super::endpoint::{EndpointAddress, Slots};
use super::nic::{NicSelector, RdmaDevice, RdmaError, is_address_of_this_host};
use crate::job;

/// Reads under way on a queue pair, at most: what cards of the last ten years allow.
pub(crate) const MAX_READS: usize = 16;

/// How long rdma_cm may take to join two queue pairs.
pub(super) const QP_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a queue pair has room for: the reads that are under way. Nothing is sent.
pub(super) const CAPACITY: Capacity = Capacity { sends: MAX_READS as u32, receives: 1, inline: 0 };

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
    pub(super) fn new(device: &Device) -> Result<Self, RdmaError> {
        // Of requests that are flushed, too.
        Self::with_completions(device, 2 * MAX_READS as u32)
    }

    /// With a completion queue for so many.
    pub(super) fn with_completions(device: &Device, completions: u32) -> Result<Self, RdmaError> {
        Ok(Self {
            domain: ProtectionDomain::new(device)?,
            completions: CompletionQueue::new(device, completions)?,
            limits: device.limits()?,
        })
    }

    /// A queue pair that is bound to the card's port, and what the peer is told of it.
    pub(super) fn queue_pair(&self, nic: &RdmaDevice) -> Result<(QueuePair, EndpointAddress), RdmaError> {
        self.queue_pair_for(nic, CAPACITY)
    }

    /// The same for so many requests.
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

    /// What is told of an end that rdma_cm joins, but for the port.
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

/// How long nothing may come while a read is under way. A dead path is told by the card after two seconds.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the descriptors are waited for at a time.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// A queue pair that is joined with the peer's, and by which its memory is read.
#[derive(Debug)]
pub(crate) struct Path {
    /// In front of all else: when it has gone, no bytes come any more.
    pair: QueuePair,
    resources: EndpointResources,
    batch: SendBatch,
    last: u64,
    /// Reads that have ended and were not asked for yet.
    ended: Vec<u64>,
    in_flight: usize,
    has_failed: bool,
}

impl Path {
    pub(super) fn new(pair: QueuePair, resources: EndpointResources) -> Self {
        Self {
            pair,
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

    /// Begins to read memory of the peer, and gives the read's number. At most [`MAX_READS`] may be under
    /// way.
    ///
    /// # Safety
    /// The segment's bytes stay mapped, and are not shared, until [`wait`](Self::wait) has said that the
    /// read is done, or the path has been dropped.
    pub(crate) unsafe fn read(&mut self, from: RemoteMemory, into: Segment) -> Result<u64, RdmaError> {
        self.last += 1;
        self.batch.push(&SendRequest::new(self.last, Operation::Read { from }, into));
        // SAFETY: the caller keeps the segment mapped and unshared until the read is done; each read has a
        // completion of its own.
        unsafe { self.pair.post(&mut self.batch) }.inspect_err(|_| self.has_failed = true)?;
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
    /// None where rdma_cm makes it.
    pair: Option<QueuePair>,
    resources: EndpointResources,
    nic: RdmaDevice,
    own: EndpointAddress,
}

impl Reader {
    /// An end at the card that is wanted.
    pub(crate) fn new(selector: &NicSelector) -> Result<Self, RdmaError> {
        let nic = RdmaDevice::open(selector)?;
        let resources = EndpointResources::new(&nic.device)?;
        if nic.needs_manager() {
            let own = EndpointAddress { by_manager: true, ..resources.end(nic.port.mtu) };
            return Ok(Self { pair: None, resources, nic, own });
        }
        let (pair, own) = resources.queue_pair(&nic)?;
        Ok(Self { pair: Some(pair), resources, nic, own })
    }

    /// What the peer is to be told.
    pub(crate) fn end(&self) -> EndpointAddress {
        self.own
    }

    /// Joins the end with the peer's, which is at that address, if at one of a network.
    pub(crate) fn join(self, peer: &EndpointAddress, address: Option<IpAddr>) -> Result<Path, RdmaError> {
        let Self { pair, resources, nic, own } = self;
        if !peer.by_manager {
            let pair = pair.ok_or(RdmaError::Senseless)?;
            resources.join(&nic, &pair, &own, peer)?;
            return Ok(Path::new(pair, resources));
        }
        drop(pair);
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
        let resources = EndpointResources::new(route.device())?;
        let pair = route.queue_pair(&resources.domain, &resources.completions, CAPACITY)?;
        let settings = resources.settings(own.mtu.min(peer.mtu), peer.reads);
        // The queue pair keeps the connection.
        route.connect(&peer.secret, &settings, deadline)?;
        Ok(Path::new(pair, resources))
    }
}

/// A sender's end, before or after it is joined with the receiver's.
#[derive(Debug)]
pub(crate) struct ReadTarget {
    /// In front of all else, so that nobody reads any more when that goes.
    pair: Option<QueuePair>,
    listener: Option<Listener>,
    resources: EndpointResources,
    own: EndpointAddress,
}

impl ReadTarget {
    /// An end for this peer, who has come over the address `local`, if over a network. Within a host its own
    /// card is used, which it has chosen by its GPU.
    pub(crate) fn new(peer: &EndpointAddress, local: Option<IpAddr>) -> Result<Self, RdmaError> {
        let gid = Some(peer.remote.gid).filter(|gid| local.is_none() && !peer.by_manager && !gid.is_empty());
        let nic = RdmaDevice::open(&NicSelector { local, gid, ..NicSelector::default() })?;
        if peer.by_manager || nic.needs_manager() {
            let address = local.map_or_else(|| nic.address(), Ok)?;
            let listener = Listener::bind(nic.device.libraries(), address)?;
            let resources = EndpointResources::new(listener.device())?;
            let (manager_port, secret) = (listener.port(), job::random()?);
            let own =
                EndpointAddress { by_manager: true, manager_port, secret, ..resources.end(nic.port.mtu) };
            // Within a host the peer does not know where that is.
            let own = if local.is_none() { own.at(address) } else { own };
            return Ok(Self { pair: None, listener: Some(listener), resources, own });
        }
        let resources = EndpointResources::new(&nic.device)?;
        let (pair, own) = resources.queue_pair(&nic)?;
        resources.join(&nic, &pair, &own, peer)?;
        Ok(Self { pair: Some(pair), listener: None, resources, own })
    }

    /// Where memory is registered that the peer is to read.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.resources.domain
    }

    /// What the peer is to be told, with the slots that it is to read.
    pub(crate) fn end(&self, slots: Slots) -> EndpointAddress {
        EndpointAddress { slots, ..self.own }
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
        let pair = request.queue_pair(&self.resources.domain, &self.resources.completions, CAPACITY)?;
        let settings = self.resources.settings(PathMtu::Mtu1024, self.own.reads);
        // The queue pair keeps the connection.
        listener.accept(request, &[], &settings, deadline)?;
        self.pair = Some(pair);
        Ok(())
    }
}
