//! Frames of a link over shared memory.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use causeway_sync::wake_flag::{self, BUSY, POLLING};

use super::layout::{Direction, Word};
use super::ring::{ByteConsumer, ByteProducer, spin_time};
use super::segment::Segment;
use super::state::State;
use causeway_transport::{LinkError, Shared};
use causeway_transport::{ReceiveMessages, SendMessages};

pub(super) struct Sending {
    state: Arc<State>,
    segment: Arc<Segment>,
    direction: Direction,
    ring: ByteProducer,
    spin_time: Duration,
}

impl Sending {
    pub(super) fn new(state: Arc<State>, segment: Arc<Segment>, direction: Direction) -> Self {
        let ring = ByteProducer::new(Arc::clone(&segment), direction);
        Self { state, segment, direction, ring, spin_time: spin_time() }
    }

    /// Waits until the peer has read something.
    fn wait_for_capacity(&self) -> Result<(), LinkError> {
        let started = Instant::now();
        while started.elapsed() < self.spin_time {
            if self.ring.free_bytes()? > 0 {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        let has_capacity = || !matches!(self.ring.free_bytes(), Ok(0)) || self.state.is_over();
        wake_flag::park(self.segment.futex(self.direction, Word::Sender), BUSY, has_capacity);
        Ok(())
    }
}

impl SendMessages for Sending {
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        while !bytes.is_empty() {
            if self.state.is_over() {
                return Err(LinkError::PeerDisconnected);
            }
            let count = self.ring.write(bytes)?;
            if count == 0 {
                self.wait_for_capacity()?;
                continue;
            }
            bytes = &bytes[count..];
            wake_flag::wake(self.segment.futex(self.direction, Word::Receiver));
        }
        Ok(())
    }
}

pub(super) struct Receiving {
    state: Arc<State>,
    segment: Arc<Segment>,
    direction: Direction,
    ring: ByteConsumer,
    /// Whether the peer has been informed that this thread is busy.
    is_busy: bool,
}

impl Receiving {
    pub(super) fn new(state: Arc<State>, segment: Arc<Segment>, direction: Direction) -> Self {
        let ring = ByteConsumer::new(Arc::clone(&segment), direction);
        Self { state, segment, direction, ring, is_busy: true }
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let doing = self.segment.futex(self.direction, Word::Receiver);
        // Written once, not whenever it looks: the peer reads it behind each of its messages.
        if core::mem::take(&mut self.is_busy) {
            doing.store(POLLING, Ordering::Relaxed);
        }
        loop {
            let over = self.state.is_over();
            let count = self.ring.read(into)?;
            if count > 0 {
                self.is_busy = true;
                doing.store(BUSY, Ordering::Relaxed);
                // Either the peer sees that there is room, and that this thread is busy so that it rings for
                // the other one, or it is seen here that it sleeps, and what it has announced. One fence for
                // both, since a message waits for it.
                fence(Ordering::SeqCst);
                wake_flag::wake_after_fence(self.segment.futex(self.direction, Word::Sender));
                // What was announced before these bytes were written is there for whoever reads them.
                self.state.deliver_all(link)?;
                return Ok(count);
            }
            self.state.deliver_all(link)?;
            if over {
                // The peer has written nothing after it went, and all that was there has been read.
                return Err(LinkError::PeerDisconnected);
            }
            if !wait || self.state.take_call() {
                return Ok(0);
            }
            let has_some = || {
                !matches!(self.ring.available(), Ok(0))
                    || self.state.has_pieces()
                    || self.state.is_called()
                    || self.state.is_over()
            };
            wake_flag::park(doing, POLLING, has_some);
        }
    }
}
