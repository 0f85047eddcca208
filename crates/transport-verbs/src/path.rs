//! Send path of one queue pair: posting of messages, writes and reads, and the pump of what is queued for
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use causeway_ibverbs::{
    Buffer, Operation as Request, PostError, QueuePair, RemoteMemory, Segment, SendBatch, SendRequest,
};
use parking_lot::Mutex;

use crate::credit::{CREDIT_UPDATE_RECEIVES, Class, Credits, frames_of};
use crate::error::Failure;
use crate::message::{CONTROL, FRAME_MESSAGE, HEADER, Header, Kind, Released, take_returns};
use crate::queue::{Coalescer, Entry, Operation, SLOTS, SendQueue};
use crate::stripe::{Notice, Stripe, Work};

/// Bytes that are being moved.
pub(super) struct Moving {
    pub(super) bytes: usize,
    pub(super) operation: Option<Arc<Operation>>,
    /// Whether they go with their announcements.
    pub(super) is_eager: bool,
}

/// What is special about a message.
pub(super) struct Message {
    /// Whether its completion is waited for.
    pub(super) is_signalled: bool,
    /// Bytes behind its content.
    pub(super) tail: Segment,
}

impl Default for Message {
    fn default() -> Self {
        Self { is_signalled: false, tail: Segment::EMPTY }
    }
}

/// What posting needs, under one short lock.
pub(super) struct SendState {
    pub(super) queue: SendQueue<Moving>,
    pub(super) credits: Credits,
    pub(super) batch: SendBatch,
    /// Stripes that wait for room.
    pub(super) waiting: VecDeque<Stripe>,
    pub(super) bundles: Coalescer,
    /// Messages sent so far that only carried credits.
    pub(super) credit_updates: u64,
}

/// One queue pair, and the memory that its messages are sent from.
pub struct Path {
    pub(super) pair: QueuePair,
    /// Whether frames go here.
    pub(super) carries_frames: bool,
    pub(super) sending: Mutex<SendState>,
    /// Bytes that wait or are being moved.
    pub(super) backlog: AtomicUsize,
    /// Whether short stripes wait for others.
    pub(super) is_holding: AtomicBool,
    /// The first byte of this path's part of the buffer for messages.
    pub(super) start: usize,
    peer_depth: usize,
    inline: usize,
}

/// Where the memory for messages of each path begins, and how long it is.
pub fn send_layout(path: usize, peer_depth: usize) -> usize {
    let control = (peer_depth + CREDIT_UPDATE_RECEIVES as usize) * CONTROL;
    match path {
        0 => 0,
        _ => (frames_of(peer_depth as u32) + SLOTS) as usize * FRAME_MESSAGE + path * control,
    }
}

impl Path {
    pub fn new(
        pair: QueuePair,
        index: usize,
        depth: u32,
        peer_depth: u32,
        signal_interval: u32,
        inline: u32,
    ) -> Self {
        let capacity = pair.capacity();
        let sending = SendState {
            queue: SendQueue::new(capacity.sends, signal_interval),
            credits: Credits::new(depth, peer_depth),
            batch: SendBatch::with_capacity(capacity.sends as usize),
            waiting: VecDeque::new(),
            bundles: Coalescer::default(),
            credit_updates: 0,
        };
        Self {
            inline: capacity.inline.min(inline) as usize,
            pair,
            carries_frames: index == 0,
            sending: Mutex::new(sending),
            backlog: AtomicUsize::new(0),
            is_holding: AtomicBool::new(false),
            start: send_layout(index, peer_depth as usize),
            peer_depth: peer_depth as usize,
        }
    }

    pub fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Bytes of transfers that wait or are being moved.
    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Where a message of a class, by its number, lies in the buffer.
    pub(super) fn slot(&self, class: Class, number: u64) -> usize {
        let slot = |of: usize| (number % of as u64) as usize;
        match class {
            Class::Frame => self.start + slot(self.frames()) * FRAME_MESSAGE,
            Class::Control => self.control_start() + slot(self.peer_depth) * CONTROL,
        }
    }

    /// Messages with frames for which the peer has receives.
    pub(super) fn frames(&self) -> usize {
        frames_of(self.peer_depth as u32) as usize
    }

    fn control_start(&self) -> usize {
        self.start + if self.carries_frames { self.bundle_slot(SLOTS) - self.start } else { 0 }
    }

    /// Where stripes are put together that go in one message: places behind those of frames.
    pub(super) fn bundle_slot(&self, number: u32) -> usize {
        self.start + (self.frames() + number as usize) * FRAME_MESSAGE
    }

    fn credit_update_slot(&self, number: u64) -> usize {
        self.control_start()
            + (self.peer_depth + (number % u64::from(CREDIT_UPDATE_RECEIVES)) as usize) * CONTROL
    }

    /// Appends a message to the batch; there must be room, and a credit must have been spent.
    pub(super) fn push_message(
        &self,
        sending: &mut SendState,
        buffer: &Buffer,
        slot: usize,
        kind: Kind,
        content: &[u8],
    ) {
        self.push_with(sending, buffer, slot, kind, content, Message::default());
    }

    /// The same with bytes behind the content that lie elsewhere.
    pub(super) fn push_with(
        &self,
        sending: &mut SendState,
        buffer: &Buffer,
        slot: usize,
        kind: Kind,
        content: &[u8],
        message: Message,
    ) {
        // SAFETY: the place is this path's for as many bytes, and the peer has received the message that lay
        // there before: its credit has come back.
        unsafe {
            let to = buffer.as_ptr().add(slot + HEADER);
            core::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
        self.push_filled(sending, buffer, slot, kind, HEADER + content.len(), message);
    }

    /// The same for `length` bytes that lie in their place, but for the header.
    pub(super) fn push_filled(
        &self,
        sending: &mut SendState,
        buffer: &Buffer,
        slot: usize,
        kind: Kind,
        length: usize,
        message: Message,
    ) {
        let header = Header { kind, returned: sending.credits.take_returned() };
        // SAFETY: the slot is this path's for as many bytes, and the peer has received the message that lay
        // there before: its credit has come back.
        unsafe {
            core::ptr::copy_nonoverlapping(header.to_bytes().as_ptr(), buffer.as_ptr().add(slot), HEADER)
        };
        let entry = sending.queue.post();
        let segment = buffer.region().segment(slot, length);
        sending.batch.push(&SendRequest {
            is_signalled: entry.is_signalled || message.is_signalled,
            is_inline: length <= self.inline && message.tail.length == 0,
            tail: message.tail,
            ..SendRequest::new(entry.id, Request::Send { immediate: None }, segment)
        });
    }

    /// Posts the first message of the path.
    pub fn post_hello(&self, buffer: &Buffer) -> Result<(), Failure> {
        let mut sending = self.sending.lock();
        let slot = self.credit_update_slot(0);
        self.push_message(&mut sending, buffer, slot, Kind::Hello, &[]);
        self.ring(&mut sending)
    }

    /// Queues a stripe.
    pub fn enqueue(&self, stripe: Stripe) {
        self.backlog.fetch_add(stripe.length(), Ordering::Relaxed);
        self.sending.lock().waiting.push_back(stripe);
    }

    /// Appends the request that moves the bytes of a stripe to the batch, if there is one; a write with a
    /// number for the peer's completion, if any.
    pub(super) fn push_work(&self, sending: &mut SendState, stripe: &Stripe, immediate: Option<u32>) {
        let (bytes, operation) = (stripe.segment.length as usize, stripe.operation.clone());
        let moving = Moving { bytes, operation, is_eager: false };
        let request = match stripe.work {
            _ if bytes == 0 => return,
            Work::None => return,
            Work::Read(from) => {
                let id = sending.queue.post_read(moving);
                SendRequest::new(id, Request::Read { from }, stripe.segment)
            }
            Work::Write(to) => {
                let Entry { id, is_signalled } = sending.queue.post();
                // Who waits for the end must not wait for later requests as well.
                let is_signalled = is_signalled || moving.operation.is_some();
                sending.queue.follows(moving);
                let write = Request::Write { to, immediate };
                SendRequest { is_signalled, ..SendRequest::new(id, write, stripe.segment) }
            }
        };
        sending.batch.push(&request);
    }

    pub(super) fn ring(&self, sending: &mut SendState) -> Result<(), Failure> {
        if sending.batch.is_empty() {
            return Ok(());
        }
        // SAFETY: messages lie in the buffer for messages, which outlives the queue pair, at places that are
        // not used again before the peer has received them, or, of short stripes together, before their own
        // completion; writes and reads are made from and into staging, which is not given up before, and
        // registered memory, which its owner keeps until the operation is over. Reads are over with their own
        // completions.
        let posted = unsafe { self.pair.post(&mut sending.batch) };
        posted.map_err(|error: PostError| Failure::Device(error.to_string()))
    }

    /// The completion of a request has come. The operations that had a part in what it
    /// [ends](SendQueue::complete).
    pub fn complete(&self, id: u64) -> Result<Vec<Arc<Operation>>, Failure> {
        let mut bytes = 0;
        let mut operations = Vec::new();
        let SendState { queue, bundles, .. } = &mut *self.sending.lock();
        queue.complete(id, |moved| {
            bytes += moved.bytes;
            if moved.is_eager {
                bundles.done();
            }
            operations.extend(moved.operation);
        })?;
        self.backlog.fetch_sub(bytes, Ordering::Relaxed);
        Ok(operations)
    }

    /// The operations that have a part in anything that waits or is under way, when nothing of it will be
    /// done any more.
    pub fn abandon(&self) -> Vec<Arc<Operation>> {
        let mut sending = self.sending.lock();
        let waiting = core::mem::take(&mut sending.waiting).into_iter().filter_map(|stripe| stripe.operation);
        let mut operations: Vec<_> = waiting.collect();
        operations.extend(sending.queue.in_flight().filter_map(|moving| moving.operation.take()));
        operations
    }

    /// Takes in what a message of the peer returns.
    pub fn accept(&self, header: &Header) -> Result<(), Failure> {
        Ok(self.sending.lock().credits.accept(header.returned)?)
    }

    /// Receives in which there were `count` messages of a class have been posted again. Whether it is time to
    /// say so.
    pub fn posted_again(&self, class: Class, count: usize) -> bool {
        let mut sending = self.sending.lock();
        (0..count).for_each(|_| sending.credits.posted_again(class));
        sending.credits.is_credit_update_due()
    }

    /// A message that only carried credits came, and its receive has been posted again.
    pub fn credit_update_received(&self) {
        self.sending.lock().credits.credit_update_received();
    }

    /// Asks for a completion behind every message and write that has been posted; what it is called, or
    /// nothing where there is no room.
    pub fn post_marker(&self, to: RemoteMemory) -> Result<Option<u64>, Failure> {
        let mut sending = self.sending.lock();
        if sending.queue.free_slots() == 0 {
            return Ok(None);
        }
        let entry = sending.queue.post();
        let operation = Request::Write { to, immediate: None };
        sending.batch.push(&SendRequest::new(entry.id, operation, Segment::EMPTY));
        self.ring(&mut sending)?;
        Ok(Some(entry.id))
    }

    /// The latest request that has completed: messages and writes up to it are done.
    pub fn completed(&self) -> u64 {
        self.sending.lock().queue.completed()
    }
}

impl Path {
    /// Posts what waits, as far as there are credits and room, with one doorbell: credits that are due, what
    /// is released (which is taken out of `returns`), stripes. Short ones may wait for each other if
    /// somebody `attends`, who will see that they can go.
    pub fn pump(
        &self,
        buffer: &Buffer,
        returns: Option<&Mutex<Vec<Released>>>,
        attends: bool,
    ) -> Result<(), Failure> {
        let mut sending = self.sending.lock();
        if let Some(returns) = returns {
            let mut returns = returns.lock();
            while !returns.is_empty() && sending.queue.free_slots() > 0 {
                let Some(number) = sending.credits.spend(Class::Control) else { break };
                let mut content = [0; CONTROL - HEADER];
                let length = take_returns(&mut returns, &mut content);
                let slot = self.slot(Class::Control, number);
                self.push_message(&mut sending, buffer, slot, Kind::Returns, &content[..length]);
            }
        }
        self.is_holding.store(false, Ordering::Relaxed);
        while let Some(stripe) = sending.waiting.front()
            && sending.queue.free_slots() >= 2 + self.reserved_for_frames()
        {
            if self.carries(stripe) {
                if self.push_eager(&mut sending, buffer, attends) {
                    continue;
                }
                break;
            }
            let slot = match stripe.notice {
                None => None,
                Some(_) => match sending.credits.spend(Class::Control) {
                    Some(number) => Some(self.slot(Class::Control, number)),
                    None => break,
                },
            };
            let Some(stripe) = sending.waiting.pop_front() else { break };
            self.push_work(&mut sending, &stripe, None);
            match stripe.notice.zip(slot) {
                None => {}
                Some((Notice::Announcement(announcement), slot)) => {
                    let content = announcement.to_bytes();
                    self.push_message(&mut sending, buffer, slot, Kind::Announcement, &content);
                }
                Some((Notice::Placed(announcement), slot)) => {
                    self.push_message(&mut sending, buffer, slot, Kind::Placed, &announcement.to_bytes());
                }
                Some((Notice::Offer(offer), slot)) => {
                    self.push_message(&mut sending, buffer, slot, Kind::Offer, &offer.to_bytes());
                }
            }
        }
        if sending.credits.is_credit_update_due() && sending.queue.free_slots() > 0 {
            sending.credits.send_credit_update();
            let slot = self.credit_update_slot(sending.credit_updates);
            sending.credit_updates += 1;
            self.push_message(&mut sending, buffer, slot, Kind::Credits, &[]);
        }
        self.ring(&mut sending)
    }

    /// Entries that transfers leave to frames, so that a command does not wait for a long copy.
    fn reserved_for_frames(&self) -> u32 {
        if self.carries_frames { self.pair.capacity().sends / 4 } else { 0 }
    }
}
