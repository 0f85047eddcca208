//! Frames of a link over queue pairs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Receive, RemoteMemory, Transport};
use causeway_wire::chunk::ChunkHeader;

use super::credit::Class;
use super::failure::Failure;
use super::message::{Announcement, CONTROL, Released};
use super::path::SlotFrames;
use super::received::FrameLocation;
use super::state::State;
use super::stripes::MAX_REQUEST_BYTES;
use super::waiting::PollBackoff;
use causeway_transport::slots::SLOT;
use causeway_transport::{LinkError, Shared};
use causeway_transport::{ReceiveMessages, SendMessages};

/// The direction to the peer.
pub struct Sending(pub Arc<State>);

impl SendMessages for Sending {
    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let Self(state) = self;
        let path = &state.paths[0];
        let mut rest = bytes;
        while !rest.is_empty() {
            let posted = state.wait_for(|| {
                let written = state.write_frames(rest)?;
                match if written > 0 { written } else { path.post_frames(&state.messages, rest)? } {
                    0 => Ok(None),
                    posted => Ok(Some(posted)),
                }
            })?;
            rest = &rest[posted..];
        }
        Ok(())
    }
}

/// Frames with more bytes are written to slots of the peer: as messages they would take many requests,
/// receives and credits. A batch of commands is shorter, and does not take slots from copies.
const LONG: usize = 64 << 10;

/// So many runs of slots are given back in a message of their own. One waits for frames of this side that
/// take it along, as an answer does, or for a thread that has [looked in vain](PollBackoff::is_long).
const BY_THEMSELVES: usize = 2;

/// What lies free again when frames have been read.
#[derive(Default)]
struct Read {
    receives: Vec<Receive>,
    slots: Vec<Released>,
}

/// The direction from the peer.
pub struct Receiving {
    state: Arc<State>,
    /// Where frames lay that have been read. Receives are posted again, and slots given back, when the thread
    /// comes back, and not before what came in them has been dealt with, which somebody may wait for.
    read: Read,
}

impl Receiving {
    pub fn new(state: Arc<State>) -> Self {
        Self { state, read: Read::default() }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        // Nobody waits for the device to give back what it does not have.
        self.state.flushed.fetch_add(self.read.receives.len() as u32, Ordering::Relaxed);
    }
}

impl ReceiveMessages for Receiving {
    fn receive(&mut self, _link: &Arc<Shared>, into: &mut [u8], wait: bool) -> Result<usize, LinkError> {
        let Self { state, read } = self;
        state.free_again(read)?;
        state.fallback_poller.attend();
        let mut in_vain = PollBackoff::default();
        loop {
            let taken = state.take_frames(into, read);
            if taken > 0 {
                state.fallback_poller.leave();
                if state.paths[0].is_holding() {
                    // Nobody may look for a while.
                    state.pump_first()?;
                }
                return Ok(taken);
            }
            if state.poll() {
                in_vain = PollBackoff::default();
                continue;
            }
            // What came before the end still counts.
            state.check()?;
            if !wait {
                state.release_pending();
                return Ok(0);
            }
            if !in_vain.may_continue(state.spin_time()) {
                state.release_pending();
                if state.sleep()? {
                    return Ok(0);
                }
            } else if in_vain.is_long() {
                state.release_pending();
            }
        }
    }
}

impl State {
    /// Whether a write can bring a number along, which spares a message behind it.
    fn writes_have_numbers(&self) -> bool {
        self.domain.device().transport() != Transport::Iwarp
    }

    /// Writes the beginning of long frames to slots of the peer, if it has some free; how many bytes that
    /// was.
    fn write_frames(&self, frames: &[u8]) -> Result<usize, LinkError> {
        // Asked before they are copied, since who waits for room tries again and again.
        if frames.len() <= LONG || !self.paths[0].may_write_frames() {
            return Ok(0);
        }
        let before = if self.writes_have_numbers() { CONTROL } else { 0 };
        let length = frames.len().min(MAX_REQUEST_BYTES.min(self.max_piece()) - before);
        let Some(piece) = self.try_piece(before + length) else { return Ok(0) };
        // SAFETY: the piece has as many bytes, which are ours until they are sent.
        unsafe { core::ptr::copy_nonoverlapping(frames.as_ptr(), piece.as_ptr().add(before), length) };
        let (first, total) = (piece.first(), length as u64);
        let chunk = ChunkHeader { transfer: 0, offset: 0, total, length: length as u32 };
        let at = first as usize * SLOT;
        let RemoteMemory { address, key } = self.peer_arena;
        let frames = SlotFrames {
            announcement: Announcement { chunk, first, stripes: 1, is_direct: false },
            start: piece.as_ptr(),
            segment: self.staging.region().segment(at, before + length),
            to: RemoteMemory { address: address + at as u64, key },
        };
        let path = &self.paths[0];
        // From here on the peer gives the slots back, unless it hears nothing of them.
        self.slots.lock().send(first);
        let posted = match before {
            0 => path.post_frames_in_slots(&self.messages, &frames, &self.returns),
            _ => path.post_frames_with_message(&frames, &self.returns),
        };
        if matches!(posted, Ok(true)) || !self.slots.lock().unsend(first) {
            piece.sent();
        }
        Ok(if posted? { length } else { 0 })
    }

    /// Bytes of frames that have come; `into` gets as many as it has room for. Where none are left goes to
    /// `read`.
    fn take_frames(&self, into: &mut [u8], read: &mut Read) -> usize {
        let mut taken = 0;
        let mut incoming = self.incoming.lock();
        while let Some(filled) = incoming.front_mut() {
            let some = (filled.end - filled.at).min(into.len() - taken);
            let buffer = if filled.is_in_receive() { &self.receives } else { &*self.arena };
            // SAFETY: the bytes lie in the buffer, and are ours until their receive is posted again or their
            // slots are given back. A peer that breaks the rules may write to its slots all the while: then
            // it gets frames of whichever bytes.
            unsafe {
                let from = buffer.as_ptr().add(filled.at);
                core::ptr::copy_nonoverlapping(from, into[taken..taken + some].as_mut_ptr(), some);
            }
            taken += some;
            filled.at += some;
            if filled.at < filled.end {
                break;
            }
            match filled.lies {
                FrameLocation::InReceive(receive) => read.receives.push(self.receive(0, receive)),
                FrameLocation::InSlots(first) => read.slots.push(Released::Slots(first)),
            }
            incoming.pop_front();
        }
        taken
    }

    /// Posts receives again whose frames have been read, and gives their slots back.
    fn free_again(&self, Read { receives, slots }: &mut Read) -> Result<(), LinkError> {
        let mut is_due = false;
        if !slots.is_empty() {
            self.leases.fetch_sub(slots.len() as u32, Ordering::Relaxed);
            let mut returns = self.returns.lock();
            returns.append(slots);
            is_due = returns.len() >= BY_THEMSELVES;
        }
        if !receives.is_empty() {
            let path = &self.paths[0];
            // SAFETY: what lay in these receives has been copied out.
            let posted = unsafe { path.pair().post_receives(receives) };
            posted.map_err(|error| Failure::Device(error.to_string()))?;
            is_due |= path.posted_again(Class::Frame, receives.len());
            receives.clear();
        }
        if is_due {
            self.pump_first()?;
        }
        Ok(())
    }
}
