//! Fetcher: the receiver's state of a peer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::super::choosing::Chooser;
use super::super::state_words::StateWords;
use super::openings::Openings;
use super::reading::Reading;
use crate::bootstrap::Connection;
use crate::channels::Channel;
use crate::channels::TransferError;
use crate::channels::bar::Windows;
use crate::channels::cache::Cache;
use crate::channels::message::Message;
use crate::channels::staging::HostSlots;
use crate::cuda::{self, CudaError, DeviceMemory, Driver, GpuAccess, GpuNumber, Mapping, Opened, Scope};
use crate::live::Live;
use crate::pair::Pair;
use crate::profile::Profile;
use crate::scheduler::Table;

/// Buffers of a peer that stay open, of each kind.
const MAX_OPEN_MAPPINGS: usize = 32;

/// What a receiver has of a peer.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(super) connection: Connection,
    pub(super) chooser: Chooser,
    /// The peer's words of its offers, when it has sent them; none if it has none.
    pub(super) state_words: Option<Option<Arc<StateWords>>>,
    /// Those of the connection before this one.
    known_state_words: Option<Arc<StateWords>>,
    pub(super) slots: Option<HostSlots>,
    pub(super) bounce: Option<Mapping>,
    pub(super) reading: Option<Reading>,
    pub(super) windows: Windows,
    pub(super) opened: Cache<Arc<Opened>>,
    pub(super) mapped: Cache<Arc<Mapping>>,
    pub(super) openings: Openings,
}

/// Where the bytes go.
pub(super) struct Destination {
    /// The device whose engine copies, if there is one.
    pub(super) device: Option<(&'static Driver, i32)>,
    pub(super) memory: Option<DeviceMemory>,
    /// What that device is to the peer's.
    pub(super) access: GpuAccess,
}

impl Destination {
    /// An address to which bytes come from a peer's GPU with this number.
    pub(super) fn at(address: u64, peer: GpuNumber) -> Self {
        let Some(driver) = Driver::loaded() else {
            return Self { device: None, memory: None, access: GpuAccess::Unseen };
        };
        let memory = DeviceMemory::at(driver, address);
        let device = memory.map(|memory| memory.device).or_else(|| cuda::current_device(driver));
        let access = device.map_or(GpuAccess::Unseen, |device| cuda::gpu_access(driver, device, peer));
        Self { device: device.map(|device| (driver, device)), memory, access }
    }

    /// Memory on a GPU that has been looked at.
    pub(super) fn of(driver: &'static Driver, memory: DeviceMemory, peer: GpuNumber) -> Self {
        let access = cuda::gpu_access(driver, memory.device, peer);
        Self { device: Some((driver, memory.device)), memory: Some(memory), access }
    }

    /// The device for which a peer's memory is opened: the one that copies where it reaches that memory, else the
    /// peer's own.
    pub(super) fn opener(&self) -> Option<(&'static Driver, i32)> {
        let (driver, device) = self.device?;
        Some((driver, if let GpuAccess::Seen(other) = self.access { other } else { device }))
    }

    /// The context in which it is opened.
    pub(super) fn opening_scope(&self) -> Result<Option<Scope<'static>>, CudaError> {
        match (self.access, self.device) {
            (GpuAccess::Seen(other), Some((driver, _))) => Scope::of_device(driver, other).map(Some),
            _ => self.scope(),
        }
    }

    /// Lets the device use memory that may have been mapped for another one of this rank's.
    pub(super) fn let_use(&self, mapping: &Mapping) -> Result<(), CudaError> {
        self.opener().map_or(Ok(()), |(_, device)| mapping.let_use(device))
    }

    /// The context in which copies are made; none where both ends are memory of the host.
    pub(super) fn scope(&self) -> Result<Option<Scope<'static>>, CudaError> {
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
        live: Arc<Live>,
        table: Option<Arc<Table>>,
        profile: Profile,
        known_state_words: Option<Arc<StateWords>>,
    ) -> Self {
        let chooser = Chooser::new(pair, connection.is_network(), allowed, live, table, profile);
        Self {
            connection,
            chooser,
            state_words: None,
            known_state_words,
            slots: None,
            bounce: None,
            reading: None,
            windows: Windows::default(),
            opened: Cache::new(MAX_OPEN_MAPPINGS),
            mapped: Cache::new(MAX_OPEN_MAPPINGS),
            openings: Openings::default(),
        }
    }

    /// The peer.
    pub(crate) fn peer(&self) -> u32 {
        self.connection.peer
    }

    /// What lies between the two, in words.
    pub(crate) fn between(&self) -> String {
        self.chooser.between()
    }

    /// Whether the two meet over a network.
    pub(crate) fn is_network(&self) -> bool {
        self.connection.is_network()
    }

    /// Adds to a profile what has been found out of channels.
    pub(crate) fn learn_into(&self, profile: &mut Profile) {
        self.chooser.learn_into(profile);
    }

    /// Tells the sender that a message is not wanted: it is too long for the receive.
    pub(crate) fn decline(&self, operation: u64) -> Result<(), TransferError> {
        self.connection
            .send_message(Message::Done { operation })
            .map_err(|error| self.connection.ended_by(error))
    }

    /// Tells the sender that this rank moves: the fetcher is of no more use.
    pub(crate) fn leave(&mut self) {
        // The words lie in the connection where nothing has been fetched yet.
        let _ = self.receive_state_words();
        self.connection.send_moving();
    }

    /// The peer has come by another connection.
    pub(crate) fn give_up(&self) {
        self.connection.send_moving();
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
            // A peer that has said nothing and gone has not kept this connection, as where it takes this rank for
            // another one while that moves; it comes again.
            let heard = self.connection.receive_message();
            let has_disconnected = heard.is_err() && self.connection.has_ended();
            let heard = if has_disconnected { Err(TransferError::Moved(self.peer())) } else { heard };
            let (Message::StateWords { are_known }, descriptor) = heard? else {
                return Err(self.connection.wrong("something else than the words of its offers"));
            };
            let new = || descriptor.and_then(|descriptor| StateWords::of_peer(descriptor).ok().map(Arc::new));
            // Without them it is asked for every payload.
            self.state_words = Some(if are_known { self.known_state_words.take() } else { new() });
        }
        Ok(())
    }

    /// The sender's next message. That it refuses is an error, which names the channel.
    pub(super) fn receive_message(
        &self,
        channel: Channel,
    ) -> Result<(Message, Option<OwnedFd>), TransferError> {
        match self.connection.receive_message()? {
            (Message::Refused(refusal), _) => {
                Err(TransferError::Refused { peer: self.connection.peer, channel, refusal })
            }
            heard => Ok(heard),
        }
    }
}
