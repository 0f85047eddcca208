//! Sends: offers of GPU memory, and what the traffic with each peer is bound by.

use std::time::{Duration, Instant};

use super::state::{Outgoing, PEER_TIMEOUT, World};
use crate::channels::{Channel, bar};
use crate::cuda::{self, CudaError, DeviceMemory, Driver};
use crate::matching::{Descriptor, Source};
use crate::report::{Inline, MessagePath};
use crate::tracer::{Operation, Traffic};
use crate::transfer::offers::{DetachedCopy, Offer, OfferState};
use crate::verbs;

/// How many buffers are known to be open at peers.
const MAX_PENDING_NOTES: usize = 4096;

impl World {
    /// Whether a message of so many bytes is to be offered to a peer, or why it goes with the MPI. Without an
    /// address, whether one from memory that nothing is known of is.
    ///
    /// # Errors
    /// Why not.
    pub fn offers(&self, peer: u32, address: Option<u64>, bytes: u64) -> Result<(), Inline> {
        self.follow_process();
        if self.shared.gate.is_moving() {
            return Err(Inline::Moving);
        }
        if !self.is_short(bytes) {
            return if self.is_reachable(peer) { Ok(()) } else { Err(Inline::Unreachable) };
        }
        // There is nothing to be copied.
        let (driver, address) = Driver::loaded().zip(address).filter(|_| bytes > 0).ok_or(Inline::Short)?;
        let memory = DeviceMemory::at(driver, address).ok_or(Inline::Short)?;
        if self.has_bar() && self.shared.eager.reads(driver, &memory, address, bytes) {
            return Err(Inline::Eager);
        }
        // Where there is a threshold the user has said so.
        let may_pay = !self.shared.settings.is_threshold_set && self.has_way_for_short(driver, &memory);
        let is_offered =
            may_pay && self.shared.offers.is_short_offered(peer, memory.buffer) && self.is_reachable(peer);
        if is_offered { Ok(()) } else { Err(Inline::Short) }
    }

    fn has_bar(&self) -> bool {
        self.shared.settings.channels.contains(&Channel::EAGER) && self.shared.live.allows(Channel::EAGER)
    }

    /// Copies between a GPU and any memory, and waits: short messages by the processor, where it reaches the
    /// GPU's memory. Says whether it was by that.
    ///
    /// # Safety
    /// Both addresses are valid for so many bytes, or addresses of a GPU.
    ///
    /// # Errors
    /// What the driver says, or that it knows neither of the two.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<bool, CudaError> {
        match Driver::loaded().filter(|_| self.has_bar()) {
            // SAFETY: both addresses are valid for `bytes` bytes, by what the caller guarantees.
            Some(driver) => unsafe { self.shared.eager.copy(driver, to, from, bytes) },
            // SAFETY: both addresses are valid for `bytes` bytes, by what the caller guarantees.
            None => unsafe { cuda::copy(to, from, bytes) }.map(|()| false),
        }
    }

    /// Whether a short message from memory may pay: the peer opens the memory, or the processor reaches it.
    fn has_way_for_short(&self, driver: &'static Driver, memory: &DeviceMemory) -> bool {
        let channels = &self.shared.settings.channels;
        channels.iter().any(|channel| channel.peer_memory().is_some_and(|ops| ops.exports(memory)))
            || self.has_bar() && bar::usable(driver, memory).is_ok()
    }

    /// Whether a message of so many bytes is shorter than what is worth being fetched from memory that is not
    /// open at the receiver.
    pub fn is_short(&self, bytes: u64) -> bool {
        bytes < self.shared.settings.fetch_bytes
    }

    /// Counts a send to a peer, or a receive from it, of memory on a GPU. Peers that have not been met on
    /// this host are not counted: between hosts one network carries all. What a [`fetch`](Self::fetch) brings
    /// is counted by that.
    pub fn count_operation(&self, peer: u32, operation: Operation) {
        let is_local = || {
            let outgoing = self.shared.outgoing.lock();
            matches!(outgoing.get(&peer), Some(Outgoing::Connected(connection)) if !connection.is_network())
        };
        if self.shared.tracers.has(peer) || is_local() {
            self.shared.tracers.count(peer, operation);
        }
    }

    /// What the traffic with a peer is bound by, as far as this rank has seen it. That of the sender goes
    /// with each message, since whoever waits for a message, or has several in flight, is the one who sends
    /// it: a receiver that blocks in `MPI_Recv` says nothing of how many are on their way.
    pub fn traffic(&self, peer: u32) -> Traffic {
        self.shared.tracers.traffic(peer)
    }

    /// Whether memory can be [offered](Self::offer): a channel is allowed that takes its kind.
    pub fn can_offer(&self, address: u64) -> bool {
        let channels = &self.shared.settings.channels;
        if channels.iter().any(|channel| channel.accepts(&Source::default())) {
            return true;
        }
        let Some(driver) = Driver::loaded() else { return false };
        DeviceMemory::at(driver, address)
            .is_some_and(|memory| self.accepted_source(driver, &memory, address).is_some())
    }

    /// The description of memory in an offer; none where no channel is allowed that takes it.
    fn accepted_source(
        &self,
        driver: &'static Driver,
        memory: &DeviceMemory,
        address: u64,
    ) -> Option<Source> {
        let rdma = self.may_use_rdma() && verbs::usable().is_ok();
        let source = Source {
            rdma,
            gpudirect: rdma && self.shared.live.allows_gpudirect() && verbs::is_gpudirect(driver, memory),
            bar: self.has_bar() && bar::usable(driver, memory).is_ok(),
            ..source(driver, memory, address)?
        };
        self.shared.settings.channels.iter().any(|channel| channel.accepts(&source)).then_some(source)
    }

    /// Offers memory on a GPU to a peer, which must be reached. Gives the offer's number and what is sent to
    /// tell of it; none where the memory is not on a GPU, or no channel is allowed that takes its kind.
    pub fn offer(&self, peer: u32, address: u64, bytes: u64) -> Option<(u64, Descriptor)> {
        let driver = Driver::loaded()?;
        let memory = DeviceMemory::at(driver, address)?;
        cuda::synchronize(driver, &memory);
        let source = self.accepted_source(driver, &memory, address)?;
        let (operation, word) = self.shared.offers.add(Offer {
            peer,
            address,
            bytes,
            buffer: memory.buffer,
            is_short: self.is_short(bytes),
            copy: None,
        });
        self.shared.count(peer, MessagePath::Offered, bytes);
        let from = self.shared.rank;
        let traffic = self.traffic(peer);
        Some((operation, Descriptor { from, to: peer, operation, bytes, memory: source, word, traffic }))
    }

    /// Lets a peer, which must be reached, open memory in which a range lies, so that its kernels use that
    /// where it is, until this rank [revokes](Self::revoke) it. Gives a number and what is sent to tell of
    /// it; none where no channel is allowed by which such memory is opened, or the range is not in it.
    pub fn export(
        &self,
        peer: u32,
        driver: &Driver,
        memory: &DeviceMemory,
        address: u64,
        bytes: u64,
    ) -> Option<(u64, Descriptor)> {
        let channels = &self.shared.settings.channels;
        let exports = |channel: &Channel| channel.peer_memory().is_some_and(|ops| ops.exports(memory));
        let opens = channels.iter().any(exports);
        if !opens || !memory.has(address, bytes) {
            return None;
        }
        let source = source(driver, memory, address)?;
        let buffer = memory.buffer;
        let operation =
            self.shared.offers.export(Offer { peer, address, bytes, buffer, is_short: false, copy: None });
        let from = self.shared.rank;
        let (word, traffic) = (None, Traffic::Latency);
        Some((operation, Descriptor { from, to: peer, operation, bytes, memory: source, word, traffic }))
    }

    /// Whether a peer has opened a buffer of this rank before. It may have closed it since, and opens it
    /// again.
    pub fn is_open_at(&self, peer: u32, buffer: u64) -> bool {
        self.shared.open_at.lock().contains(&(peer, buffer))
    }

    /// A peer has opened a buffer.
    pub fn note_open(&self, peer: u32, buffer: u64) {
        let mut open = self.shared.open_at.lock();
        // Those of memory that has been freed stay.
        if open.len() > MAX_PENDING_NOTES {
            open.clear();
        }
        open.insert((peer, buffer));
    }

    /// Something went wrong with what was open.
    pub fn forget_open(&self) {
        self.shared.open_at.lock().clear();
    }

    /// No peer opens memory any more that was shown under this number.
    pub fn revoke(&self, operation: u64) {
        self.shared.offers.revoke(operation);
    }

    fn may_use_rdma(&self) -> bool {
        self.shared.settings.channels.iter().any(|channel| channel.uses_rdma())
    }

    /// State of an offer. One that has come to its end is forgotten with the answer.
    pub fn offer_state(&self, operation: u64) -> OfferState {
        self.shared.offers.state(operation)
    }

    /// Gives the program back what it has offered, before the peer has begun to fetch it, and keeps a copy
    /// for the peer. Says whether it has: there is a limit for such copies.
    pub fn detach(&self, operation: u64) -> bool {
        self.detach_after(operation, Duration::ZERO)
    }

    /// The same, where the peer is late: a program that waits for its send may be what the receiver waits
    /// for.
    pub fn detach_late(&self, operation: u64) -> bool {
        self.detach_after(operation, self.shared.offers.timeout(operation))
    }

    fn detach_after(&self, operation: u64, min_wait: Duration) -> bool {
        if !self.shared.offers.peer(operation).is_some_and(|peer| self.carries_copies_to(peer)) {
            return false;
        }
        // SAFETY: the program leaves the memory alone until it hears of the offer's end.
        let copy = |offer: &Offer, share| unsafe { DetachedCopy::copy(offer.address, offer.bytes, share) };
        let Some((peer, bytes)) = self.shared.offers.detach(operation, min_wait, copy) else { return false };
        self.shared.report.lock().count_detached(peer, bytes);
        true
    }

    /// Whether a channel brings a peer a message that lies in memory of the host: one between hosts joins
    /// only those that meet over a network.
    fn carries_copies_to(&self, peer: u32) -> bool {
        let is_network = match self.shared.outgoing.lock().get(&peer) {
            Some(Outgoing::Connected(connection)) => connection.is_network(),
            _ => false,
        };
        let channels = &self.shared.settings.channels;
        channels.iter().any(|channel| channel.carries_copies() && channel.is_between_hosts() == is_network)
    }

    /// Waits until all peers have fetched what they were offered, but not for ever. Says whether they have.
    pub fn drain(&self) -> bool {
        let until = Instant::now() + PEER_TIMEOUT;
        while self.shared.offers.any_in_flight() {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }
}

/// What is sent to a peer about memory.
fn source(driver: &Driver, memory: &DeviceMemory, address: u64) -> Option<Source> {
    Some(Source {
        ipc: memory.ipc,
        export: memory.exportable || memory.device_exports,
        direct: memory.exportable,
        gpu: cuda::gpu_number(driver, memory.device)?,
        buffer: memory.buffer,
        offset: address - memory.start,
        ..Source::default()
    })
}
