//! Queue pairs for links of a team: a device with one completion queue for all of them, memory that peers write and
//! read by themselves, and short messages.
//!
//! Unlike a [path](super::path), which is read alone, such a queue pair is used by both ends.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use causeway_ibverbs::{
    Access, Buffer, Capacity, Completion, CompletionQueue, Device, GidEntry, MemoryRegion, Operation, Port,
    PostError, QueuePair, Receive, RemoteMemory, Segment, SendBatch, SendRequest, Status,
};

use super::endpoint::{EndpointAddress, Slots};
use super::nic::{NicSelector, RdmaDevice, RdmaError};
use super::path::EndpointResources;

/// Requests of a queue pair that are under way at most.
pub(crate) const MAX_SENDS: usize = 1024;

/// Messages that a peer may have sent and this end has not taken.
pub(crate) const MAX_RECEIVES: usize = 512;

/// Bytes of a message at most, which travel within the request.
pub(crate) const MESSAGE_BYTES: usize = 40;

/// Requests that are handed to the device at a time.
const BATCH: usize = 32;

/// What a request of this end is called; receives have the numbers of their slots.
const SENT: u64 = u64::MAX;

const CAPACITY: Capacity =
    Capacity { sends: MAX_SENDS as u32, receives: MAX_RECEIVES as u32, inline: MESSAGE_BYTES as u32 };

/// A device for so many links.
#[derive(Debug)]
pub(crate) struct LinkNic {
    nic: RdmaDevice,
    resources: EndpointResources,
}

/// What has ended: a queue pair's number, and what of it.
pub(crate) type Ended = (u32, Result<Event, Status>);

/// What has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The request that was posted first of those that have not ended.
    Request,
    /// A message of so many bytes has come into a slot.
    Message { slot: usize, bytes: u32 },
}

impl LinkNic {
    /// The device that is wanted.
    pub(crate) fn open(selector: &NicSelector, links: usize) -> Result<Self, RdmaError> {
        let nic = RdmaDevice::open(selector)?;
        if nic.needs_manager() {
            return Err(RdmaError::NeedsManager(nic.device.name().to_owned()));
        }
        let completions = links.max(1) * (MAX_SENDS + MAX_RECEIVES);
        let resources = EndpointResources::with_completions(&nic.device, completions as u32)?;
        Ok(Self { nic, resources })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.nic.device.name()
    }

    /// The device, its port, and the port's address that is used.
    pub(crate) fn port(&self) -> (&Device, &Port, GidEntry) {
        (&self.nic.device, &self.nic.port, self.nic.gid)
    }

    /// Takes what has ended, in order for each queue pair.
    pub(crate) fn poll(&self, ended: &mut Vec<Ended>) -> Result<(), RdmaError> {
        let mut completions = [Completion::default(); 64];
        let count = self.resources.completions.poll(&mut completions)?;
        ended.extend(completions[..count].iter().map(|completion| {
            let event = match completion.id() {
                SENT => Event::Request,
                // Below MAX_RECEIVES, as this end has posted it.
                slot => Event::Message { slot: slot as usize, bytes: completion.length() },
            };
            let status = completion.status();
            (completion.queue_pair(), if status.is_success() { Ok(event) } else { Err(status) })
        }));
        Ok(())
    }

    /// Where an event is waited for.
    pub(crate) fn completions(&self) -> &CompletionQueue {
        &self.resources.completions
    }

    /// Registers memory of the host.
    ///
    /// # Safety
    /// The memory stays as long as the region. Peers of the queue pairs read and write it where `is_exposed`.
    pub(crate) unsafe fn register(
        &self,
        address: u64,
        bytes: u64,
        is_exposed: bool,
    ) -> Result<MemoryRegion, RdmaError> {
        let access =
            if is_exposed { Access::REMOTE_WRITE | Access::REMOTE_READ } else { Access::LOCAL_WRITE };
        let length = usize::try_from(bytes).map_err(|_| RdmaError::NotAccessible)?;
        let domain = &self.resources.domain;
        // SAFETY: the caller keeps the memory as long as the region.
        Ok(unsafe { MemoryRegion::register(domain, address as *mut u8, length, access) }?)
    }

    /// Registers memory of a GPU for peers: by its dma-buf, or where the kernel has a module that knows the
    /// addresses.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    pub(crate) unsafe fn register_gpu(
        &self,
        address: u64,
        bytes: u64,
        dma_buf: Option<(OwnedFd, u64)>,
    ) -> Result<MemoryRegion, RdmaError> {
        let length = usize::try_from(bytes).map_err(|_| RdmaError::NotAccessible)?;
        if let Some((descriptor, offset)) = dma_buf {
            let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
            let (domain, descriptor) = (&self.resources.domain, descriptor.as_fd());
            // SAFETY: the caller keeps the memory as long as the region.
            let region = unsafe {
                MemoryRegion::register_dma_buf(domain, descriptor, offset, length, address, access)
            };
            if let Ok(region) = region {
                return Ok(region);
            }
        }
        // SAFETY: the caller keeps the memory as long as the region. Where the kernel knows no memory at a
        // GPU's address, it refuses.
        unsafe { self.register(address, bytes, true) }
    }
}

/// A queue pair that is not joined yet. Its receives are posted.
#[derive(Debug)]
pub(crate) struct UnjoinedLink {
    pair: QueuePair,
    own: EndpointAddress,
    messages: Buffer,
}

impl UnjoinedLink {
    /// At a device.
    pub(crate) fn new(nic: &LinkNic) -> Result<Self, RdmaError> {
        let (pair, own) = nic.resources.queue_pair_for(&nic.nic, CAPACITY)?;
        if pair.capacity().inline < MESSAGE_BYTES as u32 {
            return Err(RdmaError::NoInline(nic.name().to_owned()));
        }
        // Behind the messages is a word that flushes bring.
        let bytes = (MAX_RECEIVES + 1) * MESSAGE_BYTES;
        let messages = Buffer::new(&nic.resources.domain, bytes, Access::LOCAL_WRITE)?;
        let receives: Vec<Receive> = (0..MAX_RECEIVES).map(|slot| receive(&messages, slot)).collect();
        // SAFETY: the slots are read behind their completions alone, and freed behind the queue pair.
        unsafe { pair.post_receives(&receives) }?;
        Ok(Self { pair, own, messages })
    }

    /// What the peer needs, with memory that it may write to.
    pub(crate) fn address(&self, slots: Slots) -> EndpointAddress {
        EndpointAddress { slots, ..self.own }
    }

    /// Joins it with the peer's.
    pub(crate) fn join(self, nic: &LinkNic, peer: &EndpointAddress) -> Result<LinkQueuePair, RdmaError> {
        let Self { pair, own, messages } = self;
        if peer.by_manager {
            return Err(RdmaError::Senseless);
        }
        nic.resources.join(&nic.nic, &pair, &own, peer)?;
        let batch = SendBatch::with_capacity(BATCH);
        Ok(LinkQueuePair {
            pair,
            messages,
            batch,
            inline: Box::new([[0; MESSAGE_BYTES]; BATCH]),
            in_flight: 0,
        })
    }
}

fn receive(messages: &Buffer, slot: usize) -> Receive {
    let segment = messages.region().segment(slot * MESSAGE_BYTES, MESSAGE_BYTES);
    Receive { id: slot as u64, segment }
}

/// A queue pair that is joined with the peer's.
#[derive(Debug)]
pub(crate) struct LinkQueuePair {
    /// In front of all memory: when it has gone, nothing is read and written any more.
    pair: QueuePair,
    messages: Buffer,
    batch: SendBatch,
    /// Bytes of the requests in the batch that travel within them.
    inline: Box<[[u8; MESSAGE_BYTES]; BATCH]>,
    in_flight: usize,
}

impl LinkQueuePair {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Whether so many requests more may be posted.
    pub(crate) fn has_capacity(&self, requests: usize) -> bool {
        self.in_flight + requests <= MAX_SENDS
    }

    /// Says that a request has ended.
    pub(crate) fn ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Posts a request behind all others. With `is_fenced` it begins behind the reads before it.
    ///
    /// # Safety
    /// The segment stays mapped until the request has ended, or the queue pair has been dropped.
    pub(crate) unsafe fn post(
        &mut self,
        operation: Operation,
        segment: Segment,
        is_fenced: bool,
    ) -> Result<(), PostError> {
        let request = SendRequest::new(SENT, operation, segment);
        self.push(&SendRequest { is_fenced, ..request })
    }

    /// The same with bytes of the request's own.
    pub(crate) fn post_inline(
        &mut self,
        operation: Operation,
        bytes: &[u8],
        is_fenced: bool,
    ) -> Result<(), PostError> {
        let own = &mut self.inline[self.batch.len()][..bytes.len()];
        own.copy_from_slice(bytes);
        let segment = Segment::inline(own);
        let request = SendRequest::new(SENT, operation, segment);
        self.push(&SendRequest { is_fenced, is_inline: true, ..request })
    }

    /// Posts a read of one byte of the peer's memory: when it has ended, what was written there before has
    /// arrived.
    pub(crate) fn post_flush(&mut self, from: RemoteMemory) -> Result<(), PostError> {
        let segment = self.messages.region().segment(MAX_RECEIVES * MESSAGE_BYTES, 1);
        self.push(&SendRequest::new(SENT, Operation::Read { from }, segment))
    }

    fn push(&mut self, request: &SendRequest) -> Result<(), PostError> {
        self.batch.push(request);
        self.in_flight += 1;
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// Hands what was posted to the device.
    pub(crate) fn flush(&mut self) -> Result<(), PostError> {
        // SAFETY: whoever called `post` keeps the segments mapped until the requests have ended; inline bytes
        // are in the array until the next request after this.
        unsafe { self.pair.post(&mut self.batch) }
    }

    /// The bytes of a message that has come, whose slot is free for another one then.
    pub(crate) fn take_message(&mut self, slot: usize) -> Result<[u8; MESSAGE_BYTES], PostError> {
        let mut bytes = [0; MESSAGE_BYTES];
        // SAFETY: a slot of the buffer, which the device has written and does not before it is posted again.
        unsafe {
            let from = self.messages.as_ptr().add((slot % MAX_RECEIVES) * MESSAGE_BYTES);
            core::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), MESSAGE_BYTES);
        }
        // SAFETY: the slot is read behind its completion alone, and freed behind the queue pair.
        unsafe { self.pair.post_receives(&[receive(&self.messages, slot % MAX_RECEIVES)]) }?;
        Ok(bytes)
    }
}

impl LinkNic {
    /// A descriptor that is readable when something may have ended that was asked for by
    /// [`CompletionQueue::request_event`].
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.resources.completions.descriptor()
    }
}
