//! Serving thread of a sender: it waits for a peer's requests, and has the channel send what was offered.

use std::io;
use std::os::fd::OwnedFd;

use super::offers::{OfferState, Offers};
use crate::bootstrap::{Connection, MESSAGE_BYTES};
use crate::channels::protocol::{Message, Refusal};
use crate::channels::sender::{Payload, PayloadSender};
use crate::channels::{Channel, TransferError};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::live::Live;
use crate::moving::Gate;

/// What a peer's requests need from one to the next.
#[derive(Debug)]
struct Server<'a> {
    connection: &'a Connection,
    offers: &'a Offers,
    gate: &'a Gate,
    live: &'a Live,
    sender: PayloadSender<'a>,
    /// The operation that was served last, and whether that was in a way that pays for short messages.
    last: Option<(u64, bool)>,
}

/// Why a peer is served no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It has gone, or has said what makes no sense.
    Disconnected,
    /// One of the two ranks moves to another container.
    Moving,
}

/// Serves a peer until it goes, says what makes no sense, or one of both moves.
///
/// Gives what is left of it, to be dropped when all have been informed that the peer has gone: memory of the
/// driver is in that, and to free it may take as long as a kernel runs that waits for this very peer.
#[must_use]
pub(crate) fn serve<'a>(
    connection: &'a Connection,
    offers: &'a Offers,
    gate: &'a Gate,
    live: &'a Live,
) -> (End, impl Sized + 'a) {
    let sender = PayloadSender::new(connection);
    let mut server = Server { connection, offers, gate, live, sender, last: None };
    let mut end = End::Disconnected;
    loop {
        match connection.receive() {
            Ok(Some((bytes, descriptor))) => match server.handle_request(&bytes, descriptor) {
                Ok(()) => {}
                Err(TransferError::Moved(_)) => {
                    end = End::Moving;
                    break;
                }
                Err(_) => break,
            },
            // It has nothing to ask for.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Ok(None) | Err(_) => break,
        }
    }
    connection.shut();
    (end, server)
}

impl Server<'_> {
    fn handle_request(
        &mut self,
        bytes: &[u8; MESSAGE_BYTES],
        descriptor: Option<OwnedFd>,
    ) -> Result<(), TransferError> {
        let peer = self.connection.peer;
        match Message::decode(bytes) {
            Some(Message::Slots { count, bytes }) if !self.connection.is_network() => {
                self.sender.accept_slots(count, bytes, descriptor)
            }
            Some(Message::Join { more }) => self.sender.join_rdma(more),
            Some(Message::Fetch { channel, operation }) => self.send_unless_moving(channel, operation),
            Some(Message::Moving) => Err(TransferError::Moved(peer)),
            Some(Message::Done { operation }) => {
                if let Some((served, pays)) = self.last.take()
                    && served == operation
                {
                    self.offers.served(operation, peer, pays);
                }
                self.offers.end(operation, peer, OfferState::Done);
                Ok(())
            }
            Some(Message::Abandoned { operation }) => {
                self.offers.end(operation, peer, OfferState::Failed);
                Ok(())
            }
            // What was under way when this end gave up.
            Some(Message::Free { .. }) => Ok(()),
            _ => Err(self.connection.wrong("a message that is not for a sender")),
        }
    }

    fn send_unless_moving(&mut self, channel: Channel, operation: u64) -> Result<(), TransferError> {
        let running = self.gate.try_start();
        // What the peer has begun to fetch is brought to its end, also by another channel.
        if running.is_none() && !self.offers.is_served(operation) {
            self.connection.send_message(Message::Moving)?;
            return Err(TransferError::Moved(self.connection.peer));
        }
        match self.send_offer(channel, operation) {
            Err(error) if !error.ends_connection() => {
                self.connection.send_message(Message::Refused(refusal(&error)))
            }
            outcome => outcome,
        }
    }

    fn send_offer(&mut self, channel: Channel, operation: u64) -> Result<(), TransferError> {
        let refused = |refusal| TransferError::Refused { peer: self.connection.peer, channel, refusal };
        let unknown = || refused(Refusal::Unknown);
        let offer = self.offers.begin(operation, self.connection.peer).ok_or_else(unknown)?;
        if channel.is_between_hosts() != self.connection.is_network() {
            return Err(refused(Refusal::Channel));
        }
        if let Some(copy) = &offer.copy {
            return channel.send_copy(&self.sender, copy);
        }
        let found =
            Driver::loaded().and_then(|driver| Some((driver, DeviceMemory::at(driver, offer.address)?)));
        // At its address there may be other memory by now.
        let (driver, memory) = found
            .filter(|(_, memory)| memory.buffer == offer.buffer)
            .ok_or_else(|| refused(Refusal::Memory))?;
        let scope = Scope::of(driver, &memory)?;
        cuda::follow(&scope);
        let payload = Payload { scope: &scope, memory: &memory, address: offer.address, bytes: offer.bytes };
        let by_itself = channel.peer_memory().is_some_and(|ops| ops.exports(&memory)) && payload.is_within();
        self.last = Some((operation, by_itself || channel.is_for_short()));
        self.sender.allows_gpudirect = self.live.allows_gpudirect();
        channel.send(&mut self.sender, &payload)
    }
}

/// What is sent to a peer.
fn refusal(error: &TransferError) -> Refusal {
    match error {
        TransferError::Refused { refusal, .. } => *refusal,
        TransferError::Cuda(CudaError { code, .. }) => Refusal::Cuda(code.unsigned_abs()),
        _ => Refusal::Channel,
    }
}
