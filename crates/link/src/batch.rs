//! Message batching and flush policy.
//!
//! Messages are encoded straight into the current batch, under a short lock. Whoever lets a batch leave
//! takes the writer's lock first, swaps the batch for the writer's empty buffer, and writes without holding
//! the batch's lock; so others go on appending meanwhile, batches leave in order, and in the steady state
//! nothing is allocated. One batch is one frame and over TCP, unless it is encrypted, one system call.
//!
//! The flusher is a thread for batches that no call waits for. While messages keep coming it looks every
//! [`MAX_AGE`]; when none came for a few looks it parks, and the next append into an empty batch wakes it.
//! So an idle link costs nothing, and a busy one no system call per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use causeway_sync::fork::in_background;
use causeway_sync::{Parker, spin, threads};
use causeway_transport::{LinkError, SendMessages, Shared, count};
use causeway_wire::compressed::{WORTH_COMPRESSING, compress};
use causeway_wire::frame::{FrameHeader, FrameKind, HEADER_SIZE, MAX_MESSAGE};
use causeway_wire::sequence::Sequencer;

use crate::locks::{Mutex, MutexGuard, rank};

/// A batch of this many bytes leaves at once.
const FULL: usize = 64 << 10;

/// How long a posted message may wait for company.
const MAX_AGE: Duration = Duration::from_micros(30);

/// Looks in vain after which the flusher parks: on many cores only after some milliseconds, since the call
/// that wakes it pays for that.
fn idle_looks() -> u32 {
    if spin::between_work().is_zero() { 8 } else { 256 }
}

/// How long a sender waits before it looks again whether it may.
const HOLD_PAUSE: Duration = Duration::from_millis(1);

/// How long whoever says goodbye waits for others who send.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A buffer that grew beyond this for one large message is released.
const KEEP: usize = 1 << 20;

/// The sending half of a link.
pub(crate) struct Sending {
    shared: Arc<Shared>,
    numbers: Arc<Mutex<rank::Leaf, Sequencer>>,
    /// The frame being filled; its first [`HEADER_SIZE`] bytes are the header's place.
    batch: Mutex<rank::Batch, Vec<u8>>,
    writer: Mutex<rank::Writer, Writer>,
    /// Sleeps until what was sent before is with the peer, where that is kept.
    wait_for_capacity: Option<Box<dyn Fn() + Send + Sync>>,
    /// Whether the batch holds a message; changed under the batch's lock.
    waiting: AtomicBool,
    /// Where the flusher parks while nothing is posted.
    flusher: Parker,
    /// How many frames had been sent when it was last looked whether a keepalive is due.
    sent_before: AtomicU64,
}

struct Writer {
    outgoing: Box<dyn SendMessages>,
    /// Swapped with the batch; between frames it is an empty frame.
    spare: Vec<u8>,
    /// The frame as it travels where it is compressed.
    packed: Vec<u8>,
    /// Whether nothing is sent for now.
    is_held: bool,
}

impl Writer {
    /// Sends the frame in `spare`, which `header` is to precede.
    fn send(&mut self, header: FrameHeader) -> Result<(), LinkError> {
        let Self { outgoing, spare, packed, .. } = self;
        let messages = &spare[HEADER_SIZE..];
        packed.resize(HEADER_SIZE, 0);
        if messages.len() >= WORTH_COMPRESSING && outgoing.is_remote() && compress(messages, packed) {
            let length = (packed.len() - HEADER_SIZE) as u32;
            let header = FrameHeader { kind: FrameKind::CompressedMessages, length, ..header };
            packed[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
            outgoing.send(packed)
        } else {
            spare[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
            outgoing.send(spare)
        }
    }

    /// Makes room for the next frame.
    fn clear(&mut self) {
        self.spare.truncate(HEADER_SIZE);
        if self.spare.capacity() > KEEP {
            self.spare = empty_frame();
        }
        self.packed.truncate(HEADER_SIZE);
        self.packed.shrink_to(KEEP);
    }
}

fn empty_frame() -> Vec<u8> {
    let mut frame = Vec::with_capacity(FULL + (FULL >> 1));
    frame.resize(HEADER_SIZE, 0);
    frame
}

impl Sending {
    pub(crate) fn new(
        shared: Arc<Shared>,
        numbers: Arc<Mutex<rank::Leaf, Sequencer>>,
        outgoing: Box<dyn SendMessages>,
        wait_for_capacity: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Self {
        Self {
            shared,
            numbers,
            batch: Mutex::new(empty_frame()),
            writer: Mutex::new(Writer { outgoing, spare: empty_frame(), packed: Vec::new(), is_held: false }),
            wait_for_capacity,
            waiting: AtomicBool::new(false),
            flusher: Parker::new(),
            sent_before: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn wake_flusher(&self) {
        self.flusher.wake();
    }

    #[inline]
    pub(crate) fn append<R>(
        &self,
        encode: impl FnOnce(&mut Vec<u8>) -> R,
        leave_now: bool,
    ) -> Result<R, LinkError> {
        self.shared.check()?;
        let mut batch = self.batch.lock();
        while batch.len() >= FULL {
            // The batch is full and its writer blocked: wait with it, so that no more memory is filled.
            drop(batch);
            self.flush()?;
            batch = self.batch.lock();
        }
        let start = batch.len();
        let result = encode(&mut batch);
        let end = batch.len();
        if end - start > MAX_MESSAGE {
            batch.truncate(start);
            return Err(LinkError::MessageTooLong { length: end - start, limit: MAX_MESSAGE });
        }
        let first = start == HEADER_SIZE && end > start;
        if first {
            self.waiting.store(true, Ordering::Release);
        }
        drop(batch);
        if leave_now || end >= FULL {
            self.flush()?;
        } else if first {
            self.wake_flusher();
        }
        Ok(result)
    }

    pub(crate) fn flush(&self) -> Result<(), LinkError> {
        if let Some(wait_for_capacity) = &self.wait_for_capacity {
            wait_for_capacity();
        }
        let writer = self.writer.lock();
        if writer.is_held {
            drop(writer);
            // A sender with a full batch comes here again and again.
            std::thread::sleep(HOLD_PAUSE);
            return self.shared.check();
        }
        self.write_batch(writer)
    }

    fn write_batch(&self, mut writer: MutexGuard<'_, rank::Writer, Writer>) -> Result<(), LinkError> {
        {
            let mut batch = self.batch.lock();
            if batch.len() == HEADER_SIZE {
                // Somebody else has sent it, and if that failed the link has ended.
                drop(batch);
                return self.shared.check();
            }
            core::mem::swap(&mut *batch, &mut writer.spare);
            self.waiting.store(false, Ordering::Release);
        }
        let length = writer.spare.len() - HEADER_SIZE;
        let header = self.numbers.lock().number(length as u32);
        let sent = writer.send(header);
        writer.clear();
        drop(writer);
        match sent {
            Ok(()) => {
                let counters = self.shared.counters();
                count(&counters.frames_sent, 1);
                count(&counters.message_bytes_sent, length);
                Ok(())
            }
            Err(error) => Err(self.shared.lose(error)),
        }
    }

    /// Sends a frame without messages, unless others have been sent since this was last called. What is under way
    /// says as much: nobody is waited for, neither another writer nor the peer.
    pub(crate) fn send_keepalive(&self) {
        let sent = self.shared.counters().frames_sent.load(Ordering::Relaxed);
        if self.sent_before.swap(sent, Ordering::Relaxed) == sent {
            self.send_acknowledgement();
        }
    }

    /// Tells the peer how far its frames have been dealt with, unless somebody would have to be waited for: another
    /// writer, or the peer. Whether it was notified.
    pub(crate) fn send_acknowledgement(&self) -> bool {
        self.writer.try_lock().is_some_and(|writer| self.send_empty(writer, FrameKind::Messages))
    }

    /// Tells the peer that this end closes the link, if that is possible soon; whether it was sent.
    pub(crate) fn send_goodbye(&self) -> bool {
        let writer = self.writer.try_lock_for(GOODBYE_TIMEOUT);
        writer.is_some_and(|writer| self.send_empty(writer, FrameKind::Goodbye))
    }

    /// Lets everything appended so far leave, and nothing more until [`release`](Self::release).
    pub(crate) fn hold(&self) -> Result<(), LinkError> {
        loop {
            self.flush()?;
            let mut writer = self.writer.lock();
            if self.batch.lock().len() == HEADER_SIZE {
                writer.is_held = true;
                return Ok(());
            }
        }
    }

    /// Lets everything appended so far leave, and more only after a release, if `is_last`.
    pub(crate) fn release(&self, is_last: bool) -> Result<(), LinkError> {
        let mut writer = self.writer.lock();
        writer.is_held = is_last;
        // Under the same lock: nothing else may get the number of this frame.
        self.write_batch(writer)
    }

    /// What stands in front of the next frame, of so many bytes, and the numbers as they are before that.
    pub(crate) fn next_header(&self, length: u32) -> (FrameHeader, Sequencer) {
        let numbers = self.numbers.lock().clone();
        (numbers.clone().number(length), numbers)
    }

    /// Sends a frame without messages, unless the peer would have to be waited for. Whether it was sent.
    fn send_empty(&self, mut writer: MutexGuard<'_, rank::Writer, Writer>, kind: FrameKind) -> bool {
        if self.shared.is_over() || writer.is_held || !writer.outgoing.has_capacity() {
            return false;
        }
        let header = FrameHeader { kind, ..self.numbers.lock().number(0) };
        if let Err(error) = writer.send(header) {
            drop(writer);
            self.shared.lose(error);
            return false;
        }
        true
    }

    pub(crate) fn start_flusher(self: &Arc<Self>) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        threads::spawn("flush", move || {
            // The kernel may otherwise let a short sleep last 50 us longer.
            // SAFETY: the call takes a number and changes this thread only.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
            let (mut looks_in_vain, idle_looks) = (0, idle_looks());
            while let Some(sending) = weak.upgrade() {
                if sending.shared.check().is_err() {
                    return;
                }
                if sending.waiting.load(Ordering::Acquire) {
                    looks_in_vain = 0;
                    let _work = in_background();
                    // A failure ends the link, which the next round sees.
                    let _ = sending.flush();
                } else if looks_in_vain < idle_looks {
                    looks_in_vain += 1;
                } else {
                    looks_in_vain = 0;
                    let is_ready =
                        || sending.waiting.load(Ordering::Acquire) || sending.shared.check().is_err();
                    sending.flusher.park_unless(is_ready);
                }
                drop(sending);
                std::thread::sleep(MAX_AGE);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::compressed::decompress;
    use causeway_wire::frame::{FrameReader, MAX_BODY};
    use causeway_wire::sequence::Sequencer;

    /// Keeps what is sent.
    struct Kept {
        bytes: Arc<Mutex<rank::Leaf, Vec<u8>>>,
        is_remote: bool,
    }

    impl SendMessages for Kept {
        fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
            self.bytes.lock().extend_from_slice(bytes);
            Ok(())
        }

        fn is_remote(&mut self) -> bool {
            self.is_remote
        }
    }

    /// Sends bodies of this length; the kinds of the frames and their bodies as they travel.
    fn sent(is_remote: bool, lengths: &[usize]) -> Vec<(FrameKind, Vec<u8>)> {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let outgoing = Box::new(Kept { bytes: Arc::clone(&bytes), is_remote });
        let mut writer = Writer { outgoing, spare: empty_frame(), packed: Vec::new(), is_held: false };
        let mut numbers = Sequencer::new();
        for length in lengths {
            writer.spare.extend((0..*length).map(|i| (i % 90) as u8));
            writer.send(numbers.number(*length as u32)).unwrap();
            writer.clear();
        }
        let (bytes, mut reader, mut receiver) = (bytes.lock(), FrameReader::new(MAX_BODY), Sequencer::new());
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let count = rest.len().min(reader.space().len());
            reader.space()[..count].copy_from_slice(&rest[..count]);
            reader.filled(count);
            rest = &rest[count..];
            while let Some(frame) = reader.next_frame().unwrap() {
                receiver.accept(&frame.header).unwrap();
                frames.push((frame.header.kind, reader.body(&frame).to_vec()));
            }
        }
        frames
    }

    #[test]
    fn long_frames_to_a_peer_far_away_are_compressed() {
        let frames = sent(true, &[100, 60_000, WORTH_COMPRESSING]);
        let kinds: Vec<_> = frames.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(
            kinds,
            [FrameKind::Messages, FrameKind::CompressedMessages, FrameKind::CompressedMessages]
        );
        let (_, body) = &frames[1];
        assert!(body.len() < 6_000, "{}", body.len());
        let mut messages = Vec::new();
        decompress(body, &mut messages).unwrap();
        assert!(
            messages.len() == 60_000 && messages.iter().enumerate().all(|(i, byte)| *byte == (i % 90) as u8)
        );
    }

    #[test]
    fn frames_to_a_peer_near_by_are_left_as_they_are() {
        assert!(sent(false, &[100, 60_000]).iter().all(|(kind, _)| *kind == FrameKind::Messages));
    }
}
