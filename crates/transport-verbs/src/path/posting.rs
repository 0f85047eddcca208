//! How does a request get into one queue pair, and what ends it?

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use causeway_ibverbs::{
    Buffer, Operation as Request, PostError, QueuePair, RemoteMemory, Segment, SendBatch, SendRequest,
};
use parking_lot::Mutex;

use super::part::{Part, Work};
use crate::coalesce::{Coalescer, PLACES};
use crate::credit::{Class, Credits, EXTRA_RECEIVES, frames_of};
use crate::failure::Failure;
use crate::message::{CONTROL, FRAME_MESSAGE, HEADER, Header, Kind};
use crate::operation::Operation;
use crate::queue::{Entry, SendQueue};

/// Bytes that are being moved.
pub(super) struct Moving {
    pub(super) bytes: usize,
    pub(super) operation: Option<Arc<Operation>>,
    /// Whether they go with their announcements.
    pub(super) is_carried: bool,
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
pub(super) struct Book {
    pub(super) queue: SendQueue<Moving>,
    pub(super) credits: Credits,
    pub(super) batch: SendBatch,
    /// Parts that wait for room.
    pub(super) waiting: VecDeque<Part>,
    pub(super) bundles: Coalescer,
    /// Messages sent so far that only carried credits.
    pub(super) extras: u64,
}

/// One queue pair, and the memory that its messages are sent from.
pub struct Path {
    pub(super) pair: QueuePair,
    /// Whether frames go here.
    pub(super) carries_frames: bool,
    pub(super) book: Mutex<Book>,
    /// Bytes that wait or are being moved.
    pub(super) backlog: AtomicUsize,
    /// Whether short parts wait for others.
    pub(super) is_holding: AtomicBool,
    /// The first byte of this path's part of the buffer for messages.
    pub(super) start: usize,
    peer_depth: usize,
    inline: usize,
}

/// Where the memory for messages of each path begins, and how long it is.
pub fn send_layout(path: usize, peer_depth: usize) -> usize {
    let control = (peer_depth + EXTRA_RECEIVES as usize) * CONTROL;
    match path {
        0 => 0,
        _ => (frames_of(peer_depth as u32) + PLACES) as usize * FRAME_MESSAGE + path * control,
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
        let book = Book {
            queue: SendQueue::new(capacity.sends, signal_interval),
            credits: Credits::new(depth, peer_depth),
            batch: SendBatch::with_capacity(capacity.sends as usize),
            waiting: VecDeque::new(),
            bundles: Coalescer::default(),
            extras: 0,
        };
        Self {
            inline: capacity.inline.min(inline) as usize,
            pair,
            carries_frames: index == 0,
            book: Mutex::new(book),
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
    pub(super) fn place(&self, class: Class, number: u64) -> usize {
        let place = |of: usize| (number % of as u64) as usize;
        match class {
            Class::Frame => self.start + place(self.frames()) * FRAME_MESSAGE,
            Class::Control => self.control_start() + place(self.peer_depth) * CONTROL,
        }
    }

    /// Messages with frames for which the peer has receives.
    pub(super) fn frames(&self) -> usize {
        frames_of(self.peer_depth as u32) as usize
    }

    fn control_start(&self) -> usize {
        self.start + if self.carries_frames { self.bundle_place(PLACES) - self.start } else { 0 }
    }

    /// Where parts are put together that go in one message: places behind those of frames.
    pub(super) fn bundle_place(&self, number: u32) -> usize {
        self.start + (self.frames() + number as usize) * FRAME_MESSAGE
    }

    pub(super) fn extra_place(&self, number: u64) -> usize {
        self.control_start() + (self.peer_depth + (number % u64::from(EXTRA_RECEIVES)) as usize) * CONTROL
    }

    /// Appends a message to the batch; there must be room, and a credit must have been spent.
    pub(super) fn push_message(
        &self,
        book: &mut Book,
        buffer: &Buffer,
        place: usize,
        kind: Kind,
        content: &[u8],
    ) {
        self.push_with(book, buffer, place, kind, content, Message::default());
    }

    /// The same with bytes behind the content that lie elsewhere.
    pub(super) fn push_with(
        &self,
        book: &mut Book,
        buffer: &Buffer,
        place: usize,
        kind: Kind,
        content: &[u8],
        message: Message,
    ) {
        // SAFETY: the place is this path's for as many bytes, and the peer has received the message that lay
        // there before: its credit has come back.
        unsafe {
            let to = buffer.as_ptr().add(place + HEADER);
            core::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
        }
        self.push_filled(book, buffer, place, kind, HEADER + content.len(), message);
    }

    /// The same for `length` bytes that lie in their place, but for the header.
    pub(super) fn push_filled(
        &self,
        book: &mut Book,
        buffer: &Buffer,
        place: usize,
        kind: Kind,
        length: usize,
        message: Message,
    ) {
        let header = Header { kind, returned: book.credits.take_returned() };
        // SAFETY: as for the bytes behind it.
        unsafe {
            core::ptr::copy_nonoverlapping(header.to_bytes().as_ptr(), buffer.as_ptr().add(place), HEADER)
        };
        let entry = book.queue.post();
        let segment = buffer.region().segment(place, length);
        book.batch.push(&SendRequest {
            is_signalled: entry.is_signalled || message.is_signalled,
            is_inline: length <= self.inline && message.tail.length == 0,
            tail: message.tail,
            ..SendRequest::new(entry.id, Request::Send { immediate: None }, segment)
        });
    }

    /// Posts the first message of the path.
    pub fn post_hello(&self, buffer: &Buffer) -> Result<(), Failure> {
        let mut book = self.book.lock();
        let place = self.extra_place(0);
        self.push_message(&mut book, buffer, place, Kind::Hello, &[]);
        self.ring(&mut book)
    }

    /// Puts parts in line.
    pub fn enqueue(&self, part: Part) {
        self.backlog.fetch_add(part.length(), Ordering::Relaxed);
        self.book.lock().waiting.push_back(part);
    }

    /// Appends the request that moves the bytes of a part to the batch, if there is one; a write with a
    /// number for the peer's completion, if any.
    pub(super) fn push_work(&self, book: &mut Book, part: &Part, immediate: Option<u32>) {
        let (bytes, operation) = (part.segment.length as usize, part.operation.clone());
        let moving = Moving { bytes, operation, is_carried: false };
        let request = match part.work {
            _ if bytes == 0 => return,
            Work::None => return,
            Work::Read(from) => {
                let id = book.queue.post_read(moving);
                SendRequest::new(id, Request::Read { from }, part.segment)
            }
            Work::Write(to) => {
                let Entry { id, is_signalled } = book.queue.post();
                // Who waits for the end must not wait for later requests as well.
                let is_signalled = is_signalled || moving.operation.is_some();
                book.queue.follows(moving);
                let write = Request::Write { to, immediate };
                SendRequest { is_signalled, ..SendRequest::new(id, write, part.segment) }
            }
        };
        book.batch.push(&request);
    }

    pub(super) fn ring(&self, book: &mut Book) -> Result<(), Failure> {
        if book.batch.is_empty() {
            return Ok(());
        }
        // SAFETY: messages lie in the buffer for messages, which outlives the queue pair, at places that are
        // not used again before the peer has received them, or, of short parts together, before their own
        // completion; writes and reads are made from and into staging, which is not given up before, and
        // registered memory, which its owner keeps until the operation is over. Reads are over with their own
        // completions.
        let posted = unsafe { self.pair.post(&mut book.batch) };
        posted.map_err(|error: PostError| Failure::Device(error.to_string()))
    }

    /// The completion of a request has come. The operations that had a part in what it
    /// [ends](SendQueue::complete).
    pub fn complete(&self, id: u64) -> Result<Vec<Arc<Operation>>, Failure> {
        let mut bytes = 0;
        let mut operations = Vec::new();
        let Book { queue, bundles, .. } = &mut *self.book.lock();
        queue.complete(id, |moved| {
            bytes += moved.bytes;
            if moved.is_carried {
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
        let mut book = self.book.lock();
        let waiting = core::mem::take(&mut book.waiting).into_iter().filter_map(|part| part.operation);
        let mut operations: Vec<_> = waiting.collect();
        operations.extend(book.queue.under_way().filter_map(|moving| moving.operation.take()));
        operations
    }

    /// Takes in what a message of the peer returns.
    pub fn accept(&self, header: &Header) -> Result<(), Failure> {
        Ok(self.book.lock().credits.accept(header.returned)?)
    }

    /// Receives in which there were `count` messages of a class have been posted again. Whether it is time to
    /// say so.
    pub fn posted_again(&self, class: Class, count: usize) -> bool {
        let mut book = self.book.lock();
        (0..count).for_each(|_| book.credits.posted_again(class));
        book.credits.is_extra_due()
    }

    /// A message that only carried credits came, and its receive has been posted again.
    pub fn extra_came(&self) {
        self.book.lock().credits.extra_came();
    }

    /// Asks for a completion behind every message and write that has been posted; what it is called, or
    /// nothing where there is no room.
    pub fn post_marker(&self, to: RemoteMemory) -> Result<Option<u64>, Failure> {
        let mut book = self.book.lock();
        if book.queue.room() == 0 {
            return Ok(None);
        }
        let entry = book.queue.post();
        let operation = Request::Write { to, immediate: None };
        book.batch.push(&SendRequest::new(entry.id, operation, Segment::EMPTY));
        self.ring(&mut book)?;
        Ok(Some(entry.id))
    }

    /// The latest request that has completed: messages and writes up to it are done.
    pub fn completed(&self) -> u64 {
        self.book.lock().queue.completed()
    }
}
