//! How does the receiver get the bytes?

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use super::cache::Cache;
use super::choosing::{Chooser, Kind};
use super::error::TransferError;
use super::message::Message;
use super::slots::{HOST_SLOTS, HostSlots, Ring};
use super::words::Words;
use crate::channels::{Channel, Ends, Gpu, Joined};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, IPC_HANDLE_BYTES, Mapping, Opened, Scope};
use crate::matching::Source;
use crate::meeting::{Connection, MESSAGE_BYTES};
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::Reason;
use crate::tracer::Operation;

/// Buffers of a peer that stay open, of each kind.
const MOST_OPEN: usize = 32;

/// What is to be fetched, and where to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) operation: u64,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) word: Option<u16>,
    pub(crate) to: u64,
    /// Whether that was memory on a GPU when the receive was posted.
    pub(crate) to_gpu: bool,
    pub(crate) by: Operation,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) channel: Channel,
    pub(crate) reason: Reason,
}

/// What a receiver has of a peer.
#[derive(Debug)]
pub(crate) struct Fetcher {
    connection: Connection,
    chooser: Chooser,
    /// The peer's words of its offers, when it has sent them; none if it has none.
    words: Option<Option<Words>>,
    slots: Option<HostSlots>,
    bounce: Option<Mapping>,
    opened: Cache<Opened>,
    mapped: Cache<Mapping>,
}

/// Where the bytes go.
struct Destination {
    /// The device whose engine copies, if there is one.
    device: Option<(&'static Driver, i32)>,
    memory: Option<DeviceMemory>,
}

impl Destination {
    fn at(address: u64) -> Self {
        let Some(driver) = Driver::loaded() else { return Self { device: None, memory: None } };
        let memory = DeviceMemory::at(driver, address);
        let device = memory.map(|memory| memory.device).or_else(|| cuda::current_device(driver));
        Self { device: device.map(|device| (driver, device)), memory }
    }

    /// The context in which copies are made; none where both ends are memory of the host.
    fn scope(&self) -> Result<Option<Scope<'static>>, CudaError> {
        match (self.device, self.memory) {
            (Some((driver, _)), Some(memory)) => Scope::of(driver, &memory).map(Some),
            (Some((driver, device)), None) => Scope::of_device(driver, device).map(Some),
            (None, _) => Ok(None),
        }
    }
}

impl Fetcher {
    pub(crate) fn new(
        connection: Connection,
        pair: Pair,
        allowed: Vec<Channel>,
        threshold: u32,
        profile: Profile,
    ) -> Self {
        Self {
            connection,
            chooser: Chooser::new(pair, allowed, threshold, profile),
            words: None,
            slots: None,
            bounce: None,
            opened: Cache::new(MOST_OPEN),
            mapped: Cache::new(MOST_OPEN),
        }
    }

    /// Adds to a profile what has been found out of channels.
    pub(crate) fn tell(&self, profile: &mut Profile) {
        self.chooser.tell(profile);
    }

    /// Tells the sender that a message is not wanted: it is too long for the receive.
    pub(crate) fn decline(&self, operation: u64) -> Result<(), TransferError> {
        self.connection.say(Message::Done { operation })
    }

    /// Fetches a payload by the channel that is best, and by others where that one fails.
    pub(crate) fn fetch(&mut self, order: &Order) -> Result<Fetched, TransferError> {
        self.hear_words().inspect_err(|_| self.connection.shut())?;
        let destination = Destination::at(order.to);
        if order.to_gpu && destination.memory.is_none() {
            self.connection.say(Message::Abandoned { operation: order.operation })?;
            return Err(CudaError::UNKNOWN_MEMORY.into());
        }
        let ends = ends(&destination, order.source);
        let (channels, mut why) = self.chooser.channels(&ends);
        let mut kind = Kind {
            channels,
            joined: ends.joined,
            is_direct: order.source.direct,
            device: destination.memory.map(|memory| memory.device),
        };
        let traffic = self.chooser.count(order.by);
        while !kind.channels.is_empty() {
            let Some(choice) = self.chooser.choose(&kind, order.bytes, traffic) else { break };
            let channel = choice.channel;
            let start = Instant::now();
            if self.fetch_open(channel, order, &destination) {
                self.chooser.took(&kind, channel, order.bytes, traffic, start.elapsed());
                return Ok(Fetched { channel, reason: choice.reason });
            }
            match self.fetch_by(channel, order, &destination) {
                Ok(()) => {
                    self.connection.say(Message::Done { operation: order.operation })?;
                    self.chooser.took(&kind, channel, order.bytes, traffic, start.elapsed());
                    return Ok(Fetched { channel, reason: choice.reason });
                }
                Err(error) if error.ends_connection() => {
                    self.connection.shut();
                    return Err(error);
                }
                Err(error) => {
                    self.chooser.failed(channel, &error);
                    why.push(format!("{channel}: {error}"));
                    kind.channels.retain(|other| *other != channel);
                }
            }
        }
        self.connection.say(Message::Abandoned { operation: order.operation })?;
        Err(TransferError::NoChannel { peer: self.connection.peer, why: why.join("; ") })
    }

    /// Hears the words of the peer's offers, which it sends before all else.
    fn hear_words(&mut self) -> Result<(), TransferError> {
        if self.words.is_none() {
            let (Message::Words, descriptor) = self.connection.hear()? else {
                return Err(self.connection.wrong("something else than the words of its offers"));
            };
            // Without them it is asked for every payload.
            self.words = Some(descriptor.and_then(|descriptor| Words::of_peer(descriptor).ok()));
        }
        Ok(())
    }

    /// Fetches a payload from memory that is open here already, without a message to the sender. Says whether
    /// it has.
    fn fetch_open(&mut self, channel: Channel, order: &Order, destination: &Destination) -> bool {
        let Some((words, word)) = self.words.as_ref().and_then(Option::as_ref).zip(order.word) else {
            return false;
        };
        let start = match channel {
            Channel::Ipc => self.opened.get(order.source.buffer).map(|opened| opened.address),
            Channel::Vmm => self.mapped.get(order.source.buffer).map(|mapping| mapping.address),
            _ => None,
        };
        let Some(start) = start else { return false };
        let Ok(Some(scope)) = destination.scope() else { return false };
        if !words.take(word, order.operation) {
            // The sender has it back, and gives a copy.
            return false;
        }
        let from = start.saturating_add(order.source.offset);
        // SAFETY: the receive's memory is this function's until the receive ends, and the sender's stays as it is
        // until its word says that this is done.
        if unsafe { scope.copy(order.to, from, order.bytes as usize) }.is_err() {
            // The sender is asked, and whatever is wrong is told then.
            return false;
        }
        words.finish(word, order.operation);
        true
    }

    fn fetch_by(
        &mut self,
        channel: Channel,
        order: &Order,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        if channel == Channel::Staged && self.slots.is_none() {
            let slots = HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?;
            let Ring { count, bytes } = slots.ring;
            self.connection.say_with(Message::Slots { count, bytes }, Some(slots.descriptor()))?;
            self.slots = Some(slots);
        }
        self.connection.say(Message::Fetch { channel, operation: order.operation })?;
        let scope = destination.scope();
        let (message, descriptor) = self.hear(channel)?;
        match message {
            Message::Piece { .. } if channel == Channel::Staged => {
                let slots = self.slots.as_ref().ok_or_else(|| self.connection.wrong("slots"))?;
                self.pass(Some(message), order, scope, slots.ring, channel, |slot| slots.address(slot))
            }
            Message::Bounce { count, bytes, total, is_new } if channel == Channel::Vmm => {
                let ring = Ring::checked(count, bytes).filter(|ring| ring.total() <= total);
                let ring = ring.ok_or_else(|| self.connection.wrong("a bounce buffer of such a size"))?;
                let mapped = self.map_bounce(is_new, descriptor, total, destination);
                self.connection.say(Message::Need { needed: mapped.is_ok() })?;
                let start = mapped?;
                self.pass(None, order, scope, ring, channel, |slot| start + ring.offset(slot))
            }
            Message::Region { buffer } if matches!(channel, Channel::Ipc | Channel::Vmm) => {
                let Message::Offset { offset } = self.hear(channel)?.0 else {
                    return Err(self.connection.wrong("a region without an offset"));
                };
                let start = self.region(channel, buffer, destination, scope.as_ref())?;
                match scope? {
                    // SAFETY: the receive's memory is this function's until the receive ends, and the
                    // sender's stays as it is until it hears of the end.
                    Some(scope) => Ok(unsafe {
                        scope.copy(order.to, start.saturating_add(offset), order.bytes as usize)
                    }?),
                    None => Err(self.connection.wrong("a region for a rank without a GPU")),
                }
            }
            _ => Err(self.connection.wrong("another answer than the channel has")),
        }
    }

    /// Opens the peer's buffer, unless it is open. Says where it begins here.
    fn region(
        &mut self,
        channel: Channel,
        buffer: u64,
        destination: &Destination,
        scope: Result<&Option<Scope<'static>>, &CudaError>,
    ) -> Result<u64, TransferError> {
        let known = match channel {
            Channel::Ipc => self.opened.get(buffer).map(|opened| opened.address),
            _ => self.mapped.get(buffer).map(|mapping| mapping.address),
        };
        self.connection.say(Message::Need { needed: known.is_none() })?;
        if let Some(start) = known {
            return Ok(start);
        }
        let (message, descriptor) = self.hear(channel)?;
        let handle = match message {
            Message::Handle => Some(self.hear_handle()?),
            _ => None,
        };
        // What was to be heard has been; what fails from here on leaves the connection in order.
        scope.map_err(|error| *error)?;
        let (driver, device) =
            destination.device.ok_or_else(|| self.connection.wrong("a region for no GPU"))?;
        match (message, handle, descriptor) {
            (Message::Handle, Some(handle), _) => {
                let opened = self.opened.open(|| Opened::new(driver, &handle))?;
                let start = opened.address;
                self.opened.insert(buffer, opened);
                Ok(start)
            }
            (Message::Export { bytes }, _, Some(descriptor)) => {
                let bytes =
                    usize::try_from(bytes).map_err(|_| self.connection.wrong("memory of such a size"))?;
                let import = || Mapping::import(driver, descriptor.as_fd(), bytes, device);
                let mapping = self.mapped.open(import)?;
                let start = mapping.address;
                self.mapped.insert(buffer, mapping);
                Ok(start)
            }
            _ => Err(self.connection.wrong("a region without a way to it")),
        }
    }

    fn hear_handle(&self) -> Result<[u8; IPC_HANDLE_BYTES], TransferError> {
        let mut handle = [0; IPC_HANDLE_BYTES];
        for part in handle.as_chunks_mut::<MESSAGE_BYTES>().0 {
            *part = self.connection.hear_bytes()?.0;
        }
        Ok(handle)
    }

    fn map_bounce(
        &mut self,
        is_new: bool,
        descriptor: Option<OwnedFd>,
        total: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError> {
        if is_new {
            self.bounce = None;
            let (driver, device) =
                destination.device.ok_or_else(|| self.connection.wrong("a bounce buffer for no GPU"))?;
            let descriptor =
                descriptor.ok_or_else(|| self.connection.wrong("a bounce buffer without a descriptor"))?;
            let bytes = usize::try_from(total)
                .map_err(|_| self.connection.wrong("a bounce buffer of such a size"))?;
            self.bounce = Some(Mapping::import(driver, descriptor.as_fd(), bytes, device)?);
        }
        let mapping =
            self.bounce.as_ref().ok_or_else(|| self.connection.wrong("a bounce buffer that is not there"))?;
        Ok(mapping.address)
    }

    /// Receives a payload through slots. Where a copy fails the rest is heard all the same, so that the peer
    /// and this end stay in step.
    fn pass(
        &self,
        first: Option<Message>,
        order: &Order,
        scope: Result<Option<Scope<'static>>, CudaError>,
        ring: Ring,
        channel: Channel,
        address: impl Fn(u16) -> u64,
    ) -> Result<(), TransferError> {
        let mut outcome = scope.as_ref().map(drop).map_err(|error| *error);
        let mut first = first;
        for (slot, at, bytes) in ring.pieces(order.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => self.hear(channel)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(self.connection.wrong("another piece than the next"));
            }
            if outcome.is_ok() {
                let (to, from, bytes) = (order.to + at, address(slot), bytes as usize);
                match &scope {
                    // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                    // function's until the receive ends.
                    Ok(Some(scope)) => outcome = unsafe { scope.copy(to, from, bytes) },
                    // SAFETY: as above; both are memory of the host, which do not overlap.
                    _ => unsafe {
                        core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes);
                    },
                }
            }
            self.connection.say(Message::Free { slot })?;
        }
        Ok(outcome?)
    }

    /// The sender's next message. That it refuses is an error, which names the channel.
    fn hear(&self, channel: Channel) -> Result<(Message, Option<OwnedFd>), TransferError> {
        match self.connection.hear()? {
            (Message::Refused(refusal), _) => {
                Err(TransferError::Refused { peer: self.connection.peer, channel, refusal })
            }
            heard => Ok(heard),
        }
    }
}

/// What the two places have, as channels ask for it.
fn ends(destination: &Destination, source: Source) -> Ends {
    let unbuilt = || Err("this build does not have that channel".to_owned());
    let own_number = destination.device.and_then(|(driver, device)| cuda::gpu_number(driver, device));
    let joined = match (destination.device, own_number) {
        (_, Some(number)) if number == source.gpu => Joined::SameGpu,
        (Some((driver, device)), _) if cuda::reaches(driver, device, source.gpu) => Joined::Peers,
        _ => Joined::Apart,
    };
    Ends {
        own: destination.device.map(|_| Gpu { ipc: true, export: true, gpudirect: false }),
        peer: Some(Gpu { ipc: source.ipc, export: source.export, gpudirect: false }),
        joined,
        bar: unbuilt(),
        cards: unbuilt(),
    }
}
