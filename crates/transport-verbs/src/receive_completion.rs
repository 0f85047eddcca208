//! Receive completions: parsing, protocol checks, and handling of what they bring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{Completion, Outcome, Receive};
use causeway_sync::delays;
use causeway_transport::slots::{MAX_PIECE_BYTES, SLOT};
use causeway_transport::staging::Lease;
use causeway_transport::{BufferGuard, LinkError, OnComplete, Shared, count};
use causeway_wire::chunk::{ChunkError, ChunkHeader};

use crate::endpoint::{RECEIVE_MARK, ReceiveLayout};
use crate::error::{Failure, Violation};
use crate::message::{
    ANNOUNCEMENT, Announcement, CONTROL, HEADER, Header, InSlots, Kind, Offer, Released, parse_returns,
};
use crate::pieces::{slice_of, slots_for};
use crate::poll_state::{Filled, FrameLocation, ReceiveKind};
use crate::queue::Operation;
use crate::state::State;
use crate::stripe::{PartialPieces, Work};

/// What a poll has found that is dealt with under no lock.
#[derive(Default)]
pub struct Found {
    pub pieces: Vec<(ChunkHeader, Lease)>,
    offers: Vec<(Offer, Lease)>,
    /// Transfers that lie where they belong, and whether they came straight from a GPU.
    pub placed: Vec<(ChunkHeader, bool)>,
    pub operations: Vec<Arc<Operation>>,
    /// What kept memory that is released.
    pub guards: Vec<BufferGuard>,
    /// Bytes of it that went straight to a GPU.
    direct_bytes: u64,
}

impl State {
    /// Takes in what a completion says, and what came with it. `partial` are those of pieces in slots, and of
    /// such that lie where they belong; receives to be posted go to `again`, by path.
    pub(super) fn deal_with(
        &self,
        completion: &Completion,
        [partial, placed]: [&mut PartialPieces; 2],
        again: &mut [Vec<(Receive, ReceiveKind)>],
        found: &mut Found,
    ) -> Result<(), LinkError> {
        if !completion.status().is_success() {
            return Err(Failure::Request(completion.status()).into());
        }
        let number = completion.queue_pair();
        let index = self.paths.iter().position(|path| path.pair().number() == number);
        let index = index.ok_or(Failure::Violation(Violation::Completion))?;
        let path = &self.paths[index];
        if completion.id() & RECEIVE_MARK == 0 {
            found.operations.extend(path.complete(completion.id())?);
            return Ok(());
        }
        let receive = (completion.id() & !RECEIVE_MARK) as usize;
        let in_slots;
        let start = ReceiveLayout::new(self.depth).offset(index, receive);
        let length = (completion.length() as usize).min(ReceiveLayout::size(index));
        let (bytes, lies) = match completion.outcome() {
            // SAFETY: the receive lies in the buffer, and its bytes are ours from its completion until it is
            // posted again.
            Outcome::Received => unsafe {
                (core::slice::from_raw_parts(self.receives.as_ptr().add(start), length), None)
            },
            // It takes up a receive, too.
            Outcome::ReceivedWrite => {
                let number = completion.immediate().unwrap_or_default();
                let (lies, message) = self.read_from_slots(number).map_err(Failure::from)?;
                in_slots = message;
                (&in_slots[..lies.length], Some(lies))
            }
            _ => return Err(Failure::Violation(Violation::Message).into()),
        };
        let (header, content) = Header::parse(bytes).map_err(Failure::from)?;
        path.accept(&header)?;
        let kind = match header.kind {
            kind if lies.is_some() && kind != Kind::FrameInSlots => {
                return Err(Failure::Violation(Violation::Message).into());
            }
            Kind::Frame if index == 0 => {
                let filled = Filled {
                    lies: FrameLocation::InReceive(receive),
                    at: start + HEADER,
                    end: start + length,
                };
                self.incoming.lock().push_back(filled);
                return Ok(());
            }
            Kind::FrameInSlots if index == 0 => {
                let (content, returns) = content
                    .split_at_checked(ANNOUNCEMENT - HEADER)
                    .ok_or(Failure::Violation(Violation::Message))?;
                let announcement = Announcement::parse(content).map_err(Failure::from)?;
                let Announcement { first, chunk, .. } = announcement;
                let before = if lies.is_some() { CONTROL } else { 0 };
                self.check_range(&announcement, before)?;
                if lies.is_some_and(|lies| lies.first != first) {
                    return Err(Failure::Violation(Violation::Message).into());
                }
                self.count_lease()?;
                let at = first as usize * SLOT + before;
                let filled =
                    Filled { lies: FrameLocation::InSlots(first), at, end: at + chunk.length as usize };
                self.incoming.lock().push_back(filled);
                if !returns.is_empty() {
                    self.reclaim(returns, found)?;
                }
                ReceiveKind::Control
            }
            Kind::Frame | Kind::FrameInSlots => return Err(Failure::Violation(Violation::Message).into()),
            Kind::Announcement => {
                let announcement = Announcement::parse(content).map_err(Failure::from)?;
                self.check_piece(&announcement)?;
                let complete = partial.add(announcement.first.into(), announcement).map_err(Failure::from)?;
                if let Some(chunk) = complete {
                    found.pieces.push((chunk, self.lease(announcement.first, chunk.length)?));
                }
                ReceiveKind::Control
            }
            Kind::Eager => {
                let mut content = content;
                while !content.is_empty() {
                    content = self.take_eager(content, partial, found)?;
                }
                ReceiveKind::Control
            }
            Kind::Offer => {
                let offer = Offer::parse(content).map_err(Failure::from)?;
                let Announcement { first, chunk, .. } = offer.announcement;
                self.check_piece(&offer.announcement)?;
                found.offers.push((offer, self.lease(first, chunk.length)?));
                ReceiveKind::Control
            }
            Kind::Placed => {
                let announcement = Announcement::parse(content).map_err(Failure::from)?;
                check_chunk(&announcement.chunk)?;
                let transfer = announcement.chunk.transfer;
                let complete = placed.add(transfer, announcement).map_err(Failure::from)?;
                found.placed.extend(complete.map(|chunk| (chunk, announcement.is_direct)));
                ReceiveKind::Control
            }
            Kind::Returns => {
                self.reclaim(content, found)?;
                ReceiveKind::Control
            }
            Kind::Credits => ReceiveKind::CreditUpdate,
            Kind::Hello => {
                self.hellos.fetch_add(1, Ordering::Relaxed);
                ReceiveKind::Hello
            }
        };
        again[index].push((self.receive(index, receive), kind));
        Ok(())
    }

    /// Takes in what a message releases.
    fn reclaim(&self, returns: &[u8], found: &mut Found) -> Result<(), LinkError> {
        for back in parse_returns(returns).map_err(Failure::from)? {
            match back {
                Released::Slots(first) => {
                    let taken = self.slots.lock().reclaim(first.into());
                    taken.map_err(|_| Failure::Violation(Violation::NotLeased(first)))?;
                }
                Released::Region { number, is_direct } => {
                    let held = self.exposed_regions.lock().end(number);
                    let (bytes, guard) = held.ok_or(Failure::Violation(Violation::NotLeased(number)))?;
                    found.direct_bytes += if is_direct { bytes } else { 0 };
                    found.guards.push(guard);
                }
            }
        }
        Ok(())
    }

    /// Puts the first piece of a message that brings pieces into its slots; what follows it.
    fn take_eager<'a>(
        &self,
        content: &'a [u8],
        partial: &mut PartialPieces,
        found: &mut Found,
    ) -> Result<&'a [u8], LinkError> {
        const SENSELESS: Failure = Failure::Violation(Violation::Message);
        let (announcement, rest) = content.split_at_checked(ANNOUNCEMENT - HEADER).ok_or(SENSELESS)?;
        let announcement = Announcement::parse(announcement).map_err(Failure::from)?;
        let Announcement { chunk, first, stripes, .. } = announcement;
        self.check_piece(&announcement)?;
        let (bytes, rest) = rest.split_at_checked(chunk.length as usize).ok_or(SENSELESS)?;
        if stripes != 1 {
            return Err(SENSELESS.into());
        }
        if let Some(chunk) = partial.add(first.into(), announcement).map_err(Failure::from)? {
            let lease = self.lease(first, chunk.length)?;
            // SAFETY: the slots lie in the arena, where the peer, which has leased them, could write as
            // well.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), lease.as_ptr(), bytes.len()) };
            found.pieces.push((chunk, lease));
        }
        Ok(rest)
    }

    /// Takes a message out of slots, to which the peer can write all the while: in place, and its bytes.
    fn read_from_slots(&self, number: u32) -> Result<(InSlots, [u8; CONTROL]), Violation> {
        let lies @ InSlots { first, length } = InSlots::from_number(number)?;
        if first >= self.arena_slots {
            return Err(Violation::Message);
        }
        let at = first as usize * SLOT + CONTROL - length;
        let mut message = [0; CONTROL];
        // SAFETY: the bytes lie in a slot of the arena. What a peer makes of them that breaks the rules is
        // some bytes all the same.
        unsafe { core::ptr::copy_nonoverlapping(self.arena.as_ptr().add(at), message.as_mut_ptr(), length) };
        Ok((lies, message))
    }

    /// Whether an announced piece lies in the arena and in its transfer.
    fn check_piece(&self, announcement: &Announcement) -> Result<(), LinkError> {
        self.check_range(announcement, 0)
    }

    /// The same of a range that has so many bytes before the piece.
    fn check_range(&self, announcement: &Announcement, before: usize) -> Result<(), LinkError> {
        let Announcement { chunk: chunk @ ChunkHeader { length, .. }, first, .. } = *announcement;
        let slots = slots_for(before + length as usize);
        let is_within = first < self.arena_slots
            && slots <= self.arena_slots - first
            && length as usize <= MAX_PIECE_BYTES;
        if !is_within {
            return Err(Failure::Violation(Violation::Piece { slot: first, length }).into());
        }
        check_chunk(&chunk)
    }
}

/// Whether a chunk lies in its transfer.
fn check_chunk(chunk: &ChunkHeader) -> Result<(), LinkError> {
    let ChunkHeader { transfer, offset, total, length } = *chunk;
    if offset.checked_add(length.into()).is_none_or(|end| end > total) {
        return Err(ChunkError::BeyondEnd { offset, length, total }.into());
    }
    if length == 0 && total > 0 {
        return Err(ChunkError::Empty(transfer).into());
    }
    Ok(())
}

impl State {
    /// Deals with what a poll has found.
    pub fn follow(&self, found: Found) {
        delays::inject();
        drop(found.guards);
        found.operations.iter().for_each(|operation| operation.done());
        for (chunk, lease) in found.pieces {
            if let Err(error) = self.hand_over(chunk, lease) {
                self.fail(error);
            }
        }
        found.offers.into_iter().for_each(|(offer, lease)| self.fetch(&offer, lease));
        if found.placed.is_empty() && found.direct_bytes == 0 {
            return;
        }
        let Some(link) = self.link() else { return };
        count(&link.counters().direct_bytes_sent, found.direct_bytes as usize);
        for (chunk, is_direct) in found.placed {
            if let Err(error) = placed(&link, &chunk, is_direct) {
                self.fail(error);
            }
        }
    }

    /// Reads an offer of the peer into the slots that it names.
    fn fetch(&self, offer: &Offer, lease: Lease) {
        let Offer { announcement: Announcement { chunk, first, .. }, from } = *offer;
        let region = self.arena.region();
        let address = region.address() + first as u64 * SLOT as u64;
        let into = slice_of(region, address, chunk.length as usize);
        let state = self.myself();
        let then: OnComplete = Box::new(move |outcome| {
            if outcome.is_err() {
                return;
            }
            state.send_released(Released::Region { number: first, is_direct: false });
            if let Err(error) = state.hand_over(chunk, lease) {
                state.fail(error);
            }
        });
        self.carry(into, Work::Read(from), |_| None, Some(then));
    }
}

/// A transfer lies where it belongs. One that nobody waits for any more is of no interest.
fn placed(link: &Arc<Shared>, chunk: &ChunkHeader, is_direct: bool) -> Result<(), LinkError> {
    if !link.transfers().knows(chunk.transfer) {
        return Ok(());
    }
    link.transfers().claim(chunk, None)?;
    let length = chunk.length as usize;
    count(&link.counters().transfer_bytes_received, length);
    let counters = link.counters();
    count(
        if is_direct { &counters.direct_bytes_received } else { &counters.registered_bytes_received },
        length,
    );
    link.transfers().landed(chunk, None);
    Ok(())
}
