//! Network cards of a team's links: the device that a rank's links share, and of each link the queue pair, the memory
//! into which the peer's card writes, and what is known of the peer's windows.
//!
//! Where both ends have a card, a put is an RDMA write into the peer's window, a get a read, and what sets a word
//! of the host's memory a write behind them: the queue pair keeps their order, and the card answers. What the
//! peer's proxy has to do itself goes as a [frame](super::frame::Frame) in a message over the same queue pair. A
//! window that no card reaches is written through *bounce slots*, pinned memory at the peer, whose n-th payload
//! is in the slot n modulo their count; a frame behind it says where it belongs.

use std::collections::{BTreeMap, VecDeque};

use causeway_ibverbs::{MemoryRegion, Operation, PostError, RemoteMemory, Segment, Status};

use super::frame::{FRAME_BYTES, Frame, MAX_PAYLOAD, Position};
use super::parts::PartRange;
use super::stream::{LinkError, Payload};
use crate::device::layout::MAX_WINDOWS;
use crate::verbs::{EndpointAddress, Event, LinkQueuePair, MESSAGE_BYTES, Slots};

/// Bounce slots of each kind at either end: of puts, and of what answers gets.
pub const BOUNCE_SLOTS: usize = 4;

/// Bytes of a bounce slot.
const SLOT: u64 = MAX_PAYLOAD as u64;

/// Bytes of staging memory behind a link's own where it has a card: bounce slots of both kinds, into which the
/// peer writes, and slots for answers out of memory that the card does not reach.
pub const RDMA_STAGING_BYTES: u64 = BOUNCE_BYTES + SLOT * BOUNCE_SLOTS as u64;

/// Bytes that the peer writes to.
pub const BOUNCE_BYTES: u64 = 2 * SLOT * BOUNCE_SLOTS as u64;

const _: () = assert!(MESSAGE_BYTES == FRAME_BYTES, "a message is a frame");

/// A window of the peer's, as its card lets it be reached.
#[derive(Debug, Clone, Copy)]
pub struct RemoteWindow {
    memory: RemoteMemory,
    bytes: u64,
    /// Whether it is memory of the host.
    pub in_host: bool,
}

/// What the end of a request means.
#[derive(Debug)]
pub enum Effect {
    /// Nothing.
    None,
    /// The request of this number is answered.
    Completes(u64),
    /// A payload has left staging memory; if a number is there, that answers the request of this number.
    Staged(Option<u64>),
    /// Bytes that were written before have arrived.
    Flushed,
    /// A payload that answers a get has been written.
    Replied(Payload),
}

#[derive(Debug)]
struct Posted {
    effect: Effect,
    is_read: bool,
    /// The memory stays until then.
    _held: Option<PartRange>,
}

/// What a link has of its card.
#[derive(Debug)]
pub struct RdmaPath {
    /// In front of all memory.
    pair: LinkQueuePair,
    /// The bounce slots, and all of the link's staging memory.
    _bounce: MemoryRegion,
    staging: MemoryRegion,
    /// Where the bounce slots begin here, and the peer's.
    bounce: u64,
    peer: RemoteMemory,
    /// The peer's windows.
    windows: BTreeMap<u32, RemoteWindow>,
    /// What has been posted and has not ended.
    posted: VecDeque<Posted>,
    reads: usize,
    /// Memory of the peer's GPU that was written behind the last flush.
    unflushed: Option<RemoteMemory>,
    /// What has ended, and was not looked at yet.
    events: VecDeque<Result<Event, Status>>,
    /// Payloads that were written to the peer's bounce slots, and that came to this end's, by kind.
    landed: [usize; 2],
    arrived: [usize; 2],
}

/// Payloads of puts, and of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounce {
    /// A put's.
    Put = 0,
    /// Of what answers a get.
    Data = 1,
}

/// What is announced of bounce slots.
pub(crate) fn slots_of(bounce: &MemoryRegion) -> Slots {
    Slots { memory: bounce.remote(0), count: 2 * BOUNCE_SLOTS as u16, bytes: MAX_PAYLOAD }
}

impl RdmaPath {
    /// Over a queue pair that is joined with the peer's, which has announced its bounce slots.
    ///
    /// # Errors
    /// When it has announced something else.
    pub(crate) fn new(
        pair: LinkQueuePair,
        peer: &EndpointAddress,
        bounce: MemoryRegion,
        staging: MemoryRegion,
    ) -> Result<Self, LinkError> {
        let announced = peer.slots;
        if (usize::from(announced.count), announced.bytes) != (2 * BOUNCE_SLOTS, MAX_PAYLOAD) {
            return Err(LinkError::Wrong("it announces bounce slots that a team does not have"));
        }
        Ok(Self {
            pair,
            bounce: bounce.address(),
            _bounce: bounce,
            staging,
            peer: announced.memory,
            windows: BTreeMap::new(),
            posted: VecDeque::new(),
            reads: 0,
            unflushed: None,
            events: VecDeque::new(),
            landed: [0; 2],
            arrived: [0; 2],
        })
    }

    /// The number of its queue pair.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Adds what has ended.
    pub(crate) fn push(&mut self, event: Result<Event, Status>) {
        self.events.push_back(event);
    }

    /// Whether something has ended that was not looked at.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What the peer's card has refused, if it has.
    pub fn refusal(&mut self) -> Option<LinkError> {
        let refused = self
            .events
            .drain(..)
            .find_map(|event| event.err().filter(|status| *status == Status::REMOTE_ACCESS));
        refused.map(failed)
    }

    /// Whether all that was posted has ended.
    pub fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.events.is_empty()
    }

    /// The peer announces a window.
    ///
    /// # Errors
    /// When there are more than a team has. `may_be` says which may still be in use.
    pub fn add_window(&mut self, frame: &Frame, may_be: impl Fn(u32) -> bool) -> Result<(), LinkError> {
        let Frame::Window { window, address, bytes, key, in_host } = *frame else { return Ok(()) };
        if self.windows.len() >= MAX_WINDOWS {
            self.windows.retain(|window, _| may_be(*window));
        }
        if self.windows.len() >= 2 * MAX_WINDOWS {
            return Err(LinkError::Wrong("it announces more windows than a team has"));
        }
        let memory = RemoteMemory { address, key };
        self.windows.insert(window, RemoteWindow { memory, bytes, in_host });
        Ok(())
    }

    /// Where so many bytes of the peer's part lie, and whether in its host; `None` where its card does not reach
    /// them, or has not said so yet.
    ///
    /// # Errors
    /// When they do not lie in the window.
    pub fn find(&self, at: Position, bytes: u64) -> Result<Option<(RemoteMemory, bool)>, LinkError> {
        let Some(window) = self.windows.get(&at.window) else { return Ok(None) };
        if at.offset > window.bytes || bytes > window.bytes - at.offset {
            return Err(LinkError::Wrong("it has announced a window that is shorter than this rank's"));
        }
        let RemoteMemory { address, key } = window.memory;
        Ok(Some((RemoteMemory { address: address + at.offset, key }, window.in_host)))
    }

    /// The next message or effect, if something has ended.
    ///
    /// # Errors
    /// When a request has failed, or a message is no frame.
    pub fn next_ended(&mut self) -> Result<Option<Next>, LinkError> {
        let Some(event) = self.events.pop_front() else { return Ok(None) };
        match event.map_err(failed)? {
            Event::Request => {
                self.pair.ended();
                let Some(posted) = self.posted.pop_front() else {
                    return Err(LinkError::Wrong("its network card ends a request that was not posted"));
                };
                self.reads -= usize::from(posted.is_read);
                Ok(Some(Next::Ended(posted.effect)))
            }
            Event::Message { slot, bytes } => {
                let message = self.pair.take_message(slot).map_err(refused)?;
                let frame = (bytes as usize == FRAME_BYTES).then(|| Frame::decode(&message)).flatten();
                let frame = frame.ok_or(LinkError::Wrong("it sends bytes that are not a frame of a team"))?;
                Ok(Some(Next::Frame(frame)))
            }
        }
    }

    /// Whether requests more may be posted: all that one of a proxy takes.
    pub fn has_capacity(&self) -> bool {
        self.pair.has_capacity(4)
    }

    fn note(&mut self, effect: Effect, is_read: bool, held: Option<PartRange>) {
        self.reads += usize::from(is_read);
        self.posted.push_back(Posted { effect, is_read, _held: held });
    }

    /// Writes to the peer's memory.
    ///
    /// # Errors
    /// When the card takes no request.
    pub fn write(
        &mut self,
        to: (RemoteMemory, bool),
        segment: Segment,
        effect: Effect,
        held: Option<PartRange>,
    ) -> Result<(), LinkError> {
        let ((to, in_host), immediate) = (to, None);
        // SAFETY: staging memory, which is freed behind the thread of the links, or a part, which is held.
        unsafe { self.pair.post(Operation::Write { to, immediate }, segment, false) }.map_err(refused)?;
        self.note(effect, false, held);
        if !in_host {
            self.unflushed = Some(to);
        }
        Ok(())
    }

    /// Writes a word; of a signal with `is_behind` all that was asked for before.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_word(
        &mut self,
        to: (RemoteMemory, bool),
        value: u64,
        is_behind: bool,
        number: u64,
    ) -> Result<(), LinkError> {
        let is_fenced = is_behind && self.order()?;
        let ((to, in_host), immediate) = (to, None);
        let operation = Operation::Write { to, immediate };
        self.pair.post_inline(operation, &value.to_le_bytes(), is_fenced).map_err(refused)?;
        // Bytes in memory of a GPU are answered for by a flush.
        self.note(if in_host { Effect::Completes(number) } else { Effect::None }, false, None);
        if !in_host {
            self.unflushed = Some(to);
        }
        Ok(())
    }

    /// Reads the peer's memory.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(
        &mut self,
        from: RemoteMemory,
        segment: Segment,
        number: u64,
        held: Option<PartRange>,
    ) -> Result<(), LinkError> {
        // SAFETY: staging memory, which is freed behind the thread of the links, or a part, which is held
        // until the request has ended.
        unsafe { self.pair.post(Operation::Read { from }, segment, false) }.map_err(refused)?;
        self.note(Effect::Completes(number), true, held);
        Ok(())
    }

    /// Sends a frame, behind all that was posted before.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn send(&mut self, frame: &Frame) -> Result<(), LinkError> {
        let is_fenced = self.order()?;
        let operation = Operation::Send { immediate: None };
        self.pair.post_inline(operation, &frame.encode(), is_fenced).map_err(refused)?;
        self.note(Effect::None, false, None);
        Ok(())
    }

    /// Sees that what is posted next comes behind all before; whether it has to be fenced.
    ///
    /// Writes keep their order, but those to a GPU and to the host take different paths behind the peer's card:
    /// a read of what was written returns when that has arrived. Behind reads a request has to wait.
    fn order(&mut self) -> Result<bool, LinkError> {
        self.flush()?;
        Ok(self.reads > 0)
    }

    /// Asks whether what was written to the peer's GPU has arrived. Whether there was something.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        let Some(written) = self.unflushed.take() else { return Ok(false) };
        self.pair.post_flush(written).map_err(refused)?;
        self.note(Effect::Flushed, true, None);
        Ok(true)
    }

    /// Whether something was written to the peer's GPU behind the last flush.
    pub fn is_unflushed(&self) -> bool {
        self.unflushed.is_some()
    }

    /// Hands all requests to the card.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn submit(&mut self) -> Result<(), LinkError> {
        self.pair.flush().map_err(refused)
    }

    /// The peer's bounce slot for the next payload. That it is free is for the caller to see to.
    pub fn next_bounce(&mut self, bounce: Bounce) -> RemoteMemory {
        let slot = next(&mut self.landed, bounce);
        RemoteMemory { address: self.peer.address + SLOT * slot, ..self.peer }
    }

    /// Where the payload is that has come now.
    pub fn next_arrived(&mut self, bounce: Bounce) -> u64 {
        self.bounce + SLOT * next(&mut self.arrived, bounce)
    }

    /// So many bytes of staging memory for a request.
    pub fn staged(&self, address: u64, bytes: u64) -> Segment {
        self.staging.segment((address - self.staging.address()) as usize, bytes as usize)
    }

    /// Bytes of a payload that answers a get: in place, or a copy of it where the card does not reach that.
    pub fn reply(&mut self, payload: &Payload) -> Segment {
        if payload.is_staged {
            return self.staged(payload.address, payload.bytes);
        }
        let range = PartRange { part: payload.part.clone(), address: payload.address };
        range.segment(payload.bytes).unwrap_or_else(|| {
            // Free again: the peer takes no more answers at a time than there are slots.
            let slot = (self.landed[Bounce::Data as usize] % BOUNCE_SLOTS) as u64;
            let address = self.bounce + BOUNCE_BYTES + SLOT * slot;
            // SAFETY: a slot of its own in staging memory, and bytes of a part in the host, which is held.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    payload.address as *const u8,
                    address as *mut u8,
                    payload.bytes as usize,
                );
            }
            self.staged(address, payload.bytes)
        })
    }
}

fn next(counts: &mut [usize; 2], bounce: Bounce) -> u64 {
    let count = &mut counts[bounce as usize];
    let slot = *count % BOUNCE_SLOTS;
    *count += 1;
    (slot + BOUNCE_SLOTS * bounce as usize) as u64
}

/// What has come.
#[derive(Debug)]
pub enum Next {
    /// The peer's.
    Frame(Frame),
    /// The end of a request.
    Ended(Effect),
}

fn refused(error: PostError) -> LinkError {
    LinkError::Nic(format!("the network card takes no request: {error}"))
}

/// Why a request has failed.
fn failed(status: Status) -> LinkError {
    if status == Status::REMOTE_ACCESS {
        return LinkError::Wrong("its network card refuses bytes of a window, which it has freed");
    }
    // The peer's queue pair, or the path to it, is gone.
    let cause = std::io::Error::new(std::io::ErrorKind::ConnectionReset, status.to_string());
    LinkError::Lost(cause)
}
