//! Fetch: what a receiver has of a peer, the fetch of a payload (from memory that is open here, by the chosen
//! channel, or by others where that one fails), and peer memory mapped for kernels.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::choice::{Chooser, MessageKind, Openings};
use super::state_words::StateWords;
use crate::bootstrap::Connection;
use crate::channels::peer_memory::OpenMemory;
use crate::channels::protocol::{Message, Refusal};
use crate::channels::receiver::{Destination, FetchRequest, Receiver};
use crate::channels::{Channel, TransferError};
use crate::cuda::{CudaError, DeviceMemory, Driver, GpuAccess, PendingCopy, Scope};
use crate::live::Live;
use crate::matching::Descriptor;
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::{Choice, Decision, Table};
use crate::tracer::Traffic;

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

    /// The state of the peer's offers, for the fetcher of its next connection, if the peer had sent it.
    pub(crate) fn take_state_words(&mut self) -> Option<Arc<StateWords>> {
        self.receive_state_words().ok()?;
        self.state_words.clone().flatten()
    }

    /// The state of the peer's offers, if it has sent some.
    pub(crate) fn known_peer_state(&self) -> Option<&Arc<StateWords>> {
        self.state_words.as_ref()?.as_ref()
    }

    /// The state of the peer's offers, if there is any.
    pub(crate) fn state_words(&mut self) -> Result<Option<Arc<StateWords>>, TransferError> {
        self.receive_state_words()?;
        Ok(self.state_words.clone().flatten())
    }

    /// Receives the state of the peer's offers, which it sends before all else.
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

/// Whether the payload is there when a call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It is.
    Blocking,
    /// It may be under way: the program does something else meanwhile.
    NonBlocking,
}

/// What a fetch has come to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The payload is there.
    Complete(Decision),
    /// It is being copied.
    InFlight(Box<PendingFetch>),
}

/// A payload that is being copied from memory that is open here.
#[derive(Debug)]
pub(crate) struct PendingFetch {
    pub(super) copy: PendingCopy,
    /// What is copied from, which stays open until then.
    pub(super) _memory: OpenMemory,
    pub(super) state_words: Arc<StateWords>,
    pub(super) word: u16,
    pub(super) operation: u64,
    pub(crate) fetched: Decision,
    pub(super) kind: MessageKind,
    pub(crate) bytes: u64,
    pub(super) traffic: Traffic,
}

impl PendingFetch {
    /// The number of the context in whose stream the copy goes.
    pub(crate) fn life(&self) -> u64 {
        self.copy.life()
    }

    /// Tells the sender that the copy is over. Any thread may do so, and it is no message that could wait.
    pub(crate) fn notify_sender(&self, is_well: bool) {
        if is_well {
            self.state_words.finish(self.word, self.operation);
        } else {
            self.state_words.fail(self.word, self.operation);
        }
    }

    /// Whether the copy is done.
    pub(crate) fn is_done(&self) -> Result<bool, CudaError> {
        self.copy.is_done()
    }
}

/// What came of the attempt to copy without asking the sender.
enum Open {
    No,
    There,
    Started(PendingCopy, OpenMemory, Arc<StateWords>, u16),
}

impl Fetcher {
    /// Fetches a payload by the channel that is best, and by others where that one fails.
    pub(crate) fn fetch(&mut self, request: &FetchRequest, wait: Wait) -> Result<Outcome, TransferError> {
        let fetched = self.fetch_by_best(request, wait);
        fetched.map_err(|error| self.receiver.connection.ended_by(error))
    }

    fn fetch_by_best(&mut self, request: &FetchRequest, wait: Wait) -> Result<Outcome, TransferError> {
        self.receive_state_words()?;
        let destination = Destination::at(request.to, request.source.gpu);
        if request.to_gpu && destination.memory.is_none() {
            self.receiver.connection.send_message(Message::Abandoned { operation: request.operation })?;
            return Err(CudaError::UNKNOWN_MEMORY.into());
        }
        let ends = destination.ends(request.source);
        // A payload that is being fetched keeps to what was allowed when it began.
        let allows_gpudirect = self.chooser.allows_gpudirect();
        self.receiver.allows_gpudirect = allows_gpudirect;
        let mut kind = MessageKind {
            channels: self.chooser.channels(&ends),
            joined: ends.joined,
            is_direct: request.source.direct,
            is_gpudirect: allows_gpudirect
                && ends.own.is_some_and(|gpu| gpu.gpudirect)
                && request.source.gpudirect,
            device: destination.memory.map(|memory| memory.device),
        };
        let (mut failed, mut tried) = (Vec::new(), Vec::new());
        let traffic = request.traffic;
        loop {
            let Some(choice) = self.chooser.choose(&kind, request.bytes, traffic) else {
                let is_untried = |channel: &Channel| !tried.contains(channel);
                kind.channels = self.chooser.paused(&ends).into_iter().filter(is_untried).collect();
                if kind.channels.is_empty() {
                    break;
                }
                continue;
            };
            let to_gpu = destination.memory.is_some();
            let Choice { channel, reason } = choice;
            let is_gpudirect = kind.is_gpudirect && channel.uses_rdma();
            let fetched = Decision { channel, reason, traffic, to_gpu, is_gpudirect };
            let start = Instant::now();
            let found = self.fetch_open(fetched.channel, request, &destination, wait);
            if !matches!(found, Open::No) {
                self.openings.found_open(fetched.channel);
            }
            match found {
                Open::Started(copy, _memory, state_words, word) => {
                    let (operation, bytes) = (request.operation, request.bytes);
                    let pending_fetch = PendingFetch {
                        copy,
                        _memory,
                        state_words,
                        word,
                        operation,
                        fetched,
                        kind,
                        bytes,
                        traffic,
                    };
                    return Ok(Outcome::InFlight(Box::new(pending_fetch)));
                }
                Open::There => {
                    self.chooser.took(&kind, fetched.channel, request.bytes, traffic, start.elapsed());
                    return Ok(Outcome::Complete(fetched));
                }
                Open::No => {}
            }
            self.receiver.has_opened = false;
            match fetched.channel.receive(&mut self.receiver, request, &destination) {
                Ok(()) => {
                    self.receiver.connection.send_message(Message::Done { operation: request.operation })?;
                    let time = start.elapsed();
                    // One of both ends may have staged it, though both could have done without.
                    let is_gpudirect = fetched.channel.uses_rdma() && self.receiver.used_gpudirect;
                    let fetched = Decision { is_gpudirect, ..fetched };
                    if self.openings.end(fetched.channel, self.receiver.has_opened) {
                        self.chooser.took(&kind, fetched.channel, request.bytes, traffic, time);
                    } else {
                        self.chooser.opened(&kind, fetched.channel, request.bytes, traffic, time);
                    }
                    return Ok(Outcome::Complete(fetched));
                }
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) if error.is_of_message() => {
                    self.receiver
                        .connection
                        .send_message(Message::Abandoned { operation: request.operation })?;
                    return Err(error);
                }
                Err(error) => {
                    if matches!(error, TransferError::Refused { refusal: Refusal::Slots, .. }) {
                        self.receiver.forget_slots();
                    }
                    self.chooser.failed(fetched.channel, &error);
                    tried.push(fetched.channel);
                    failed.push(format!("{}: {error}", fetched.channel));
                    kind.channels.retain(|other| *other != fetched.channel);
                }
            }
        }
        self.receiver.connection.send_message(Message::Abandoned { operation: request.operation })?;
        let why = [failed, self.chooser.why_not(&ends)].concat().join("; ");
        Err(TransferError::NoChannel { peer: self.receiver.connection.peer, why })
    }

    /// A payload that was under way is there after so long, or is not. The sender has heard of it.
    pub(crate) fn end(
        &mut self,
        ended: &PendingFetch,
        took: Result<Duration, CudaError>,
    ) -> Result<(), TransferError> {
        let time = took?;
        self.chooser.took(&ended.kind, ended.fetched.channel, ended.bytes, ended.traffic, time);
        Ok(())
    }

    /// Fetches a payload from memory that is open here already, without a message to the sender.
    fn fetch_open(
        &mut self,
        channel: Channel,
        request: &FetchRequest,
        destination: &Destination,
        wait: Wait,
    ) -> Open {
        let state_words = self.known_peer_state().cloned();
        let Some((state_words, word)) = state_words.zip(request.word) else { return Open::No };
        let Some(ops) = channel.peer_memory() else { return Open::No };
        let Some(memory) = ops.find(&mut self.receiver, request.source.buffer, destination) else {
            return Open::No;
        };
        let Ok(Some(scope)) = destination.scope() else { return Open::No };
        if !state_words.take(word, request.operation) {
            // The sender has it back, and gives a copy.
            return Open::No;
        }
        let (from, bytes) = (memory.start().saturating_add(request.source.offset), request.bytes as usize);
        if wait == Wait::NonBlocking {
            // SAFETY: the receive's memory is this function's until the receive ends, and the sender's stays
            // as it is until its word says that this is done. The peer's buffer stays open with the copy.
            let pending = unsafe { PendingCopy::begin(&scope, request.to, from, bytes) };
            return pending.map_or(Open::No, |copy| Open::Started(copy, memory, state_words, word));
        }
        // SAFETY: the receive's memory is this function's until the receive ends, and the sender's stays as
        // it is until its word says that this is done. The peer's buffer stays open with the copy.
        if unsafe { scope.copy(request.to, from, bytes) }.is_err() {
            // The sender is asked, and whatever is wrong is told then.
            return Open::No;
        }
        state_words.finish(word, request.operation);
        Open::There
    }
}
