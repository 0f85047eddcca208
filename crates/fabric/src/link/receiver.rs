//! How do the peer's frames come in, and when is the peer gone?

use std::sync::Arc;

use causeway_wire::compressed::decompress;
use causeway_wire::frame::{Frame, FrameKind, FrameReader, MAX_BODY};

use super::{LinkError, Shared, count};
use crate::awake::{self, Looking};
use crate::module::ReceiveMessages;

/// Fruitless spins in a row after which spinning is tried only now and then.
const SPINS_IN_VAIN: u32 = 8;

/// How often it is then tried: once in so many calls.
const TRY_AGAIN_EVERY: u32 = 32;

/// What a receiving thread does while nothing comes, and for how long it stays awake.
pub trait Meanwhile {
    /// Whether somebody waits for what is to come. If so, it is worth staying awake for; otherwise only as far as it has
    /// paid lately.
    fn is_waited_for(&self) -> bool;
    /// Looks once for what else this thread has to see to.
    fn look(&mut self) {}
    /// The thread turns to what has come, and comes back afterwards.
    fn turn_away(&mut self) {}
    /// Runs `sleep`, in which the thread sleeps. What it does in there, it does in between two sleeps: it takes in transfers,
    /// and what that sets off.
    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        sleep()
    }
}

/// The receiving end of a link, for one thread.
pub struct Receiver {
    shared: Arc<Shared>,
    incoming: Box<dyn ReceiveMessages>,
    frames: FrameReader,
    /// The messages of a frame that came compressed.
    unpacked: Vec<u8>,
    /// Whether a frame was handed out that has not been marked as dealt with.
    handed_out: bool,
    spins_in_vain: u32,
}

impl core::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>, incoming: Box<dyn ReceiveMessages>) -> Self {
        Self {
            shared,
            incoming,
            frames: FrameReader::new(MAX_BODY),
            unpacked: Vec::new(),
            handed_out: false,
            spins_in_vain: 0,
        }
    }

    /// Waits for the next frame and returns its body. The frame before counts as dealt with from here on.
    /// After an error the link has ended.
    pub fn recv(&mut self) -> Result<&[u8], LinkError> {
        let next = self.next_frame(Self::receive_asleep);
        self.body(next)
    }

    /// Like [`recv`](Self::recv), but looks for [a while](awake) without sleeping first, and does something else between two
    /// looks. Where that has not helped lately it is mostly left out, unless somebody waits.
    pub fn recv_meanwhile<M: Meanwhile>(&mut self, meanwhile: &mut M) -> Result<&[u8], LinkError> {
        let next = self.next_frame(|receiver| match receiver.receive_awake(meanwhile)? {
            true => Ok(()),
            false => meanwhile.asleep(|| receiver.receive_asleep()),
        });
        meanwhile.turn_away();
        self.body(next)
    }

    fn body(&mut self, next: Result<Frame, LinkError>) -> Result<&[u8], LinkError> {
        let frame = next.map_err(|error| self.shared.lose(error))?;
        let body = self.frames.body(&frame);
        if frame.header.kind != FrameKind::CompressedMessages {
            return Ok(body);
        }
        match decompress(body, &mut self.unpacked) {
            Ok(()) => Ok(&self.unpacked),
            Err(error) => Err(self.shared.lose(error.into())),
        }
    }

    /// Hands out the next frame, of bytes that `receive` takes in.
    fn next_frame(
        &mut self,
        mut receive: impl FnMut(&mut Self) -> Result<(), LinkError>,
    ) -> Result<Frame, LinkError> {
        if self.handed_out {
            self.handed_out = false;
            self.shared.numbers.lock().processed_all();
        }
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                self.shared.numbers.lock().accept(&frame.header)?;
                self.handed_out = true;
                count(&self.shared.counters.frames_received, 1);
                count(&self.shared.counters.message_bytes_received, frame.header.length as usize);
                return Ok(frame);
            }
            receive(self)?;
        }
    }

    /// Sleeps until bytes have come.
    fn receive_asleep(&mut self) -> Result<(), LinkError> {
        let count = self.incoming.receive(&self.shared, self.frames.space(), true)?;
        self.frames.filled(count);
        Ok(())
    }

    /// Looks for bytes and does something else in between; whether some have come.
    fn receive_awake(&mut self, meanwhile: &mut impl Meanwhile) -> Result<bool, LinkError> {
        let (short, long) = (awake::between_commands(), awake::while_waited_for());
        let often_in_vain =
            self.spins_in_vain > SPINS_IN_VAIN && !self.spins_in_vain.is_multiple_of(TRY_AGAIN_EVERY);
        if long.is_zero() || often_in_vain && !meanwhile.is_waited_for() {
            self.spins_in_vain = self.spins_in_vain.wrapping_add(1);
            return Ok(false);
        }
        let mut looking = Looking::new();
        loop {
            let count = self.incoming.receive(&self.shared, self.frames.space(), false)?;
            if count > 0 {
                self.frames.filled(count);
                self.spins_in_vain = 0;
                return Ok(true);
            }
            meanwhile.look();
            let waited = looking.pause();
            if waited >= short && (waited >= long || !meanwhile.is_waited_for()) {
                break;
            }
        }
        self.spins_in_vain = self.spins_in_vain.wrapping_add(1);
        Ok(false)
    }
}

impl Drop for Receiver {
    /// A link that nobody receives from any more has ended.
    fn drop(&mut self) {
        self.shared.lose(LinkError::Closed);
    }
}
