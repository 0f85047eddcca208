//! Receiver of a link's frames, and detection of disconnects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::spin::{self, BusyPoll};
use causeway_transport::{Carrier, LinkError, ReceiveMessages, Shared, count};
use causeway_wire::compressed::decompress;
use causeway_wire::frame::{Frame, FrameKind, FrameReader, MAX_BODY};
use causeway_wire::sequence::Sequencer;

use crate::locks::{Mutex, rank};

/// Fruitless spins in a row after which spinning is tried only now and then.
const SPINS_IN_VAIN: u32 = 8;

/// How often it is then tried: once in so many calls.
const TRY_AGAIN_EVERY: u32 = 32;

/// A peer that keeps its frames until they have been dealt with is told so after so many bytes at the latest.
const ACKNOWLEDGE_EVERY: usize = 1 << 20;

/// What a receiving thread does while nothing comes, and for how long it spins.
pub trait IdleHook {
    /// Whether somebody waits for what is to come. If so, it is worth spinning for; otherwise only as
    /// far as it has paid lately.
    fn is_waited_for(&self) -> bool;
    /// Polls once for what else this thread has to see to.
    fn poll(&mut self) {}
    /// The thread turns to what has come, and comes back afterwards.
    fn leave(&mut self) {}
    /// Runs `sleep`, in which the thread sleeps. What it does in there, it does in between two sleeps: it
    /// takes in transfers, and what that sets off.
    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        sleep()
    }
}

/// The receiving end of a link, for one thread.
pub struct Receiver {
    shared: Arc<Shared>,
    numbers: Arc<Mutex<rank::Leaf, Sequencer>>,
    /// The link lasts at least as long as somebody receives, and ends with that.
    _carrier: Arc<dyn Carrier>,
    incoming: Box<dyn ReceiveMessages>,
    frames: FrameReader,
    /// The messages of a frame that came compressed.
    unpacked: Vec<u8>,
    /// The frame that was handed out last, until it is marked as dealt with.
    at_hand: Option<Frame>,
    spins_in_vain: u32,
    /// Whether the peer keeps its frames.
    is_resumable: bool,
    /// Bytes of frames that have been dealt with since the peer was last told.
    unacknowledged: usize,
}

impl core::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// Interval at which the peer's goodbye is looked for.
const GOODBYE_INTERVAL: Duration = Duration::from_micros(50);

impl Receiver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        numbers: Arc<Mutex<rank::Leaf, Sequencer>>,
        carrier: Arc<dyn Carrier>,
        incoming: Box<dyn ReceiveMessages>,
        is_resumable: bool,
    ) -> Self {
        Self {
            shared,
            numbers,
            _carrier: carrier,
            incoming,
            frames: FrameReader::new(MAX_BODY),
            unpacked: Vec::new(),
            at_hand: None,
            spins_in_vain: 0,
            is_resumable,
            unacknowledged: 0,
        }
    }

    /// Waits for the next frame and returns its body. The frame before counts as dealt with from here on.
    /// After an error the link has ended.
    pub fn recv(&mut self) -> Result<&[u8], LinkError> {
        let mut next = self.begin();
        while let Ok(false) = next {
            next = self.receive_asleep().and_then(|()| self.take_frame());
        }
        self.or_lose(next)?;
        Ok(self.at_hand())
    }

    /// Like [`recv`](Self::recv), but polls for [a while](spin) without sleeping first, and does something
    /// else between two polls. Where that has not helped lately it is mostly left out, unless somebody waits.
    pub fn recv_with_hook<M: IdleHook>(&mut self, hook: &mut M) -> Result<&[u8], LinkError> {
        self.recv_or_yield(hook, || false)?;
        Ok(self.at_hand())
    }

    /// The same, but it returns nothing when `yields` says, while this thread spins, that somebody else
    /// is to receive.
    pub fn recv_or_yield<M: IdleHook>(
        &mut self,
        hook: &mut M,
        yields: impl Fn() -> bool,
    ) -> Result<Option<&[u8]>, LinkError> {
        let mut next = self.begin();
        while let Ok(false) = next {
            next = match self.receive_polling(hook, &yields) {
                Ok(PollResult::Found) => self.take_polled_frame(),
                Ok(PollResult::PollBackoff) => {
                    hook.asleep(|| self.receive_asleep()).and_then(|()| self.take_frame())
                }
                Ok(PollResult::Yield) => break,
                Err(error) => Err(error),
            }
        }
        hook.leave();
        Ok(self.or_lose(next)?.then(|| self.at_hand()))
    }

    /// Polls once: the body of the next frame, if it has come. The frame before counts as dealt with then.
    pub fn poll(&mut self) -> Result<Option<&[u8]>, LinkError> {
        let mut next = self.begin();
        if let Ok(false) = next {
            next = match self.receive_now() {
                Ok(true) => self.take_polled_frame(),
                nothing => nothing,
            };
        }
        Ok(self.or_lose(next)?.then(|| self.at_hand()))
    }

    /// The body of the frame that was handed out last; nothing when it counts as dealt with.
    pub fn at_hand(&self) -> &[u8] {
        match &self.at_hand {
            Some(frame) if frame.header.kind == FrameKind::CompressedMessages => &self.unpacked,
            Some(frame) => self.frames.body(frame),
            None => &[],
        }
    }

    /// The frame before is dealt with. Whether there is a next one among the bytes that have come.
    fn begin(&mut self) -> Result<bool, LinkError> {
        if let Some(frame) = self.at_hand.take() {
            self.numbers.lock().processed_all();
            if self.is_resumable {
                self.acknowledge(frame.header.length as usize);
            }
        }
        self.take_frame()
    }

    /// The frame at hand has been dealt with, and no other one is at hand.
    pub(crate) fn finish_frame(&mut self) {
        if self.at_hand.take().is_some() {
            self.numbers.lock().processed_all();
        }
    }

    /// Bytes of the frames that have been taken so far.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.incoming.received_bytes() - self.frames.pending() as u64
    }

    /// Waits for the peer's return on another connection, after [`Link::hold`](crate::Link::hold), while nothing is
    /// received. How many bytes of frames the peer had received by then.
    ///
    /// # Errors
    /// When the link has ended, since the peer has not come back.
    pub fn await_return(&mut self) -> Result<u64, LinkError> {
        let returned = self.incoming.await_return(&self.shared);
        returned.map_err(|error| self.shared.lose(error))
    }

    /// Receives nothing more but the goodbye of a peer that ends the session: what it says before that is thrown away, and
    /// it is answered. Returns when the link has ended, or `timeout` is over, which ends it.
    pub fn await_goodbye(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let (over, is_over) = crossbeam_channel::bounded::<()>(0);
        let shared = Arc::clone(&self.shared);
        // If the connection is lost just now, the receiver waits for another one.
        let watch = causeway_sync::threads::spawn("goodbye", move || {
            if is_over.recv_timeout(timeout) == Err(crossbeam_channel::RecvTimeoutError::Timeout) {
                shared.close();
            }
        });
        while Instant::now() < deadline && watch.is_ok() && self.poll().is_ok() {
            // It follows at once what the peer has said last.
            std::thread::sleep(GOODBYE_INTERVAL);
        }
        drop(over);
    }

    /// So many bytes more have been dealt with.
    fn acknowledge(&mut self, bytes: usize) {
        self.unacknowledged += bytes;
        if self.unacknowledged >= ACKNOWLEDGE_EVERY && self.shared.send_acknowledgement() {
            self.unacknowledged = 0;
        }
    }

    /// Takes the next frame of the bytes that have come; whether there is one. Those without messages show that
    /// the peer is there.
    fn take_frame(&mut self) -> Result<bool, LinkError> {
        let frame = loop {
            let Some(frame) = self.frames.next_frame()? else { return Ok(false) };
            let mut numbers = self.numbers.lock();
            numbers.accept(&frame.header)?;
            self.incoming.acknowledged(frame.header.acknowledgement);
            if frame.header.kind == FrameKind::Goodbye {
                drop(numbers);
                if !self.shared.is_closing() {
                    // It waits for that, and so knows that this end has heard of it.
                    self.shared.send_goodbye();
                }
                return Err(LinkError::PeerDisconnected);
            }
            if frame.header.length > 0 {
                break frame;
            }
            numbers.processed_all();
            self.shared.note_keepalive();
        };
        count(&self.shared.counters().frames_received, 1);
        count(&self.shared.counters().message_bytes_received, frame.header.length as usize);
        if frame.header.kind == FrameKind::CompressedMessages {
            decompress(self.frames.body(&frame), &mut self.unpacked)?;
        }
        self.at_hand = Some(frame);
        Ok(true)
    }

    /// The same of bytes for which this thread has polled. A keepalive is not what it polls for.
    fn take_polled_frame(&mut self) -> Result<bool, LinkError> {
        let taken = self.take_frame()?;
        if taken {
            self.spins_in_vain = 0;
        }
        Ok(taken)
    }

    /// An error ends the link.
    fn or_lose(&self, next: Result<bool, LinkError>) -> Result<bool, LinkError> {
        next.map_err(|error| self.shared.lose(error))
    }

    /// Sleeps until bytes have come.
    fn receive_asleep(&mut self) -> Result<(), LinkError> {
        let count = self.incoming.receive(&self.shared, self.frames.space(), true)?;
        self.frames.filled(count);
        Ok(())
    }

    /// Takes in the bytes that have come; whether there were any.
    fn receive_now(&mut self) -> Result<bool, LinkError> {
        let count = self.incoming.receive(&self.shared, self.frames.space(), false)?;
        self.frames.filled(count);
        Ok(count > 0)
    }

    /// Polls for bytes and does something else in between.
    fn receive_polling(
        &mut self,
        hook: &mut impl IdleHook,
        yields: impl Fn() -> bool,
    ) -> Result<PollResult, LinkError> {
        if yields() {
            return Ok(PollResult::Yield);
        }
        let (short, long) = (spin::between_commands(), spin::while_waited_for());
        let often_in_vain =
            self.spins_in_vain > SPINS_IN_VAIN && !self.spins_in_vain.is_multiple_of(TRY_AGAIN_EVERY);
        if long.is_zero() || often_in_vain && !hook.is_waited_for() {
            self.spins_in_vain = self.spins_in_vain.wrapping_add(1);
            return Ok(PollResult::PollBackoff);
        }
        let mut polling = BusyPoll::new();
        loop {
            if self.receive_now()? {
                return Ok(PollResult::Found);
            }
            if yields() {
                return Ok(PollResult::Yield);
            }
            hook.poll();
            let waited = polling.pause();
            if waited >= short && (waited >= long || !hook.is_waited_for()) {
                break;
            }
        }
        self.spins_in_vain = self.spins_in_vain.wrapping_add(1);
        Ok(PollResult::PollBackoff)
    }
}

/// What came of polling for bytes.
enum PollResult {
    /// Some have come.
    Found,
    /// None have.
    PollBackoff,
    /// Somebody else is to poll.
    Yield,
}

impl Drop for Receiver {
    /// A link that nobody receives from any more has ended.
    fn drop(&mut self) {
        self.shared.lose(LinkError::Closed);
    }
}
