//! Fetcher: what a receiver has of a peer, and peer memory mapped for kernels.

use std::sync::Arc;

use super::choice::{Chooser, Openings};
use super::state_words::StateWords;
use crate::bootstrap::Connection;
use crate::channels::destination::Destination;
use crate::channels::protocol::Message;
use crate::channels::peer_memory::OpenMemory;
use crate::channels::receiver::Receiver;
use crate::channels::{Channel, TransferError};
use crate::cuda::{DeviceMemory, Driver, GpuAccess, Scope};
use crate::live::Live;
use crate::matching::Descriptor;
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::Table;

/// What a receiver has of a peer.
#[derive(Debug)]
pub(crate) struct Fetcher {
    /// What channels keep of it.
    pub(super) receiver: Receiver,
    pub(super) chooser: Chooser,
    /// The peer's words of its offers, when it has sent them; none if it has none.
    pub(super) state_words: Option<Option<Arc<StateWords>>>,
    /// Those of the connection before this one.
    known_state_words: Option<Arc<StateWords>>,
    pub(super) openings: Openings,
}

/// Memory of a peer that kernels here reach, while this lives.
#[derive(Debug)]
pub struct MappedMemory {
    /// Where it begins here.
    pub address: u64,
    /// By which channel it was opened.
    pub channel: Channel,
    _memory: OpenMemory,
}

impl Fetcher {
    pub(crate) fn new(
        connection: Connection,
        pair: Pair,
        allowed: Vec<Channel>,
        live: Arc<Live>,
        table: Option<Arc<Table>>,
        profile: Profile,
        known_state_words: Option<Arc<StateWords>>,
    ) -> Self {
        let chooser = Chooser::new(pair, connection.is_network(), allowed, live, table, profile);
        Self {
            receiver: Receiver::new(connection),
            chooser,
            state_words: None,
            known_state_words,
            openings: Openings::default(),
        }
    }

    /// The peer.
    pub(crate) fn peer(&self) -> u32 {
        self.receiver.connection.peer
    }

    /// What lies between the two, in words.
    pub(crate) fn between(&self) -> String {
        self.chooser.between()
    }

    /// Whether the two meet over a network.
    pub(crate) fn is_network(&self) -> bool {
        self.receiver.connection.is_network()
    }

    /// Adds to a profile what has been found out of channels.
    pub(crate) fn learn_into(&self, profile: &mut Profile) {
        self.chooser.learn_into(profile);
    }

    /// Tells the sender that a message is not wanted: it is too long for the receive.
    pub(crate) fn decline(&self, operation: u64) -> Result<(), TransferError> {
        self.receiver
            .connection
            .send_message(Message::Done { operation })
            .map_err(|error| self.receiver.connection.ended_by(error))
    }

    /// Tells the sender that this rank moves: the fetcher is of no more use.
    pub(crate) fn leave(&mut self) {
        // The words lie in the connection where nothing has been fetched yet.
        let _ = self.receive_state_words();
        self.receiver.connection.send_moving();
    }

    /// The peer has come by another connection.
    pub(crate) fn give_up(&self) {
        self.receiver.connection.send_moving();
    }

    /// The words of the peer's offers, for the fetcher of its next connection, if the peer had sent them.
    pub(crate) fn take_state_words(&mut self) -> Option<Arc<StateWords>> {
        self.receive_state_words().ok()?;
        self.state_words.clone().flatten()
    }

    /// The words of the peer's offers, if there are any.
    pub(crate) fn state_words(&mut self) -> Result<Option<Arc<StateWords>>, TransferError> {
        self.receive_state_words()?;
        Ok(self.state_words.clone().flatten())
    }

    /// Hears the words of the peer's offers, which it sends before all else.
    pub(super) fn receive_state_words(&mut self) -> Result<(), TransferError> {
        if self.state_words.is_none() {
            // A peer that has said nothing and gone has not kept this connection, as where it takes this rank
            // for another one while that moves; it comes again.
            let heard = self.receiver.connection.receive_message();
            let has_disconnected = heard.is_err() && self.receiver.connection.has_ended();
            let heard = if has_disconnected { Err(TransferError::Moved(self.peer())) } else { heard };
            let (Message::StateWords { are_known }, descriptor) = heard? else {
                return Err(self.receiver.connection.wrong("something else than the words of its offers"));
            };
            let new = || descriptor.and_then(|descriptor| StateWords::of_peer(descriptor).ok().map(Arc::new));
            // Without them it is asked for every payload.
            self.state_words = Some(if are_known { self.known_state_words.take() } else { new() });
        }
        Ok(())
    }

    /// Opens the memory that a descriptor describes for kernels that use this rank's own memory, too; none
    /// where no channel opens it there. A peer offers it, and this rank opens it as it does to copy from it;
    /// but what happens there, and when it ends, is between the two ranks.
    pub(crate) fn map_for_kernels(
        &mut self,
        descriptor: &Descriptor,
        driver: &'static Driver,
        own: DeviceMemory,
    ) -> Result<Option<MappedMemory>, TransferError> {
        let mapped = self.open_for_kernels(descriptor, driver, own);
        mapped.map_err(|error| self.receiver.connection.ended_by(error))
    }

    fn open_for_kernels(
        &mut self,
        descriptor: &Descriptor,
        driver: &'static Driver,
        own: DeviceMemory,
    ) -> Result<Option<MappedMemory>, TransferError> {
        self.receive_state_words()?;
        let (memory, operation) = (descriptor.memory, descriptor.operation);
        let destination = Destination::of(driver, own, memory.gpu);
        if let GpuAccess::Seen(_) = destination.access {
            // The driver copies between the two GPUs, but no kernel of the one reaches the other's memory.
            return Ok(None);
        }
        let context = Scope::context_of(driver, &own)?;
        let is_for_own = |found: &OpenMemory| found.is_for(context, own.device);
        for channel in self.chooser.channels(&destination.ends(memory)) {
            let Some(ops) = channel.peer_memory().filter(|ops| ops.opens(&memory)) else { continue };
            // What is open in another context, or for another device, is of no use here.
            let found = ops.find(&mut self.receiver, memory.buffer, &destination);
            if !found.as_ref().is_some_and(is_for_own) {
                drop(found);
                ops.forget(&mut self.receiver, memory.buffer);
                match self.receiver.open_offered(ops, operation, memory.buffer, &destination) {
                    Ok(()) => self.receiver.connection.send_message(Message::Done { operation })?,
                    Err(error) if error.ends_connection() => return Err(error),
                    Err(error) => {
                        self.chooser.failed(channel, &error);
                        continue;
                    }
                }
            }
            let found = ops.find(&mut self.receiver, memory.buffer, &destination).filter(is_for_own);
            let found = found.and_then(|found| {
                let address = found.at(memory.offset, descriptor.bytes)?;
                Some(MappedMemory { address, channel, _memory: found })
            });
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
